"""In which cells an attempt of a boot may have left the server's record, and which cells cannot take one now.

When a cell's database does not answer, another cell is tried (`CELL_OUT`), if it is certain that nothing was written
there. A write with an unknown outcome is repeated in the same cell, because a server is never in two cells.
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
    """Cells where nothing new is begun: known to this process, or found by an earlier attempt."""
    return tuple(sorted(_found_out(run) | set(run.context.cells.out())))


def _found_out(run: Run[Any, SagaContext]) -> frozenset[CellId]:
    """Cells that an earlier attempt left because their databases did not answer."""
    return frozenset(cell for cell, cause in _ended(run) if cell is not None and cause.code == CELL_OUT)


def cells_with_record(run: Run[Any, SagaContext], held: CellId | None) -> tuple[CellId, ...]:
    """Cells that may have a record; `held`: the cell of this attempt. A cell that does not answer delays only servers
    that were in it.
    """
    ended = _ended(run)
    if any(cell is None for cell, _ in ended):
        return run.context.cells.ids  # the host was deleted, so its cell is unknown
    places = {cell for cell, cause in ended if cause.code != CELL_OUT}
    if held is not None and (run.turned is None or run.turned.code != CELL_OUT):
        places.add(held)
    return tuple(cell for cell in run.context.cells.ids if cell in places)


def _ended(run: Run[Any, SagaContext]) -> list[tuple[CellId | None, Cause]]:
    """The cell of each attempt that ended, and the cause."""
    world = run.context.placement.world()
    causes: list[tuple[CellId | None, Cause]] = []
    for host, cause in zip(run.tried, run.causes, strict=False):
        slot = world.slots.get(HostId(host))
        causes.append((None if slot is None else world.cell_names[int(world.cell[slot])], cause))
    return causes


async def or_elsewhere(run: Run[Any, SagaContext], cell: CellId, write: Callable[[], Awaitable[T]]) -> T:
    """Write to the cell. Raises HostFailed, so that another cell is tried, when it does not answer and has nothing of
    this attempt.

    When it may have something, the boot waits for it (`in_this_cell`). No host is to blame, so such an attempt does not
    count, and happens at most once for each cell: a boot that comes back to a cell had no other choice, and waits for
    it as for any service (Unavailable).
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
    """Write to a cell that has the server's record, or may have it: the record cannot go to another cell while its
    database does not answer.

    Raises Unavailable, which does not count against the step's patience; UnknownOutcome when this write may have been
    done.
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
