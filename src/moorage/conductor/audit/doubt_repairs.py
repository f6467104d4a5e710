"""Settles a doubtful server by what the others say (RULES §26): its claim and its guest are on one host, and nothing contradicts that.

The record then names this host, the flavor that the claim is for, the state of the guest, and the volumes' attachments there; a move
that it names has ended. It counts as written by the server's last operation. Nothing is destroyed or released: what the record does not
list stays, and later audits name it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from moorage.conductor.audit.doubt_decisions import move_over, with_power
from moorage.conductor.audit.reader import GuestReportSource
from moorage.model.audit import Finding
from moorage.model.clock import Clock
from moorage.model.guest import PowerState
from moorage.model.ids import HostId, OperationId, ServerId
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.steps import moving
from moorage.operations.steps import servers as records
from moorage.sql import Tx
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import EPOCHS_PER_OPERATION, Fence
from moorage.store.doubts import Doubt
from moorage.store.region import audit_reads
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.claim_statements import Key
from moorage.store.region.servers import Whereabouts

LINES_MAX = 2**31 - 1


class _Claim(NamedTuple):
    host: str
    provider: str
    amounts: Mapping[Key, int]
    power: PowerState
    """Of the guest, as the host has just reported it."""


class DoubtRepairs:
    def __init__(self, context: SagaContext, guests: GuestReportSource, clock: Clock) -> None:
        self._context, self._guests, self._clock = context, guests, clock

    async def settle(self, finding: Finding) -> str:
        """Everything is read again, and the hosts are asked again. Returns what was done; empty: nothing."""
        server = ServerId(finding.server)
        where = await self._context.region.read(lambda tx: region_servers.find(tx, server))
        located = await records.find(self._context, server)
        if where is None or where.operation is not None or where.cell is None or where.cell != located.cell:
            return ""
        if located.doubt is not Doubt.RECORD_OLDER or located.server is None:
            return ""
        claim = await self._one_host(where, located.server)
        over = None if claim is None else move_over(located.server, claim.host, claim.provider, claim.amounts)
        hosts = {each.host: each for each in await self._context.cells[where.cell].read(cell_hosts.listed)}
        if claim is None or over is None:
            return ""
        host = hosts.get(claim.host)
        if host is None and claim.host != located.server.host:
            return ""
        if (decided := with_power(over.record, claim.power)) is None:
            return ""
        attachments = await self._attachments(located.server, claim.host)
        last = Fence(OperationId("audit"), where.op_seq, EPOCHS_PER_OPERATION - 1, LINES_MAX)
        devices = tuple(
            msgspec.structs.replace(each, attachment=attachments.get(str(each.volume), each.attachment))
            for each in decided.block_devices
        )
        after = msgspec.structs.replace(decided, block_devices=devices, updated_at=int(self._clock.now() * 1_000_000))
        if host is not None and host.host != located.server.host:
            after = msgspec.structs.replace(
                after, host=host.host, node=host.node, provider=host.id, availability_zone=host.zone
            )
        if await self._begun_since(where):
            return ""
        moved = located.server.moved

        def write(tx: Tx) -> bool:
            """Unless it was changed since it was read."""
            row = cell_servers.get(tx, server)
            if row is None or row.generation != after.generation:
                return False
            cell_servers.write(tx, after, last)
            if moved is not None and over.status is not None:
                moving.with_status(tx, moved.migration, over.status)
            return True

        if not await self._context.cells[where.cell].write(write):
            return ""
        return f"the record names {claim.host} and {after.vm_state.value}, and counts as of operation {where.op_seq}"

    async def _one_host(self, where: Whereabouts, record: Server) -> _Claim | None:
        """The claim on the one host that has the guest, when it and the record's own host have answered."""
        owner, amounts, moves = await self._context.region.read(
            lambda tx: (
                claim_statements.owner(tx, where.id),
                claim_statements.held(tx, where.id),
                audit_reads.holds_by_move(tx, where.id),
            )
        )
        if moves or owner is None or owner.host is None:
            return None
        world = self._context.placement.world()
        slot = world.slots.get(HostId(owner.host))
        if slot is None:
            return None
        claimed = world.names[slot]
        named = {claimed} | ({record.host} if record.host is not None and record.host in world.slots_by_name else set())
        if not named <= set(await self._guests.ask_again(named)):
            return None
        reported, _ = self._guests.seen()
        if [name for name, guests in reported.items() if where.id in guests] != [claimed]:
            return None
        return _Claim(claimed, owner.host, amounts, reported[claimed][where.id])

    async def _attachments(self, record: Server, host: str) -> dict[str, str]:
        """Volume → its attachment on that host."""
        client, found = self._context.volumes, dict[str, str]()
        for device in record.volumes if client is not None else ():
            assert client is not None
            shown = (await client.show(str(device.volume))).hosts
            mine = {each.id for each in await client.attachments_of(record.id, str(device.volume))}
            exported = [each for each, name in shown.items() if each in mine and name == host]
            if len(exported) == 1:
                found[str(device.volume)] = exported[0]
        return found

    async def _begun_since(self, where: Whereabouts) -> bool:
        now = await self._context.region.read(lambda tx: region_servers.find(tx, where.id))
        return now is None or now.operation is not None or now.op_seq != where.op_seq
