"""In which cells an attempt of a boot may have left the server's record, and which cells cannot take one now.

A cell whose database is out is a reason to go elsewhere (`CELL_OUT`), if it is certain that nothing was written there: a write whose
outcome is unknown is tried again in the same cell, for a server is never in two.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from moorage.model.errors import HostFailed, Unavailable, UnknownOutcome
from moorage.model.ids import CellId, HostId
from moorage.operations.cell_databases import CELL_OUT
from moorage.operations.context import SagaContext
from moorage.saga import Cause, Run

WAITING = "waiting for the database of the server's cell"
T = TypeVar("T")


def cells_out(run: Run[Any, SagaContext]) -> tuple[CellId, ...]:
    """Where nothing new is begun: known to this process, or found by an earlier attempt."""
    return tuple(sorted(_found_out(run) | set(run.context.cells.out())))


def _found_out(run: Run[Any, SagaContext]) -> frozenset[CellId]:
    """Cells that an earlier attempt left because they were out."""
    return frozenset(cell for cell, cause in _ended(run) if cell is not None and cause.code == CELL_OUT)


def cells_with_record(run: Run[Any, SagaContext], held: CellId | None) -> tuple[CellId, ...]:
    """Where a record may be; `held`: the cell of the present attempt.  A cell that is out holds up nobody who was never there."""
    ended = _ended(run)
    if any(cell is None for cell, _ in ended):
        return run.context.cells.ids  # a host that is gone by now: its cell is not known
    places = {cell for cell, cause in ended if cause.code != CELL_OUT}
    if held is not None and (run.turned is None or run.turned.code != CELL_OUT):
        places.add(held)
    return tuple(cell for cell in run.context.cells.ids if cell in places)


def _ended(run: Run[Any, SagaContext]) -> list[tuple[CellId | None, Cause]]:
    """The cell of each attempt that ended, and why it did."""
    world = run.context.placement.world()
    found: list[tuple[CellId | None, Cause]] = []
    for host, cause in zip(run.tried, run.causes, strict=False):
        slot = world.slots.get(HostId(host))
        found.append((None if slot is None else world.cell_names[int(world.cell[slot])], cause))
    return found


async def or_elsewhere(run: Run[Any, SagaContext], cell: CellId, write: Callable[[], Awaitable[T]]) -> T:
    """Write to the cell. Raises HostFailed, so that another cell is tried, when it is out and holds nothing of this attempt.

    Where it may hold something, the boot waits for it (`in_this_cell`).  No host is to blame, so such an attempt does not count, and
    comes at most once for each cell: who is back in a cell had nowhere else to go, and waits for it as for any service (Unavailable).
    """
    if run.unsure:
        return await in_this_cell(cell, write)
    try:
        return await write()
    except UnknownOutcome as unknown:
        raise _excused(cell, unknown) from unknown
    except Unavailable as out:
        if cell in _found_out(run):
            raise
        elsewhere = HostFailed(
            "the database of the host's cell does not answer", private=f"{cell}: {out} {out.private}", code=CELL_OUT
        )
        elsewhere.without = (cell,)
        raise elsewhere from out


async def in_this_cell(cell: CellId, write: Callable[[], Awaitable[T]]) -> T:
    """Write to a cell that has the server's record, or may have it: while its database is out no other way is left.

    Raises Unavailable that counts against no step's patience; UnknownOutcome when this write may have been done.
    """
    try:
        return await write()
    except Unavailable as out:
        raise _excused(cell, out) from out


def _excused(cell: CellId, out: Unavailable) -> Unavailable:
    kind = UnknownOutcome if isinstance(out, UnknownOutcome) else Unavailable
    problem = kind(WAITING, private=f"{out.named or out.public} {out.private}")
    problem.named = f"waiting for the database of cell {cell}"
    problem.retry_after_s, problem.excused = out.retry_after_s, True
    return problem
