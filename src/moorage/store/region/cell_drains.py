"""Drains of cells, and their progress. A writer names the version that it has read."""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.cell_drain import CellDrain, CellDrainRequest, HostPart, RecordRow
from moorage.model.drain import DrainStatus
from moorage.model.errors import Conflict
from moorage.sql import Tx
from moorage.sql.dialect import insert
from moorage.store.region.tables import region_metadata

KEPT_MAX = 100
OPEN_MAX = 10
"""How many cells may be drained at once."""

cell_drains = sa.Table(
    "cell_drains",
    region_metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("cell", sa.String(64), nullable=False),
    sa.Column("asked_at", sa.BigInteger, nullable=False),
    sa.Column("asked_by", sa.String(255), nullable=False),
    sa.Column("project", sa.String(255), nullable=False),
    sa.Column("asked", sa.Text, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("began_at", sa.BigInteger),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("cancel", sa.Boolean, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("hosts", sa.Text, nullable=False),
    sa.Column("records", sa.Text, nullable=False),
    sa.Column("records_gone", sa.BigInteger, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Index("cell_drains_by_time", "asked_at"),
    sa.Index(
        "cell_drains_open_by_cell",
        "cell",
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    ),
)

_request_decoder = msgspec.json.Decoder(CellDrainRequest)
_hosts = msgspec.json.Decoder(tuple[HostPart, ...])
_records = msgspec.json.Decoder(tuple[RecordRow, ...])
_OPEN = (
    sa.select(cell_drains)
    .where(cell_drains.c.ended_at.is_(None))
    .order_by(cell_drains.c.asked_at, cell_drains.c.id)
    .limit(OPEN_MAX)
)


def ask(tx: Tx, new: CellDrain) -> Conflict | None:
    """Store a request to drain a cell; the leading conductor executes it. Returns the refusal when the cell is being
    drained already, or too many are.
    """
    c = cell_drains.c
    values = {"id": new.id, "cell": new.cell, "asked_at": new.asked_at, "asked_by": new.asked_by}
    values |= {"project": new.project, "asked": msgspec.json.encode(new.asked).decode()}
    wanted = insert(tx.dialect, cell_drains).values(**values, **_moving(new), cancel=False, version=0)
    if tx.row(wanted.on_conflict_do_nothing().returning(c.id)) is None:
        other = tx.scalar(sa.select(c.id).where(c.cell == new.cell, c.ended_at.is_(None)))
        return Conflict(f"Cell {new.cell} is being emptied already, by drain {other or 'another'}.")
    if (tx.scalar(sa.select(sa.func.count()).where(c.ended_at.is_(None))) or 0) > OPEN_MAX:
        tx.run(cell_drains.delete().where(c.id == new.id))
        return Conflict(f"{OPEN_MAX} cells are being emptied already; at most so many are at once.")
    return None


def open_ones(tx: Tx) -> Sequence[CellDrain]:
    """Drains that have not ended, oldest first."""
    return [_drain(row) for row in tx.rows(_OPEN)]


def write(tx: Tx, now: CellDrain) -> bool:
    """Write the drain; when it has ended, also remove the oldest ended ones. Returns False when another process has
    written it since it was read.
    """
    c = cell_drains.c
    changed = tx.row(
        cell_drains.update()
        .where(c.id == now.id, c.version == now.version, c.ended_at.is_(None))
        .values(**_moving(now), version=now.version + 1)
        .returning(c.id)
    )
    if changed is not None and now.ended_at is not None:
        order = sa.select(c.asked_at).order_by(c.asked_at.desc()).offset(KEPT_MAX).limit(1).scalar_subquery()
        tx.run(cell_drains.delete().where(c.asked_at <= order, c.ended_at.is_not(None)))
    return changed is not None


def cancel(tx: Tx, id: str) -> bool:
    """Cancel the drain: nothing more is begun. Returns False when there is none, or it has ended."""
    c = cell_drains.c
    row = tx.row(
        cell_drains.update()
        .where(c.id == id, c.ended_at.is_(None))
        .values(cancel=True, version=c.version + 1)
        .returning(c.id)
    )
    return row is not None


def get(tx: Tx, id: str) -> CellDrain | None:
    row = tx.row(sa.select(cell_drains).where(cell_drains.c.id == id))
    return None if row is None else _drain(row)


def listed(tx: Tx, cell: str | None, limit: int) -> Sequence[CellDrain]:
    """Newest first."""
    wanted = sa.select(cell_drains).order_by(cell_drains.c.asked_at.desc(), cell_drains.c.id).limit(limit)
    return [_drain(row) for row in tx.rows(wanted if cell is None else wanted.where(cell_drains.c.cell == cell))]


def _moving(drain: CellDrain) -> dict[str, Any]:
    return {
        "status": drain.status.value,
        "began_at": drain.began_at,
        "ended_at": drain.ended_at,
        "why": drain.why,
        "hosts": msgspec.json.encode(drain.hosts).decode(),
        "records": msgspec.json.encode(drain.records).decode(),
        "records_gone": drain.records_gone,
    }


def _drain(row: Any) -> CellDrain:
    return CellDrain(
        id=row.id,
        cell=row.cell,
        asked_at=row.asked_at,
        asked_by=row.asked_by,
        project=row.project,
        asked=_request_decoder.decode(row.asked),
        status=DrainStatus(row.status),
        hosts=_hosts.decode(row.hosts),
        records=_records.decode(row.records),
        records_gone=row.records_gone,
        began_at=row.began_at,
        ended_at=row.ended_at,
        cancel=bool(row.cancel),
        why=row.why,
        version=row.version,
    )
