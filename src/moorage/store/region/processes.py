"""The running processes and their releases, as each reports them; for operators who upgrade (N14).

A process whose row is late or missing works like any other. The rows decide only whether a move across cells may begin
(`operations/steps/other_cells.py`).
"""

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from moorage.sql import Tx, upsert
from moorage.store.region.conductors import clock
from moorage.store.region.tables import region_metadata

FORGET_AFTER_S = 3_600.0
LISTED_MAX = 1_000

processes = sa.Table(
    "processes",
    region_metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("release", sa.String(64), nullable=False),
    sa.Column("alive_until", sa.Float, nullable=False),
)


class ProcessRecord(msgspec.Struct, frozen=True):
    """One running process, as it reports itself."""

    id: str
    role: str
    """`api`, `conductor`, or `up` for all roles in one process."""
    host: str
    """The machine."""
    release: str


def report(tx: Tx, process: ProcessRecord, for_s: float) -> None:
    """The process runs; the row is valid for `for_s` seconds."""
    row = {**msgspec.to_builtins(process), "alive_until": clock(tx) + for_s}
    tx.run(upsert(tx.dialect, processes, row, key=("id",)))


def leave(tx: Tx, process: str) -> None:
    """The process has ended."""
    tx.run(sa.delete(processes).where(processes.c.id == process))


def forget(tx: Tx) -> None:
    """Remove processes that have not reported for an hour: they were killed."""
    tx.run(sa.delete(processes).where(processes.c.alive_until < clock(tx) - FORGET_AFTER_S))


def living(tx: Tx) -> Sequence[ProcessRecord]:
    """Processes whose rows are valid, by role."""
    rows = tx.rows(
        sa.select(processes)
        .where(processes.c.alive_until > clock(tx))
        .order_by(processes.c.role, processes.c.id)
        .limit(LISTED_MAX)
    )
    return [ProcessRecord(row.id, row.role, row.host, row.release) for row in rows]
