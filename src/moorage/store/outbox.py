"""An outbox: messages for others, written with the change that makes them true and kept until they are sent (RULES
§14).

The region and every cell may have one; they share this code, and each declares the table in its own MetaData. Rows are
sent in the order of their numbers. PostgreSQL may commit a lower number later; nothing is lost by that, because a row
is read whenever it appears, and changes of one server are made one after another.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.audit_event import Audited
from moorage.model.notification import Notification
from moorage.sql import Tx

_encode = msgspec.json.Encoder().encode


def outbox_columns() -> list[sa.Column[Any]]:
    """`doc` is the notification as JSON."""
    return [
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("doc", sa.Text, nullable=False),
    ]


class OutboxRow(msgspec.Struct, frozen=True):
    """One row; the sender decodes the document."""

    number: int
    created_at: int
    doc: bytes


class OutboxTable:
    """One outbox table."""

    def __init__(self, table: sa.Table) -> None:
        self.table = table
        self._insert = table.insert().inline()
        self._first = sa.select(table).order_by(table.c.number).limit(sa.bindparam("b_limit"))

    def write(self, tx: Tx, notifications: Sequence[Notification]) -> None:
        """Write the notifications of a transaction: one statement, or none."""
        if notifications:
            rows = [{"created_at": each.at, "doc": _encode(each).decode()} for each in notifications]
            tx.run(self._insert, rows)

    def write_audited(self, tx: Tx, events: Sequence[Audited]) -> None:
        """Write events of the audit log: they are sent like the others, in order."""
        if events:
            tx.run(self._insert, [{"created_at": each.at, "doc": _encode(each).decode()} for each in events])

    def first(self, tx: Tx, limit: int) -> Sequence[OutboxRow]:
        """The oldest rows, in order."""
        return [
            OutboxRow(row.number, row.created_at, row.doc.encode()) for row in tx.rows(self._first, {"b_limit": limit})
        ]

    def remove(self, tx: Tx, numbers: Sequence[int]) -> None:
        if numbers:
            tx.run(self.table.delete().where(self.table.c.number.in_(numbers)))

    def shorten(self, tx: Tx, *, before_us: int, most: int, limit: int) -> int:
        """Remove rows older than `before_us`, and the oldest ones beyond `most`: at most `limit` rows. Returns how
        many.
        """
        c = self.table.c
        newest = sa.select(sa.func.max(c.number)).scalar_subquery()
        too_old = sa.or_(c.created_at < before_us, c.number <= newest - most)
        chosen = sa.select(c.number).where(too_old).order_by(c.number).limit(limit).scalar_subquery()
        return len(tx.rows(self.table.delete().where(c.number.in_(chosen)).returning(c.number)))

    def count(self, tx: Tx) -> int:
        return int(tx.scalar(sa.select(sa.func.count()).select_from(self.table)))
