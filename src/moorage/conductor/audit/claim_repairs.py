"""Repairs claims, with the same code as `moorage heal-allocations`."""

from collections.abc import Collection

from moorage.conductor.audit.claim_checks import hides, ports_of, wanted
from moorage.conductor.audit.finding_builder import amounts
from moorage.conductor.audit.reader import AuditReader
from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations
from moorage.model.audit import OF_PORTS_ALLOCATIONS, Finding
from moorage.model.ids import ProviderId, ServerId
from moorage.model.network_providers import GUARANTEED
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import Server
from moorage.model.verdict import InventoryState
from moorage.model.world import GroupAsk
from moorage.operations.context import SagaContext
from moorage.placement import healing
from moorage.sql import Tx
from moorage.store.region import server_groups
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.claim_statements import Owner

HEALED_BY = "audit"
"""The owner of a repaired claim that no operation made."""


OF_PORTS = GUARANTEED | {IPV4_ADDRESS}


def _left(kinds: Collection[str]) -> frozenset[str]:
    """The classes of ports' claims that were not requested: they stay when the rest of a claim is repaired."""
    if not kinds:
        return frozenset()
    of_ports = OF_PORTS_ALLOCATIONS.intersection(kinds)
    addresses = {each for each in of_ports if each.startswith("address_")}
    left = frozenset[str]() if addresses else frozenset({IPV4_ADDRESS})
    return left if of_ports - addresses else left | GUARANTEED


class ClaimRepairs:
    def __init__(self, context: SagaContext, reader: AuditReader, kinds: Collection[str] = ()) -> None:
        """`kinds`: what is to be repaired; empty: all."""
        self._context, self._reader, self._left = context, reader, _left(kinds)

    async def heal(self, finding: Finding) -> str:
        """Set the claim to what the record and the ports say, unless an operation began on the server."""
        id = ServerId(finding.server)
        site = await self._reader.site([id])
        page = await self._reader.among(site, [id])
        where, server = page.free(id), page.record(id)
        if where is None or where.deleted or server is None:
            return ""
        missing = [nic for nic in server.nics if nic.port is not None and str(nic.port) not in ports_of(server, site)]
        if site.ports is not None and missing:
            return ""
        before = page.held[id].amounts if id in page.held else {}
        left = self._left | ({IPV4_ADDRESS} if hides(server, site) else set())
        truth = wanted(server, site, before, OF_PORTS if "network" in site.out else left)
        owner = Owner(id, server.project, server.user, operation=server.operation or HEALED_BY)
        host = server.provider if server.host is not None else None
        group = await self._group(server)

        def work(tx: Tx) -> bool:
            held = region_servers.find_and_hold(tx, id)
            if held is None or held.operation is not None or held.op_seq != where.op_seq:
                return False
            if not healing.heal(tx, owner, host, truth, before, group):
                tx.refuse(False)
            return True

        if not await self._context.region.write(work):
            return ""
        await self._context.placement.catch_up()
        return f"holds {amounts(truth)}"

    async def _group(self, server: Server) -> GroupAsk | None:
        """The server's place in its group is counted with the claim."""
        if server.group is None:
            return None
        name = server.group
        group = await self._context.region.read(lambda tx: server_groups.get(tx, name))
        return None if group is None else GroupAsk(group.id, group.policy, group.max_per_host or 1)

    async def release(self, finding: Finding) -> str:
        consumer = ServerId(finding.what)
        if await OrphanAllocations(self._context).release_stray(consumer):
            return "released"

        def work(tx: Tx) -> tuple[InventoryState, ...]:
            if region_servers.find(tx, consumer) is not None or claim_statements.owner(tx, consumer) is None:
                return ()
            return self._context.placement.release(tx, consumer)

        rows = await self._context.region.write(work)
        self._context.placement.settle(rows)
        return "released" if rows else ""

    async def release_move(self, finding: Finding) -> str:
        done = await OrphanAllocations(self._context).release_move(finding.what, ServerId(finding.server))
        return "released" if done else ""

    async def sum_again(self, finding: Finding) -> str:
        provider, _, resource = finding.what.partition(" ")
        rows = await self._context.region.write(lambda tx: healing.sum_again(tx, ProviderId(provider), resource))
        self._context.placement.settle(rows)
        return f"{rows[0].used}" if rows else ""
