"""Copies the network service's facts about a server's ports into the server's record and its claims.

The network service is authoritative for ports and addresses. Users may change an address there, or delete a port of a
running server. It sends an event then (`network-changed`, `network-vif-deleted`); when the event is lost, a reconciler
compares. Both call this module. A server that an operation holds is skipped, and compared again afterwards.

    a port is gone             the NIC is unplugged and dropped, and its claim released (C13): a detach without a port
    a port has other addresses the record gets them, with their floating addresses
    a port has other groups    the record names them
    a network has another name the addresses are listed under it
    addresses of segments      the claim is changed to match the ports, up or down
    guarantees                 the same for bandwidth and packet rate, of the providers that the bindings name

A port that is missing in a list is not enough to unplug it: a service user that lost a role gets empty lists. It takes
the event that names the port, or the service's answer about that very id while other answers show that we may see ports
(RULES §22).

An address that a port keeps only for a revert belongs to its move, not to the server.

Amounts in use are claimed even beyond the capacity: they must not be promised again. A guarantee cannot be corrected
when the binding names no provider for it, or one that is not below the server's host: then the claim stays, and the log
reports it.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from moorage.model.errors import Conflict, NotFound
from moorage.model.ids import HostId, ProviderId, ServerId
from moorage.model.network import NetworkNames, Port
from moorage.model.network_providers import GUARANTEED
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import Nic, Server
from moorage.model.verdict import InventoryState
from moorage.operations.context import SagaContext
from moorage.operations.interfaces import detach_interface
from moorage.operations.records.floating_ips import with_floating
from moorage.operations.steps import segment_change
from moorage.operations.steps import servers as records
from moorage.operations.steps.ports import guarantees_of, held_by_all, nic_of, segment_of, unnamed_guarantees
from moorage.sql import Tx
from moorage.store.cell import servers as cell_servers
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.claim_statements import Key
from moorage.store.servers import replace_server

SETTLED_AFTER_S = 1.0
"""A claim and its port's binding change within milliseconds of each other; a difference that lasts this long is real.
"""
logger = logging.getLogger(__name__)


class SyncOutcome(StrEnum):
    NO_SERVER = "no_server"
    BUSY = "busy"
    """An operation holds the server: compare again when it has ended."""
    TRUE = "true"
    """Record and claim match the network service."""
    MENDED = "mended"
    AMISS = "amiss"
    """There is a difference that only an operator can correct; it is in the log."""


async def reconcile(
    context: SagaContext,
    server_id: ServerId,
    *,
    deleted: Collection[str] = (),
    segments: Mapping[str, str | None] | None = None,
    names: NetworkNames | None = None,
) -> SyncOutcome:
    """Compare one server with the network service, and correct it. Raises Unavailable when the network service does not
    answer.

    `deleted`: ports that a deletion event of the network service named. `segments`: subnet → segment, if it was just
    read: a NIC that is recorded on another segment is read again. `names`: of networks and groups, likewise.
    """
    where = await context.region.read(lambda tx: region_servers.find(tx, server_id))
    if where is None:
        return SyncOutcome.NO_SERVER
    if where.operation is not None:
        return SyncOutcome.BUSY
    located = await records.find(context, server_id)
    server = located.server
    if located.doubt is not None:
        logger.warning("server %s is not compared with its ports: %s", server_id, located.doubt.why)
        return SyncOutcome.AMISS
    if server is None or server.deleted or located.cell is None or server.host is None:
        return SyncOutcome.NO_SERVER
    held = await context.region.read(
        lambda tx: claim_statements.held(tx, server_id)
    )  # read before the ports, so that a change in between is noticed
    carded = {str(nic.port) for nic in server.nics}  # users may set this server as the device of their own ports
    shown_ports = segment_change.shown(server, await context.network.ports_of(server_id))
    ports = {
        port.id: await _without_held_addresses(context, server, port, segments)
        for port in shown_ports
        if port.id in carded
    }
    if lost := [nic for nic in server.nics if nic.port is not None and nic.port not in ports]:
        return await _lost(context, server, lost, deleted)
    amiss = _amiss(context, server, ports)
    nics = [
        await _as_is(context, nic, ports, guaranteed=str(nic.port) not in amiss, segments=segments or {}, names=names)
        for nic in server.nics
    ]
    wanted = msgspec.structs.replace(
        server,
        nics=with_floating(nics, await context.network.floating_of(tuple(ports))),
        security_groups=await _groups(context, server, ports.values()),
    )
    if wanted != server:
        shown = msgspec.structs.replace(wanted, updated_at=time.time_ns() // 1000)
        if not await context.cells[located.cell].write(lambda tx: _show(tx, shown, server.generation)):
            return SyncOutcome.BUSY
    for each in amiss.values():
        logger.error("server %s: %s", server.id, each)
    mended = await _correct_claim(context, wanted, where.op_seq, held, ports, guarantees=not amiss)
    if amiss:
        return SyncOutcome.AMISS
    return SyncOutcome.MENDED if mended or wanted != server else SyncOutcome.TRUE


async def _lost(context: SagaContext, server: Server, lost: Sequence[Nic], deleted: Collection[str]) -> SyncOutcome:
    """NICs whose ports the list does not show: unplugged when the port was named as deleted, otherwise left."""
    named = [nic for nic in lost if str(nic.port) in deleted]
    input = [str(nic.port) for nic in lost if nic not in named]
    gone = await context.network.ports_gone(input, server.project)
    for port in (each for each in input if each not in gone):
        logger.error(
            "server %s: the network service does not list its port %s, and does not say that it is gone: nothing is unplugged; "
            "check that the service user may see all ports",
            server.id,
            port,
        )
    sure = [nic for nic in lost if nic in named or str(nic.port) in gone]
    outcome = await _detach_lost(context, server, sure) if sure else SyncOutcome.AMISS
    return outcome if len(sure) == len(lost) or outcome is SyncOutcome.BUSY else SyncOutcome.AMISS


async def _detach_lost(context: SagaContext, server: Server, lost: Sequence[Nic]) -> SyncOutcome:
    for nic in lost:
        logger.warning("server %s: port %s is gone from the network service", server.id, nic.port)
        try:
            await detach_interface.begin_gone(context, server, str(nic.port))
        except (Conflict, NotFound):  # held by another operation now, or dropped meanwhile: the next comparison decides
            return SyncOutcome.BUSY
    return SyncOutcome.MENDED


async def _without_held_addresses(
    context: SagaContext, server: Server, port: Port, segments: Mapping[str, str | None] | None
) -> Port:
    """The ports without addresses that they keep only for a revert, when the record does not say so.

    A cell that was restored to a state before a move across segments does not know the move. The move holds the old
    addresses, so the server must not claim them too. Nothing else gives a port addresses of two segments.
    """
    subnets = {ip.subnet for ip in port.fixed_ips if ":" not in ip.address}
    if len(subnets) < 2:
        return port
    if segments is None or not subnets <= segments.keys():
        segments = {each.id: each.segment for each in (await context.network.network(port.network)).subnets}
    its_own = {ProviderId(segment) for subnet in subnets if (segment := segments.get(subnet)) is not None}
    if len(its_own) < 2:
        return port
    known = None if server.moved is None else server.moved.migration
    kept = await context.region.read(
        lambda tx: region_operations.held_by_moves(tx, server.id, IPV4_ADDRESS, its_own, but=known)
    )
    return segment_change.but_of_segments(port, segments, kept) if its_own - kept else port


def addresses_differ(nic: Nic, port: Port, segments: Mapping[str, str | None]) -> bool:
    """Whether the port has other addresses than recorded, or addresses of another segment; subnets missing in
    `segments` are ignored.
    """
    if {(each.subnet, each.address) for each in port.fixed_ips} != {
        (each.subnet, each.address) for each in nic.addresses
    }:
        return True
    return any(ip.subnet in segments for ip in port.fixed_ips) and segment_of(port, segments) != nic.segment


async def _as_is(
    context: SagaContext,
    nic: Nic,
    ports: dict[str, Port],
    *,
    guaranteed: bool,
    segments: Mapping[str, str | None],
    names: NetworkNames | None,
) -> Nic:
    """The NIC with the port's current facts; its tag, index and owner stay as recorded.

    `guaranteed`: whether the binding's guarantees are reliable; otherwise the recorded ones stay.
    """
    port = ports.get(str(nic.port))
    if port is None:
        return nic
    known = msgspec.structs.replace(port, index=nic.index, ours=nic.ours, tag=nic.tag)
    if addresses_differ(nic, port, segments):
        now = nic_of(known, await context.network.network(port.network))
        nic = msgspec.structs.replace(now, guarantees=nic.guarantees, chosen=nic.chosen)
    if names is not None:
        nic = msgspec.structs.replace(nic, network_name=names.networks.get(nic.network, nic.network_name))
    return msgspec.structs.replace(nic, mac=port.mac, guarantees=guarantees_of(port) if guaranteed else nic.guarantees)


def _amiss(context: SagaContext, server: Server, ports: Mapping[str, Port]) -> dict[str, str]:
    """Port → why its guarantees cannot be compared with a claim."""
    below = context.placement.world().device_names(HostId(str(server.provider))).keys()
    amiss: dict[str, str] = {}
    for port in [ports[str(nic.port)] for nic in server.nics if str(nic.port) in ports]:
        if unnamed := unnamed_guarantees(port):
            amiss[port.id] = (
                f"the binding of port {port.id} names no provider for what it is guaranteed in {', '.join(unnamed)}"
            )
        elif strange := {provider for provider, _, _ in guarantees_of(port)} - below - {str(server.provider)}:
            names = ", ".join(sorted(strange))
            amiss[port.id] = (
                f"the binding of port {port.id} names provider {names}, which is not below host {server.host}"
            )
    return amiss


def asks_itself(server: Server) -> bool:
    """Whether the flavor has request groups with the same classes as ports: then claims cannot be assigned to one or
    the other.
    """
    return any(name.partition(":")[2] in GUARANTEED for name in server.flavor.extra_specs)


async def _groups(context: SagaContext, server: Server, ports: Iterable[Port]) -> tuple[str, ...]:
    """The names of the ports' security groups, in their recorded order when they are the same."""
    ids = dict.fromkeys(group for port in ports for group in port.security_groups)
    names = await context.network.group_names(tuple(ids))
    if names is None or set(names) == set(server.security_groups):
        return server.security_groups
    return names


def _show(tx: Tx, server: Server, generation: int) -> bool:
    return replace_server(tx, cell_servers.servers, server, generation=generation) is not None


async def _correct_claim(
    context: SagaContext,
    server: Server,
    seq: int,
    held: Mapping[Key, int],
    ports: Mapping[str, Port],
    *,
    guarantees: bool,
) -> bool:
    """Claim what the ports have, unless an operation began or the claim changed since the comparison.

    `held`: what was claimed before the ports were read.
    """
    classes = {IPV4_ADDRESS} | (GUARANTEED if guarantees and not asks_itself(server) else frozenset())
    truth, before = _of(held_by_all(server.nics), classes), _of(held, classes)
    differing = sorted({key[1] for key, _ in truth.items() ^ before.items()})
    if not differing:
        return False
    if GUARANTEED.intersection(differing) and not await _settled(context, server, ports):
        return False

    def work(tx: Tx) -> tuple[InventoryState, ...]:
        where = region_servers.find_and_hold(tx, server.id)
        if where is None or where.operation is not None or where.op_seq != seq:
            return ()
        if (
            claim_statements.owner(tx, server.id) is None
            or _of(claim_statements.held(tx, server.id), classes) != before
        ):
            return ()
        rows: list[InventoryState] = []
        for resource in differing:
            own = {provider: amount for (provider, name), amount in truth.items() if name == resource}
            rows += context.placement.correct(tx, server.id, resource, own)
        return tuple(rows)

    rows = await context.region.write(work)
    context.placement.settle(rows)
    if rows:
        logger.warning("server %s held %s, and its ports have %s", server.id, before, truth)
    for row in rows:
        if row.used > row.capacity:
            logger.error("%s of %s: %d are in use, of %d", row.resource, row.provider, row.used, row.capacity)
    return bool(rows)


async def _settled(context: SagaContext, server: Server, ports: Mapping[str, Port]) -> bool:
    """Whether the ports have the same guarantees a moment later: the network service changes a claim first, and its
    port then.

    A comparison in between would undo the change.
    """
    await asyncio.sleep(SETTLED_AFTER_S)
    later = {port.id: port for port in await context.network.ports_of(server.id) if port.id in ports}
    return {id: guarantees_of(port) for id, port in later.items()} == {
        id: guarantees_of(port) for id, port in ports.items()
    }


def _of(held: Mapping[Key, int], classes: Collection[str]) -> dict[Key, int]:
    return {key: amount for key, amount in held.items() if key[1] in classes}
