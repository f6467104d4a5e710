"""The subjects of what hosts of release 0.1.0 say, and of what its conductors hear: they name no sender.

Both sides speak and hear these too while the other may be of that release (`senders`, `agent/outgoing`), so that processes are
exchanged in any order.  Commands to hosts have had one subject ever since.
"""

from moorage.bus.subjects import ROOT, token
from moorage.model.ids import CellId, ConductorId


def result_for(cell: CellId, conductor: ConductorId) -> str:
    return f"{ROOT}.cell.{token(cell)}.result.{token(conductor)}"


def results_for(conductor: ConductorId) -> str:
    return f"{ROOT}.cell.*.result.{token(conductor)}"


def of_cell(cell: CellId, kind: str) -> str:
    """`subjects.HEARTBEAT`, `REPORT` or `RETURNED` of all its hosts."""
    return f"{ROOT}.cell.{token(cell)}.{kind}"


ALL_HEARTBEATS = f"{ROOT}.cell.*.heartbeat"
