"""The subjects on which hosts of release 0.1.0 publish, and to which its conductors subscribe: they name no sender.

While the other side may be of that release, both sides use these subjects too (`bus/sender_checks.py`, `agent/outgoing.py`), so that
processes can be upgraded in any order.  Commands to hosts have the same subject in all releases.
"""

from moorage.bus.subjects import ROOT, token
from moorage.model.ids import CellId, ConductorId


def result_for(cell: CellId, conductor: ConductorId) -> str:
    return f"{ROOT}.cell.{token(cell)}.result.{token(conductor)}"


def results_for(conductor: ConductorId) -> str:
    return f"{ROOT}.cell.*.result.{token(conductor)}"


def of_cell(cell: CellId, kind: str) -> str:
    """Return the subject of `subjects.HEARTBEAT`, `REPORT` or `RETURNED` of all the cell's hosts."""
    return f"{ROOT}.cell.{token(cell)}.{kind}"


ALL_HEARTBEATS = f"{ROOT}.cell.*.heartbeat"
