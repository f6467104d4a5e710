"""Compares an operation that is taken up with what the cells have seen of it, before it goes on (RULES §26).

Effects begin only after the commit that announces them. So a cell that was written by a line, an executor or an operation that the
region does not know shows that the region's database went back. Such an operation takes nothing back: what it would undo may be all
that is left of a disk or a guest.

    its point of no return can be asked     it goes on, and only forward
    its action has ended in the cell        it is ended as it ended there, and does nothing more
    neither                                 it is stuck, until the stores agree or a person decides (docs/operating/restore.md)

A boot whose server is still being built goes on as usual: its guest has nothing yet that could be lost. A delete only goes forward.
"""

import logging
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec

from moorage.model.errors import Doubtful, Unavailable
from moorage.model.ids import CellId, ServerId
from moorage.model.operation import Operation
from moorage.model.server import VmState
from moorage.operations.context import SagaContext
from moorage.saga import Cause, Saga, Stuck
from moorage.saga.journal import Ended, Line, Stalled
from moorage.saga.state import ReplayedState, last_line
from moorage.sql import Tx
from moorage.store.cell import identity as cell_identities
from moorage.store.cell.identity import KnownServer
from moorage.store.doubts import EPOCHS_PER_OPERATION
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers
from moorage.store.region.journal import Journal

logger = logging.getLogger(__name__)

WHY = "the region's database went back: this operation has gone further than its journal says"


class Continuation(StrEnum):
    GOES_ON = "goes_on"
    FORWARD = "forward"
    ENDED = "ended"
    STUCK = "stuck"


class CellsView(msgspec.Struct, frozen=True):
    """What the cells that answer know of the server."""

    in_cells: Mapping[CellId, KnownServer]
    named: CellId | None
    """The cell that the region names."""

    @property
    def record(self) -> KnownServer | None:
        """What the cell with the shown record knows; None: no cell has one, or it is not certain which."""
        having = {cell: each for cell, each in self.in_cells.items() if each.record is not None and not each.sealed}
        if self.named is not None and self.named in having:
            return having[self.named]
        return next(iter(having.values())) if len(having) == 1 else None

    @property
    def shown_in(self) -> CellId | None:
        return next((cell for cell, each in self.in_cells.items() if each is self.record), None)


def continuation(operation: Operation, saga: Saga[Any, Any], lines: tuple[Line, ...], view: CellsView) -> Continuation:
    """Decide how the operation goes on."""
    state = ReplayedState(saga, lines)
    if saga.forward_only or state.ended is not None or not is_behind(operation, state, view):
        return Continuation.GOES_ON
    record = view.record
    if operation.name == "boot" and (record is None or record.record is None or _is_being_built(record)):
        return Continuation.GOES_ON
    if operation.name == "boot":
        return Continuation.ENDED
    later = any(each.rank // EPOCHS_PER_OPERATION > operation.seq for each in view.in_cells.values())
    if not later and state.turn is None and _outcome_known(state):
        return Continuation.FORWARD
    return Continuation.ENDED if later or (record is not None and record.finished) else Continuation.STUCK


def is_behind(operation: Operation, state: ReplayedState, view: CellsView) -> bool:
    """Whether a cell was written by a later operation, by a later executor, or by a line that the journal does not cover."""
    own, last = operation.seq * EPOCHS_PER_OPERATION + operation.epoch, last_line(state)
    return any(
        each.rank > own or (each.rank // EPOCHS_PER_OPERATION == operation.seq and each.line > last)
        for each in view.in_cells.values()
    )


def _is_being_built(known: KnownServer) -> bool:
    return known.record is not None and known.record.vm_state is VmState.BUILDING


def _outcome_known(state: ReplayedState) -> bool:
    """Whether the point of no return is done, or may have been and can tell."""
    points = [each for each in state.saga.steps if each.point_of_no_return]
    return any(state.is_done(each.name) or (state.is_covered(each.name) and each.passed_when) for each in points)


async def compare(context: SagaContext, operation: Operation, saga: Saga[Any, Any], journal: Journal) -> bool:
    """Before an operation that was begun earlier goes on. Returns whether it may take nothing back.

    Raises Stuck when a person must decide, and EndedElsewhere when it was ended here. A cell that does not answer is not asked.
    """
    lines = tuple(journal.journal)
    view = await _read(context, operation)
    match continuation(operation, saga, lines, view):
        case Continuation.GOES_ON:
            return False
        case Continuation.FORWARD:
            logger.error("operation %s of server %s: %s; it only goes forward", operation.id, operation.server, WHY)
            return True
        case Continuation.ENDED:
            await _end(operation, journal, view)
            raise EndedElsewhere(operation.id)
        case Continuation.STUCK:
            raise await _stuck(operation, journal, lines)


class EndedElsewhere(Exception):
    """The operation had ended in its cell, and has ended here now."""


async def _read(context: SagaContext, operation: Operation) -> CellsView:
    server, request_id = ServerId(operation.server), operation.request_id or f"req-{operation.id}"
    where = await context.region.read(partial(region_servers.find, server=server))
    in_cells: dict[CellId, KnownServer] = {}
    for cell in context.cells.ids:
        try:
            in_cells[cell] = await context.cells[cell].read(
                partial(cell_identities.seen, server=server, request_id=request_id)
            )
        except Unavailable as out:
            logger.info("operation %s: what %s knows is not known: %s", operation.id, cell, out)
    return CellsView(in_cells, None if where is None else where.cell)


async def _end(operation: Operation, journal: Journal, view: CellsView) -> None:
    """End it as it ended there. Claims and ports that it held are left as they are: an audit compares them."""
    shown, server = view.shown_in, ServerId(operation.server)
    done = view.record is not None and not view.record.failed

    def work(tx: Tx) -> None:
        heir = region_servers.release(tx, server, operation.id, drop_order=shown is not None, recorded=0)
        if heir is not None:
            region_operations.let_begin(tx, heir)
        if shown is not None and shown != view.named:
            region_servers.recorded_in(tx, server, shown)

    logger.error("operation %s of server %s: %s; it is ended as it ended there", operation.id, server, WHY)
    await journal.append([Ended("done" if done else "unwound")], work, status="done" if done else "unwound")


async def _stuck(operation: Operation, journal: Journal, lines: tuple[Line, ...]) -> Stuck:
    problem = Doubtful(f"This is left alone until an administrator has decided: {WHY}.")
    last = lines[-1] if lines else None
    if not (isinstance(last, Stalled) and last.cause.code == problem.code):
        stalled = Stalled("", "adopt", Cause.of(problem, "", 0))
        await journal.append([stalled], lambda tx: None, status="stuck")
    logger.error("operation %s of server %s: %s", operation.id, operation.server, WHY)
    return Stuck("", problem)


__all__ = ["CellsView", "Continuation", "EndedElsewhere", "compare", "continuation", "is_behind"]
