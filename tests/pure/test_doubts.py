"""Numbers of one server are compared in both directions; in a history in which no store goes back nothing is doubtful (RULES §26)."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from moorage.conductor.stale_journals import CellsView, Continuation, continuation
from moorage.model.ids import CellId, ConductorId, OperationId, ServerId
from moorage.model.operation import Operation, OperationStatus
from moorage.model.server import VmState
from moorage.operations.registry import SAGAS
from moorage.saga import first_lines
from moorage.saga.journal import Intent, Line, StepResult
from moorage.saga.state import ReplayedState, last_line, line_of
from moorage.store.cell.identity import KnownServer
from moorage.store.doubts import EPOCHS_PER_OPERATION, Doubt, doubt_of
from moorage_testing.region_fixture import a_server

CELL = CellId("cell1")
SEQ = 3


class Numbers(msgspec.Struct, frozen=True):
    """The region's."""

    op_seq: int = 0
    recorded_seq: int = 0


class Stores(msgspec.Struct, frozen=True):
    """A region and a cell, at one moment; `writes`: whether an operation of that number wrote the record."""

    region: Numbers = Numbers()
    seq: int = 0
    under_way: bool = False
    """The record shows the task of an operation that is to write it again."""


def history(ends: list[tuple[bool, bool]]) -> list[Stores]:
    """All moments of a life; each operation (whether it writes, whether it is undone) is accepted, may write twice, and ends."""
    now, moments = Stores(), [Stores()]
    for writes, undone in ends:
        now = Stores(Numbers(now.region.op_seq + 1, now.region.recorded_seq), now.seq)
        moments.append(now)
        if writes:
            moments.append(Stores(now.region, now.region.op_seq, under_way=True))
            now = Stores(now.region, now.region.op_seq)
            moments.append(now)
        if writes and not undone:
            now = Stores(Numbers(now.region.op_seq, now.region.op_seq), now.seq)
            moments.append(now)
    return moments


LIVES = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12)


@given(LIVES)
def test_nothing_is_doubtful_while_no_store_goes_back(ends: list[tuple[bool, bool]]) -> None:
    assert all(doubt_of(each.seq, each.region, under_way=each.under_way) is None for each in history(ends))


@given(LIVES, st.data())
def test_a_cell_or_a_region_that_goes_back_is_noticed(ends: list[tuple[bool, bool]], data: Any) -> None:
    """The oracle: the record is from before the last write of an operation that has ended, or of one that the region does not know."""
    moments = history(ends)
    cell, region = data.draw(st.sampled_from(moments)), data.draw(st.sampled_from(moments))
    found = doubt_of(cell.seq, region.region, under_way=cell.under_way)
    shows = cell.seq - cell.under_way
    assert (found is Doubt.RECORD_OLDER) == (shows < region.region.recorded_seq)
    assert (found is Doubt.REGION_OLDER) == (cell.seq > region.region.op_seq)


def shelving(lines: list[Line], epoch: int = 1) -> tuple[Operation, tuple[Line, ...]]:
    operation = Operation(
        id=OperationId("o"),
        saga="shelve/1",
        server=ServerId("s"),
        project="p",
        user="u",
        owner=ConductorId("c"),
        status=OperationStatus.OPEN,
        epoch=epoch,
        head=1,
        created_at=1,
        updated_at=1,
        seq=SEQ,
    )
    return operation, tuple(lines)


def known(line: int, *, epoch: int = 1, seq: int = SEQ, finished: bool = False) -> CellsView:
    record = a_server(cell=CELL, vm_state=VmState.ACTIVE)
    return CellsView(
        {CELL: KnownServer(record, seq * EPOCHS_PER_OPERATION + epoch, finished, failed=False, line=line)}, CELL
    )


def test_what_a_journal_covers_is_no_reason_to_doubt_it() -> None:
    """An executor that died before it could say what it did: the usual adoption."""
    saga = SAGAS["shelve/1"]
    operation, lines = shelving(first_lines(saga))
    covered = saga.covered_from(0)
    for name in covered:
        view = known(line_of(saga, saga.at[name], "do", 0), finished=True)
        assert continuation(operation, saga, lines, view) is Continuation.GOES_ON


def test_a_write_behind_the_journals_end_ends_what_has_ended() -> None:
    saga = SAGAS["shelve/1"]
    operation, lines = shelving(first_lines(saga))
    line = line_of(saga, saga.at["record_shelved"], "do", 0)
    assert line > last_line(ReplayedState(saga, lines))
    assert continuation(operation, saga, lines, known(line, finished=True)) is Continuation.ENDED
    assert continuation(operation, saga, lines, known(line)) is Continuation.STUCK
    assert continuation(operation, saga, lines, known(1, epoch=2)) is Continuation.STUCK, "a later executor"
    assert continuation(operation, saga, lines, known(1, seq=SEQ + 1)) is Continuation.ENDED, "a later operation"
    assert continuation(operation, saga, lines, known(line, seq=SEQ - 1)) is Continuation.GOES_ON


def test_a_point_of_no_return_that_can_be_asked_is_asked() -> None:
    saga = SAGAS["live_migrate/1"]
    operation, _ = shelving([])
    lines = (*first_lines(saga), Intent(("switch_guest",), 1), StepResult("claim_host", 1))
    line = line_of(saga, saga.at["record_moved"], "do", 1)
    assert continuation(operation, saga, lines, known(line, finished=True)) is Continuation.FORWARD
