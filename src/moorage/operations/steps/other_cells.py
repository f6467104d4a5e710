"""Moves that may leave their cell: which cells can have the server, who may ask for it, and in which order hosts are asked.

A server takes its ports, volumes and sometimes its disks along.  Whether a host reaches its segments is judged host by host, as ever; what
is the same for all hosts of a cell is found out here, before anything is touched, and every cell that cannot have it is refused by name.
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
"""The first release whose lists leave out the record that is not shown."""
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
    """Its ports are bound at both hosts at the same time."""
    disks: bool = False
    """Its ephemeral and swap disks, by the image service: which has the root disk only."""
    links: bool = False
    """Its guest goes from host to host."""


RESIZE, LIVE, ANEW = Takes(bindings=True, disks=True), Takes(bindings=True, links=True), Takes()
"""Of a resize or cold migration; of a live migration; of a server that is made anew: an evacuation or an unshelve."""


class CellReach(msgspec.Struct, frozen=True):
    """What a step found out, kept in the journal."""

    unfit: dict[CellId, Unfit] = {}


def may_leave(context: SagaContext, *, allowed: bool) -> bool:
    """Whether there is another cell at all for who has the permission."""
    return allowed and len(context.cells.ids) > 1


async def all_know(context: SagaContext) -> bool:
    """Whether every API that runs leaves records out that are not shown: one of an earlier release would list both (0021)."""
    living = await context.region.read(processes.living)
    return all(_release(each.release) >= KNOWS_HIDDEN_RECORDS for each in living if each.role != "conductor")


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())


def cell_of(context: SagaContext, host: str) -> CellId | None:
    """Of a host by its name; None: there is none."""
    world = context.placement.world()
    at = world.slots_by_name.get(host)
    return None if at is None else world.cell_names[int(world.cell[at])]


def refuse_other_cell(context: SagaContext, server: Server, host: str, *, allowed: bool) -> None:
    """A host that is named is of the server's cell, or of any one for who has the permission (S4.13). Raises Invalid, in Nova's words."""
    cell = cell_of(context, host)
    if cell is None or (cell != server.cell and not may_leave(context, allowed=allowed)):
        raise Invalid(f"Compute host {host} could not be found.")


def refuse_unless_crossing(context: SagaContext, server: Server, host: str | None, *, crosses: bool) -> None:
    """Raises Unavailable: the host that is named is of another cell, and not everybody who runs knows moves across cells yet."""
    if host is not None and not crosses and cell_of(context, host) not in (None, server.cell):
        raise Unavailable(TOO_EARLY)


async def chosen(
    context: SagaContext, server: Server, leaving: SagaT, *within: SagaT, allowed: bool, host: str | None
) -> tuple[SagaT, ConductorId]:
    """What a move is told by, and who begins: `leaving` where it may leave its cell, else the first of the others that all know.

    It may with the permission (`allowed`), unless a host of its own cell is named, and not while processes of an earlier release run.
    Raises Unavailable: those that run know none of these, or the host that is named is of another cell.
    """
    elsewhere = host is not None and cell_of(context, host) not in (None, server.cell)
    leaves = may_leave(context, allowed=allowed) and (host is None or elsewhere) and await all_know(context)
    saga, owner = await newest_known(context, *((leaving, *within) if leaves else within))
    if allowed:
        refuse_unless_crossing(context, server, host, crosses=saga is leaving)
    return saga, owner


# ------------------------------------------------------------------------------------------- which cells can have it


async def reach_of(context: SagaContext, server: Server, cards: Cards, takes: Takes) -> CellReach:
    """Every other cell that cannot have the server, and why. Raises Unavailable."""
    others = [cell for cell in context.cells.ids if cell != server.cell]
    nowhere = await _nowhere(context, server, cards, takes)
    if nowhere is not None:
        return CellReach(dict.fromkeys(others, nowhere))
    zones = await _zones(context, server)
    if zones is None:
        return CellReach(dict.fromkeys(others, NO_ATTACHMENTS))
    found = {cell: _unfit(context, server, cell, cards, zones, takes) for cell in others}
    return CellReach({cell: why for cell, why in found.items() if why is not None})


async def _nowhere(context: SagaContext, server: Server, cards: Cards, takes: Takes) -> Unfit | None:
    """What keeps it in its cell, whatever the others are."""
    if takes.bindings and cards.ports and not await context.network.has_bindings():
        return ONE_BINDING
    if takes.disks and (server.flavor.ephemeral_gib or server.flavor.swap_mib):
        return LOCAL_DISKS
    here = next((each for each in cards.networks.values() if each.cells), None)
    return None if here is None else Unfit(NETWORK, here.name or here.id)


async def _zones(context: SagaContext, server: Server) -> Mapping[str, str | None] | None:
    """Volume → its zone; a volume that is gone has none. None: the service does not know what we say to it."""
    found: dict[str, str | None] = {}
    for device in server.volumes:
        volume = str(device.volume)
        if context.volumes is None:
            return None
        try:
            found[volume] = await context.volumes.zone(volume)
        except NotAcceptable:
            return None
        except NotFound:
            found[volume] = None
    return found


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


# -------------------------------------------------------------------------------------------------- what is asked


def widened(run: Run[Any, SagaContext], tries: Tries, home: CellId, reach: CellReach | None) -> Tries:
    """The same of hosts of all cells, where the move may leave its own (`reach` is known).

    After an attempt that failed, hosts of its cell are asked first, and then all; the server's own cell comes before or after others as
    the weighers say (S4.14, S4.23).
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
    """Of the host that was tried last; None: none was, or it is gone."""
    world = run.context.placement.world()
    slot = world.slots.get(HostId(run.tried[-1])) if run.tried else None
    return None if slot is None else world.cell_names[int(world.cell[slot])]
