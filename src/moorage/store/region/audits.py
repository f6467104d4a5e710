"""Audits that were requested, their findings, and the journal of repairs."""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.audit import Audit, AuditReport, AuditRequest, AuditStatus, Repair
from moorage.sql import Tx
from moorage.store.region.tables import region_metadata

KEPT_MAX = 100
REPAIRS_KEPT_MAX = 100_000

audits = sa.Table(
    "audits",
    region_metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("asked_at", sa.BigInteger, nullable=False),
    sa.Column("asked_by", sa.String(255), nullable=False),
    sa.Column("asked", sa.Text, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("began_at", sa.BigInteger),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("why", sa.Text, nullable=False, server_default=""),
    sa.Column("report", sa.Text),
    sa.Index("audits_by_time", "asked_at"),
    sa.Index(
        "audits_open",
        "asked_at",
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    ),
)

audit_repairs = sa.Table(
    "audit_repairs",
    region_metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("audit", sa.String(36), nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("by", sa.String(255), nullable=False),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("what", sa.String(255), nullable=False),
    sa.Column("where", sa.String(255), nullable=False),
    sa.Column("server", sa.String(36), nullable=False),
    sa.Column("was", sa.Text, nullable=False),
    sa.Column("done", sa.Text, nullable=False),
    sa.Index("audit_repairs_of_audit", "audit"),
)

_request_decoder = msgspec.json.Decoder(AuditRequest)
_report = msgspec.json.Decoder(AuditReport)
_OPEN = sa.select(audits).where(audits.c.ended_at.is_(None)).order_by(audits.c.asked_at, audits.c.id).limit(10)
_SAID = ("audit", "at", "by", "kind", "what", "where", "server", "was", "done")


def ask(tx: Tx, id: str, by: str, request: AuditRequest, now_us: int) -> None:
    """Store a request for an audit; the leading conductor executes it."""
    row = {"id": id, "asked_at": now_us, "asked_by": by, "asked": msgspec.json.encode(request).decode()}
    tx.run(audits.insert().values(**row, status=AuditStatus.WAITING.value, why=""))


def open_ones(tx: Tx) -> Sequence[Audit]:
    """Audits that have not ended, oldest first."""
    return [_audit(row) for row in tx.rows(_OPEN)]


def begin(tx: Tx, id: str, now_us: int) -> int | None:
    """Mark the audit as running; return its start time, which identifies this run. None: it has ended meanwhile.

    An audit that began before begins again: the leader executes them one after the other, so the earlier process has
    died, or no longer leads.
    """
    c = audits.c
    row = tx.row(
        audits.update()
        .where(c.id == id, c.ended_at.is_(None))
        .values(
            began_at=sa.case((c.began_at >= now_us, c.began_at + 1), else_=now_us), status=AuditStatus.RUNNING.value
        )
        .returning(c.began_at)
    )
    return None if row is None else int(row.began_at)


def is_mine(tx: Tx, id: str, began_at: int) -> bool:
    """Whether it has neither ended nor begun again since this run began."""
    c = audits.c
    query = sa.select(c.id).where(c.id == id, c.ended_at.is_(None), c.began_at == began_at)
    return tx.row(query) is not None


def end(tx: Tx, id: str, began_at: int, report: AuditReport, now_us: int, why: str = "") -> None:
    """Write the findings, if it is still the same run, and remove the oldest audits."""
    status = AuditStatus.FAILED if why else AuditStatus.DONE
    values = {"ended_at": now_us, "status": status.value, "why": why, "report": msgspec.json.encode(report).decode()}
    mine = (audits.c.id == id, audits.c.ended_at.is_(None), audits.c.began_at == began_at)
    tx.run(audits.update().where(*mine).values(values))
    order = sa.select(audits.c.asked_at).order_by(audits.c.asked_at.desc()).offset(KEPT_MAX).limit(1).scalar_subquery()
    tx.run(audits.delete().where(audits.c.asked_at <= order, audits.c.ended_at.is_not(None)))


def get(tx: Tx, id: str) -> Audit | None:
    row = tx.row(sa.select(audits).where(audits.c.id == id))
    return None if row is None else _audit(row)


def listed(tx: Tx, limit: int) -> Sequence[Audit]:
    """Newest first."""
    return [
        _audit(row) for row in tx.rows(sa.select(audits).order_by(audits.c.asked_at.desc(), audits.c.id).limit(limit))
    ]


def last_of(tx: Tx, by: str) -> int | None:
    """When this user last requested one."""
    latest: int | None = tx.scalar(sa.select(sa.func.max(audits.c.asked_at)).where(audits.c.asked_by == by))
    return latest


def note(tx: Tx, line: Repair) -> int:
    """Append a line to the journal, and return its number; the oldest lines are removed when there are too many."""
    values = {name: getattr(line, name) for name in _SAID}
    number = int(tx.scalar(audit_repairs.insert().values(values).returning(audit_repairs.c.number)) or 0)
    tx.run(audit_repairs.delete().where(audit_repairs.c.number <= number - REPAIRS_KEPT_MAX))
    return number


def note_done(tx: Tx, number: int, done: str) -> None:
    """Write the result of a repair."""
    tx.run(audit_repairs.update().where(audit_repairs.c.number == number).values(done=done))


def repairs_of(tx: Tx, audit: str, limit: int = 1_000) -> Sequence[Repair]:
    """The repairs of one audit, in order."""
    c = audit_repairs.c
    rows = tx.rows(sa.select(audit_repairs).where(c.audit == audit).order_by(c.number).limit(limit))
    return [Repair(*(getattr(row, name) for name in _SAID)) for row in rows]


def _audit(row: Any) -> Audit:
    return Audit(
        row.id,
        row.asked_at,
        row.asked_by,
        _request_decoder.decode(row.asked),
        AuditStatus(row.status),
        row.began_at,
        row.ended_at,
        row.why,
        AuditReport() if row.report is None else _report.decode(row.report),
    )
