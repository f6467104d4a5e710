"""Moves that may leave their cell: which cells are suitable, who may ask for it, and in which order hosts are tried.

A server takes its ports, volumes and sometimes its disks along. Whether a host reaches its segments is decided for each
host, as always; what is the same for all hosts of a cell is found here, before anything is changed, and every
unsuitable cell gets a reason.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from moorage.model.errors import Invalid, NotAcceptable, NotFound, Unavailable
from moorage.model.ids import CellId, ConductorId, HostId
from moorage.model.server import Server
from moorage.model.world import Ask, Unfit
from moorage.operations.accept import SagaT, newest_known
from moorage.operations.context import SagaContext
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.steps.record_cells import cells_out
from moorage.operations.steps.segment_change import Tries
from moorage.saga import Run
from moorage.store.region import processes

KNOWS_HIDDEN_RECORDS = (0, 2)
"""The first release whose lists leave hidden records out."""
TOO_EARLY = "Moves across cells begin when all APIs and conductors are of this release; try again later."
ONE_BINDING = Unfit("the network service has one binding of a port only")
NO_ATTACHMENTS = Unfit(
    "the volume service is too old for moves across cells", "it does not know version 3.44 of its API"
)
LOCAL_DISKS = Unfit("its ephemeral or swap disk cannot go to another cell")
NOT_LINKED = Unfit("the host's cell is not linked with the server's")
NETWORK = "a network of the server has other addresses in the host's cell"
VOLUME = "a volume of the server cannot be reached from the host's cell"


class Takes(msgspec.Struct, frozen=True):
    """What a kind of move takes along besides addresses and volumes."""

    bindings: bool = False
    """Whether its ports are bound at both hosts at the same time."""
    disks: bool = False
    """Whether its ephemeral and swap disks go through the image service, which carries only the root disk."""
    links: bool = False
    """Whether its guest is sent from host to host."""


RESIZE, LIVE, ANEW = Takes(bindings=True, disks=True), Takes(bindings=True, links=True), Takes()
"""For a resize or cold migration; for a live migration; for a server that is made again (evacuation, unshelve)."""


class CellReach(msgspec.Struct, frozen=True):
    """What a step found; kept in the journal."""

    unfit: dict[CellId, Unfit] = {}


def may_leave(context: SagaContext, *, allowed: bool) -> bool:
    """Whether the caller has the permission and there is another cell."""
    return allowed and len(context.cells.ids) > 1


async def all_know(context: SagaContext) -> bool:
    """Whether every running API leaves hidden records out: one of an earlier release would list both records (0021)."""
    living = await context.region.read(processes.living)
    return all(_release(each.release) >= KNOWS_HIDDEN_RECORDS for each in living if each.role != "conductor")


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())


def cell_of(context: SagaContext, host: str) -> CellId | None:
    """The cell of a host, by its name; None when there is no such host."""
    world = context.placement.world()
    at = world.slots_by_name.get(host)
    return None if at is None else world.cell_names[int(world.cell[at])]


def refuse_other_cell(context: SagaContext, server: Server, host: str, *, allowed: bool) -> None:
    """Check that a named host is in the server's cell, or in any cell for callers with the permission (S4.13). Raises
    Invalid; only who may name hosts gets here, so it may say that the host is there.
    """
    cell = cell_of(context, host)
    if cell is None:
        raise Invalid(f"Compute host {host} could not be found.")
    if cell != server.cell and not may_leave(context, allowed=allowed):
        raise Invalid(
            f"Compute host {host} could not be found in the server's cell: it is in another one, and this move may not leave it.",
            private=f"{host} is in {cell}, the server in {server.cell}",
        )


def refuse_unless_crossing(context: SagaContext, server: Server, host: str | None, *, crosses: bool) -> None:
    """Raises Unavailable when the named host is in another cell, and some running process does not know moves across
    cells.
    """
    if host is not None and not crosses and cell_of(context, host) not in (None, server.cell):
        raise Unavailable(TOO_EARLY)


async def chosen(
    context: SagaContext, server: Server, leaving: SagaT, *within: SagaT, allowed: bool, host: str | None
) -> tuple[SagaT, ConductorId]:
    """Choose the saga of a move and the conductor that begins: `leaving` when it may leave its cell, otherwise the
    first of the others that all conductors know.

    It may leave with the permission (`allowed`), unless a host of its own cell is named, and not while processes of an
    earlier release run. Raises Unavailable when the conductors know none of these sagas, or the named host is in
    another cell.
    """
    elsewhere = host is not None and cell_of(context, host) not in (None, server.cell)
    leaves = may_leave(context, allowed=allowed) and (host is None or elsewhere) and await all_know(context)
    saga, owner = await newest_known(context, *((leaving, *within) if leaves else within))
    if allowed:
        refuse_unless_crossing(context, server, host, crosses=saga is leaving)
    return saga, owner


# ---------------------------------------------------------------------------------------------------- suitable cells


async def reach_of(context: SagaContext, server: Server, cards: Cards, takes: Takes) -> CellReach:
    """Every other cell that is unsuitable for the server, with the reason. Raises Unavailable."""
    others = [cell for cell in context.cells.ids if cell != server.cell]
    nowhere = await _nowhere(context, server, cards, takes)
    if nowhere is not None:
        return CellReach(dict.fromkeys(others, nowhere))
    zones = await _zones(context, server)
    if zones is None:
        return CellReach(dict.fromkeys(others, NO_ATTACHMENTS))
    unfit = {cell: _unfit(context, server, cell, cards, zones, takes) for cell in others}
    return CellReach({cell: why for cell, why in unfit.items() if why is not None})


async def _nowhere(context: SagaContext, server: Server, cards: Cards, takes: Takes) -> Unfit | None:
    """The reason that keeps it in its cell, whatever the other cells are."""
    if takes.bindings and cards.ports and not await context.network.has_bindings():
        return ONE_BINDING
    if takes.disks and (server.flavor.ephemeral_gib or server.flavor.swap_mib):
        return LOCAL_DISKS
    network = next((each for each in cards.networks.values() if each.cells), None)
    return None if network is None else Unfit(NETWORK, network.name or network.id)


async def _zones(context: SagaContext, server: Server) -> Mapping[str, str | None] | None:
    """Volume → its zone; a deleted volume has none. None: there is no volume service, or it does not support the
    request.
    """
    zones: dict[str, str | None] = {}
    for device in server.volumes:
        volume = str(device.volume)
        if context.volumes is None:
            return None
        try:
            zones[volume] = await context.volumes.zone(volume)
        except NotAcceptable:
            return None
        except NotFound:
            zones[volume] = None
    return zones


def _unfit(
    context: SagaContext, server: Server, cell: CellId, cards: Cards, zones: Mapping[str, str | None], takes: Takes
) -> Unfit | None:
    reached = context.settings.volume_zones.get(cell, ())
    away = [volume for volume, zone in zones.items() if reached and zone is not None and zone not in reached]
    if away:
        return Unfit(VOLUME, f"{away[0]} is in zone {zones[away[0]]}")
    if takes.links and frozenset({cell, server.cell}) not in context.settings.cell_links:
        return NOT_LINKED
    return None


# --------------------------------------------------------------------------------------------------- the requests


def widened(run: Run[Any, SagaContext], tries: Tries, home: CellId, reach: CellReach | None) -> Tries:
    """The same requests for hosts of all cells, when the move may leave its own (`reach` is known).

    After a failed attempt, hosts of the same cell as that attempt are tried first, and then all; the weighers decide
    whether the server's own cell comes before others (S4.14, S4.23).
    """
    if reach is None:
        return tries
    return of_all_cells(tries, home, reach, out=cells_out(run), last=_last_cell(run))


def of_all_cells(
    tries: Tries, home: CellId, reach: CellReach, *, out: Collection[CellId] = (), last: CellId | None = None
) -> Tries:
    """`last`: the cell whose host was tried before."""
    asks = tuple(
        _across(ask, home, reach, out, cells)
        for ask in tries.asks
        for cells in ((None,) if last is None else ((last,), None))
    )
    return Tries(asks, _across(tries.widest, home, reach, out, None), tries.may_leave)


def _across(ask: Ask, home: CellId, reach: CellReach, out: Collection[CellId], cells: tuple[CellId, ...] | None) -> Ask:
    return msgspec.structs.replace(
        ask, cells=cells, prefer_cell=home, cells_unfit=dict(reach.unfit), cells_out=tuple(out)
    )


def _last_cell(run: Run[Any, SagaContext]) -> CellId | None:
    """The cell of the host that was tried last; None when none was, or when it was deleted."""
    world = run.context.placement.world()
    slot = world.slots.get(HostId(run.tried[-1])) if run.tried else None
    return None if slot is None else world.cell_names[int(world.cell[slot])]
