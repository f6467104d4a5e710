"""Shows what a move holds on its source and destination hosts, and what it waits for; for administrators.

It only reads: the moves' records (cell), claims and the operation that holds the server (region), and for an open move
the network and volume services. The answer names a service that does not answer, without its part.
"""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

import msgspec

from moorage.model.errors import NotFound, Problem
from moorage.model.ids import CellId
from moorage.model.migration import Migration, MigrationStatus, MigrationType
from moorage.model.operation import Operation, OperationStatus
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.moves.cancel_move import move_of
from moorage.operations.registry import SAGAS
from moorage.operations.steps.volumes import volumes_of
from moorage.saga import decode_lines
from moorage.saga.state import ReplayedState
from moorage.sql import Tx
from moorage.store.cell import migrations
from moorage.store.region import audit_reads
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers
from moorage.store.region.audit_reads import ConsumerHoldings

T = TypeVar("T")

MOVES_MAX = 100
WAITS = {
    MigrationStatus.QUEUED: "its turn: its host sends other guests",
    MigrationStatus.FINISHED: "its owner, to confirm or revert it",
    MigrationStatus.DONE: "its old host, to return without the guest",
}
"""State of a move without an active operation, or of a queued one → what it waits for."""


class ProviderShare(msgspec.Struct, frozen=True):
    """What one provider gives."""

    provider: str
    name: str
    resources: dict[str, int]


class BindingSeen(msgspec.Struct, frozen=True):
    port: str
    active: bool
    vif_type: str
    addresses: tuple[str, ...] = ()
    """Addresses of the port; a port has them at both ends."""


class AttachmentSeen(msgspec.Struct, frozen=True):
    volume: str
    attachment: str
    status: str


class EndSeen(msgspec.Struct, frozen=True):
    """One of the two hosts."""

    host: str | None
    cell: str | None
    node: str | None
    consumer: str | None = None
    """Which consumer has the claim: the server or the move; None: nothing is claimed here."""
    claimed: tuple[ProviderShare, ...] = ()
    addresses: int = 0
    """IPv4 addresses of segments in the claim."""
    bindings: tuple[BindingSeen, ...] = ()
    attachments: tuple[AttachmentSeen, ...] = ()


class Doing(msgspec.Struct, frozen=True):
    """The operation that works on the move."""

    id: str
    name: str
    status: str
    step: str
    """The step that is under way, or next, as far as the journal shows."""
    back: bool
    """Whether it is being undone."""
    attempt: int
    since: int
    cancel: str | None = None


class MoveSeen(msgspec.Struct, frozen=True):
    """One move."""

    migration: Migration
    source: EndSeen
    destination: EndSeen
    doing: Doing | None = None
    waiting: str | None = None
    unbound: tuple[str, ...] = ()
    """Ports that have no binding on either host."""
    held_only: tuple[AttachmentSeen, ...] = ()
    """Attachments that are exported to neither host."""
    out: tuple[str, ...] = ()
    """Services that did not answer."""


class _RegionRows(msgspec.Struct, frozen=True):
    held: dict[str, ConsumerHoldings]
    names: dict[str, str]
    roots: dict[str, str]
    operation: Operation | None


class _Outside(msgspec.Struct, frozen=True):
    """What the network and volume services have of the server, with the host of each."""

    bindings: tuple[tuple[str, BindingSeen], ...] = ()
    attachments: tuple[tuple[str, AttachmentSeen], ...] = ()
    out: tuple[str, ...] = ()


NOTHING = _Outside()


async def seen(context: SagaContext, server: Server, *, limit: int) -> tuple[MoveSeen, ...]:
    """The server's moves, newest first, at most `limit`. Raises Unavailable when the server's cell does not answer."""
    if server.cell is None:
        return ()
    query = migrations.MigrationQuery(limit=min(limit, MOVES_MAX), server=server.id)
    moves = await context.cells[server.cell].read(lambda tx: migrations.listed(tx, query))
    if not moves:
        return ()
    region = await context.region.read(lambda tx: _read_region(tx, server, moves))
    outside = await _outside(context, server) if any(not each.ended for each in moves) else NOTHING
    return tuple(_overview(each, server, region, NOTHING if each.ended else outside) for each in moves)


def _read_region(tx: Tx, server: Server, moves: Sequence[Migration]) -> _RegionRows:
    held = {
        each.owner.consumer: each for each in audit_reads.held_among(tx, [server.id, *(each.uuid for each in moves)])
    }
    named = {provider for each in held.values() for provider, _ in each.amounts}
    known = audit_reads.providers_among(tx, named)
    where = region_servers.find(tx, server.id)
    operation = None if where is None or where.operation is None else region_operations.get(tx, where.operation)
    names, roots = ({each: row[at] for each, row in known.items()} for at in (0, 1))
    return _RegionRows(held, names, roots, operation)


def _overview(move: Migration, server: Server, region: _RegionRows, outside: _Outside) -> MoveSeen:
    consumers = _consumers(move, server, region)
    left, to = move.source_cell or server.cell, move.dest_cell or server.cell
    source = _end(move.source_host, move.source_node or None, left, consumers[0], region, outside)
    same = move.dest_host == move.source_host
    destination = _end(move.dest_host, move.dest_node, to, consumers[1], region, NOTHING if same else outside)
    doing = _doing(move, region.operation)
    hosts = {move.source_host, move.dest_host}
    ports_at = {each.port for host, each in outside.bindings if host in hosts}
    waiting = region.operation.waiting_named if doing is not None and region.operation is not None else None
    return MoveSeen(
        migration=move,
        source=source,
        destination=destination,
        doing=doing,
        waiting=waiting or (WAITS.get(move.status) if doing is None or move.status is MigrationStatus.QUEUED else None),
        unbound=tuple(sorted({each.port for _, each in outside.bindings} - ports_at)),
        held_only=tuple(each for host, each in outside.attachments if host not in hosts),
        out=outside.out,
    )


def _consumers(move: Migration, server: Server, region: _RegionRows) -> tuple[str | None, str | None]:
    """The consumers that hold the claims at the source and at the destination.

    Once the server has a claim on the other host, the move has the earlier one. Before that, and after a revert, the
    server's claim is where the server is.
    """
    if move.ended:
        return None, None
    if move.uuid in region.held:
        return move.uuid, server.id if server.id in region.held else None
    if server.id not in region.held:
        return None, None
    roots = {region.roots.get(provider) for provider, _ in region.held[server.id].amounts}
    at_destination = move.dest_provider in roots and move.dest_provider != move.source_provider
    return (None, server.id) if at_destination else (server.id, None)


def _end(
    host: str | None,
    node: str | None,
    cell: CellId | None,
    consumer: str | None,
    region: _RegionRows,
    outside: _Outside,
) -> EndSeen:
    amounts = region.held[consumer].amounts if consumer is not None else {}
    by_provider: dict[str, dict[str, int]] = {}
    for (provider, resource), used in sorted(amounts.items()):
        by_provider.setdefault(provider, {})[resource] = used
    return EndSeen(
        host=host,
        cell=None if host is None else cell,
        node=node,
        consumer=consumer,
        claimed=tuple(ProviderShare(each, region.names.get(each, ""), given) for each, given in by_provider.items()),
        addresses=sum(given.get(IPV4_ADDRESS, 0) for given in by_provider.values()),
        bindings=tuple(each for at, each in outside.bindings if at == host),
        attachments=tuple(each for at, each in outside.attachments if at == host),
    )


def _doing(move: Migration, operation: Operation | None) -> Doing | None:
    """The operation that holds the server, if it executes or ends this move."""
    if operation is None or move.ended or (saga := SAGAS.get(operation.saga)) is None:
        return None
    if (about := move_of(operation)) and about != move.uuid:
        return None
    book = ReplayedState(saga, decode_lines(operation.journal))
    back = book.turn is not None
    left = book.left_open()
    step = left[0].step if back and left else next((s.name for s in saga.steps if not book.is_done(s.name)), "")
    return Doing(
        id=operation.id,
        name=operation.name,
        status=operation.status.value,
        step="" if operation.status in {OperationStatus.DONE, OperationStatus.UNDONE} else step,
        back=back,
        attempt=book.attempt,
        since=operation.created_at,
        cancel=operation.cancel,
    )


# ---------------------------------------------------------------------------------------------------- other services


async def _outside(context: SagaContext, server: Server) -> _Outside:
    ports, volumes = await asyncio.gather(_or_out(_bindings(context, server)), _or_out(_attachments(context, server)))
    out = [name for name, rows in (("network", ports), ("volume", volumes)) if rows is None]
    return _Outside(ports or (), volumes or (), tuple(out))


async def _or_out(input: Awaitable[T]) -> T | None:
    try:
        return await input
    except Problem:
        return None


async def _bindings(context: SagaContext, server: Server) -> tuple[tuple[str, BindingSeen], ...]:
    """Host → binding. When the network service has no bindings API, a port has the one that it shows."""
    if not server.nics:
        return ()
    several = await context.network.has_bindings()
    rows: list[tuple[str, BindingSeen]] = []
    for port in await context.network.ports_of(server.id):
        addresses = tuple(each.address for each in port.fixed_ips)
        shown = (port.host, BindingSeen(port.id, True, port.vif_type, addresses))
        if not several:
            rows.append(shown)
            continue
        try:
            bindings = await context.network.bindings(port.id)
        except NotFound:  # it was deleted meanwhile
            continue
        rows += [(each.host, BindingSeen(port.id, each.active, each.vif_type, addresses)) for each in bindings]
        if not bindings:
            rows.append(shown)
    return tuple(rows)


async def _attachments(context: SagaContext, server: Server) -> tuple[tuple[str, AttachmentSeen], ...]:
    """Host → attachment; the host is empty when the volume is exported nowhere, or when we may not see where."""
    rows: list[tuple[str, AttachmentSeen]] = []
    for volume in sorted({str(each.volume) for each in server.volumes}):
        hosts: Mapping[str, str] = {}
        try:
            hosts = (await volumes_of(context).show(volume)).hosts
        except NotFound:
            continue
        attachments = await volumes_of(context).attachments_of(server.id, volume)
        rows += [(hosts.get(each.id, ""), AttachmentSeen(volume, each.id, each.status)) for each in attachments]
    return tuple(rows)


def may_be_cancelled(move: MoveSeen) -> bool:
    """Whether `cancel_move` would accept it, as far as is known now."""
    doing, kind = move.doing, move.migration.type
    if doing is None or doing.back or doing.cancel is not None or kind is MigrationType.EVACUATION:
        return False
    return doing.name in {"resize", "live_migrate"} and move.migration.status not in {
        MigrationStatus.POST_MIGRATING,
        MigrationStatus.FINISHED,
    }
