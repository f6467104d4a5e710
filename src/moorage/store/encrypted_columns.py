"""Reads and replaces texts that may hold secrets of users, one by one: to encrypt them with another key.

A text is replaced only if it is unchanged, so the write of another process is never lost: a text that changed since it
was read stays, and the next pass finds it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from moorage.sql import Tx


@dataclass(frozen=True)
class EncryptedColumn:
    """A column of texts, and its table's key columns."""

    column: sa.Column[str]
    keys: tuple[sa.Column[object], ...]

    @property
    def name(self) -> str:
        return f"{self.column.table.name}.{self.column.name}"


@dataclass(frozen=True)
class Text:
    """The text of one row."""

    at: tuple[object, ...]
    text: str


def page(tx: Tx, place: EncryptedColumn, after: tuple[object, ...] | None, limit: int) -> Sequence[Text]:
    """The next rows that have a text, in the order of their keys."""
    query = sa.select(*place.keys, place.column).where(place.column.is_not(None))
    if after is not None:
        query = query.where(sa.tuple_(*place.keys) > sa.tuple_(*(sa.literal(each) for each in after)))
    rows = tx.rows(query.order_by(*place.keys).limit(limit))
    return [Text(tuple(row[:-1]), row[-1]) for row in rows]


def exchange(tx: Tx, place: EncryptedColumn, old: Text, becomes: str) -> bool:
    """Replace the text. Returns False when it has changed meanwhile."""
    table = place.column.table
    same = [key == value for key, value in zip(place.keys, old.at, strict=True)]
    changed = sa.update(table).where(*same, place.column == old.text).values({place.column: becomes})
    return tx.row(changed.returning(place.keys[0])) is not None
