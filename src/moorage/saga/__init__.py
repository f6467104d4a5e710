"""The engine that tells sagas: `step` is the grammar, `story` the whole, `log` what is remembered, `run` the telling.

This room knows nothing of servers, of HTTP or of SQL: a transaction is opaque here, and whoever keeps the journal
implements `Log`.  The rules a step lives by are in `step`; why the telling is as it is, in `run`.
"""

from moorage.saga.log import (
    FIRST_EPOCH,
    Appended,
    Cause,
    Fenced,
    Line,
    Log,
    Status,
    Stuck,
    Torn,
    Unwound,
    decode_lines,
    encode_lines,
)
from moorage.saga.pace import CancelHint, Clock, Limits
from moorage.saga.paper import Killed, Paper, PaperTx
from moorage.saga.run import tell
from moorage.saga.step import Run, Step, on_some_host, step
from moorage.saga.story import Herald, Saga, first_lines

__all__ = [
    "FIRST_EPOCH",
    "Appended",
    "CancelHint",
    "Cause",
    "Clock",
    "Fenced",
    "Herald",
    "Killed",
    "Limits",
    "Line",
    "Log",
    "Paper",
    "PaperTx",
    "Run",
    "Saga",
    "Status",
    "Step",
    "Stuck",
    "Torn",
    "Unwound",
    "decode_lines",
    "encode_lines",
    "first_lines",
    "on_some_host",
    "step",
    "tell",
]
