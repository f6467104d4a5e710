"""The engine that executes sagas: `step`, `definition`, `journal` and `executor` are its main modules.

This package knows nothing of servers, HTTP or SQL: a transaction is opaque here, and the store of the journal
implements `Log`.  The rules of a step are in `step`; `executor` says why the execution is as it is.
"""

from moorage.saga.cancellation import Sleep
from moorage.saga.definition import CommitListener, Saga, first_lines
from moorage.saga.executor import execute
from moorage.saga.journal import (
    FIRST_EPOCH,
    Appended,
    Cause,
    CommitUnknown,
    Fenced,
    Line,
    Log,
    Slept,
    Status,
    Stuck,
    Unwound,
    decode_lines,
    encode_lines,
)
from moorage.saga.memory_journal import Killed, MemoryJournal, MemoryJournalTx
from moorage.saga.retry import CancelHint, RetryLimits, SagaClock
from moorage.saga.step import Run, Step, no_result, on_some_host, step

__all__ = [
    "FIRST_EPOCH",
    "Appended",
    "CancelHint",
    "Cause",
    "CommitListener",
    "CommitUnknown",
    "Fenced",
    "Killed",
    "Line",
    "Log",
    "MemoryJournal",
    "MemoryJournalTx",
    "RetryLimits",
    "Run",
    "Saga",
    "SagaClock",
    "Sleep",
    "Slept",
    "Status",
    "Step",
    "Stuck",
    "Unwound",
    "decode_lines",
    "encode_lines",
    "execute",
    "first_lines",
    "no_result",
    "on_some_host",
    "step",
]
