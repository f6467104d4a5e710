"""The steps of one operation in order, and their results, without the data that the journal holds.

Owners may read it: it has only names of steps, numbers of attempts and public sentences.
"""

from collections.abc import Callable, Sequence
from typing import Any

from moorage.saga import Line
from moorage.saga.journal import Failed, Intent, Stalled, StepResult, Undone, Unwinding, Waiting

BEGUN, DONE, FAILED, UNDONE, WAITING, STUCK = "begun", "done", "failed", "undone", "waiting", "stuck"
STEPS_MAX = 500
"""Of one operation; the newest are returned."""


def timeline(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """One row for each step of each attempt, and for each undo: `step`, `attempt`, `state`, `undo`, and a sentence
    where there is one.
    """
    rows: list[dict[str, Any]] = []
    open_rows: dict[tuple[str, int, bool], dict[str, Any]] = {}

    def row(step: str, attempt: int, *, undo: bool = False) -> dict[str, Any]:
        key = step, attempt, undo
        if key not in open_rows:
            open_rows[key] = {"step": step, "attempt": attempt, "state": BEGUN, "undo": undo, "message": None}
            rows.append(open_rows[key])
        return open_rows[key]

    for line in lines:
        if isinstance(line, Intent):
            for step in line.steps:
                row(step, line.attempt)
        elif isinstance(line, StepResult):
            _latest(rows, line.step, row, line.attempt).update(state=DONE, message=None)
        elif isinstance(line, Failed | Unwinding):
            _unwound(line, row)
            _drop_unbegun(rows, open_rows)
            for each in reversed(line.open):
                row(each.step, each.attempt, undo=True)
        elif isinstance(line, Undone):
            row(line.step, line.attempt, undo=True).update(state=UNDONE, message=None)
        elif isinstance(line, Waiting):
            _latest(rows, line.step, row, line.attempt).update(state=WAITING, message=line.public)
        elif isinstance(line, Stalled):
            _latest(rows, line.step, row, 0).update(state=STUCK, message=line.cause.public)
    return rows[-STEPS_MAX:]


def _unwound(line: Failed | Unwinding, row: Any) -> None:
    cause = line.cause
    if cause.step:
        state = FAILED if isinstance(line, Failed) or line.reason == "failed" else "cancelled"
        row(cause.step, cause.attempt).update(state=state, message=cause.public)


def _drop_unbegun(rows: list[dict[str, Any]], open_rows: dict[tuple[str, int, bool], dict[str, Any]]) -> None:
    """An intent covers steps that never began when an earlier one of them failed."""
    for each in [one for one in rows if one["state"] == BEGUN and not one["undo"]]:
        rows.remove(each)
        del open_rows[each["step"], each["attempt"], False]


def _latest(
    rows: list[dict[str, Any]], step: str, row: Callable[[str, int], dict[str, Any]], attempt: int
) -> dict[str, Any]:
    """The unfinished row of that step: its undo if it is being undone. An intent may have another attempt's number than
    the result.
    """
    going_on = (each for each in reversed(rows) if each["step"] == step and each["state"] in {BEGUN, WAITING, STUCK})
    latest = next(going_on, None)
    return row(step, attempt) if latest is None else latest
