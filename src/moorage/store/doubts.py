"""Compares the numbers that a region, a cell and a host have of one server (RULES §26). Who is behind judges nothing.

    op_seq         region   the last operation that was accepted
    recorded_seq   region   the newest operation that the record, or a host, is known to have seen end
    seq            cell     the operation that last wrote the record; it is the upper part of the row's `op_epoch`
    turn           host     the operation of the last command that the host obeyed
    task           cell     an operation that writes the record more than once leaves its task in it until its last write

An operation is accepted in the region before it writes anywhere, and its end is committed in the region after its last write in the
cell. So, in a cloud in which no store has gone back, `recorded_seq <= seq <= op_seq` and `turn <= op_seq` hold whenever the region is
read before the cell for the first comparison, and after the cell and the host for the other two; and a record of `recorded_seq`
shows no task.
"""

from enum import StrEnum
from typing import Protocol

EPOCHS_PER_OPERATION = 1 << 20


class Doubt(StrEnum):
    """Which store is behind."""

    RECORD_OLDER = "record_older"
    """The record is from before an operation that has ended: the cell's database went back."""
    REGION_OLDER = "region_older"
    """The record was written by an operation that the region does not know: the region's database went back."""

    @property
    def why(self) -> str:
        """In a sentence for operators and owners."""
        return _WHY[self]


_WHY = {
    Doubt.RECORD_OLDER: "its record is older than its last operation",
    Doubt.REGION_OLDER: "its record is newer than what is known of its operations",
}


class RegionNumbers(Protocol):
    """The region's numbers of one server."""

    @property
    def op_seq(self) -> int: ...
    @property
    def recorded_seq(self) -> int: ...


class Ranked(Protocol):
    """A record with the rank of its last writer."""

    @property
    def op_epoch(self) -> int: ...


class Recorded(Ranked, Protocol):
    """A whole record."""

    @property
    def task_state(self) -> object | None: ...


def seq_of(record: Ranked) -> int:
    """The operation that last wrote the record."""
    return record.op_epoch // EPOCHS_PER_OPERATION


def doubt_about(record: Recorded, where: RegionNumbers) -> Doubt | None:
    """`doubt_of` for a whole record."""
    return doubt_of(seq_of(record), where, under_way=record.task_state is not None)


def doubt_of(seq: int, where: RegionNumbers, *, under_way: bool) -> Doubt | None:
    """Compare the number of a record with the region's; None: they agree. `under_way`: the record shows a task."""
    if seq < where.recorded_seq or (under_way and seq == where.recorded_seq):
        return Doubt.RECORD_OLDER
    return Doubt.REGION_OLDER if seq > where.op_seq else None
