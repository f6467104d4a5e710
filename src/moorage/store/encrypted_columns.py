"""Texts that may hold secrets of users, read and exchanged one by one: for whoever encrypts them with another key.

An exchange is guarded by the text itself, so that it takes nothing from anybody who writes meanwhile: what was changed since it was
read stays as it is, and is found by the next pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from moorage.sql import Tx


@dataclass(frozen=True)
class Place:
    """A column of texts, and the columns that tell its rows apart."""

    column: sa.Column[str]
    keys: tuple[sa.Column[object], ...]

    @property
    def name(self) -> str:
        return f"{self.column.table.name}.{self.column.name}"


@dataclass(frozen=True)
class Text:
    """One row's."""

    at: tuple[object, ...]
    text: str


def page(tx: Tx, place: Place, after: tuple[object, ...] | None, limit: int) -> Sequence[Text]:
    """The next rows that have a text, in the order of their keys."""
    found = sa.select(*place.keys, place.column).where(place.column.is_not(None))
    if after is not None:
        found = found.where(sa.tuple_(*place.keys) > sa.tuple_(*(sa.literal(each) for each in after)))
    rows = tx.rows(found.order_by(*place.keys).limit(limit))
    return [Text(tuple(row[:-1]), row[-1]) for row in rows]


def exchange(tx: Tx, place: Place, was: Text, becomes: str) -> bool:
    """False when the text is another one by now."""
    table = place.column.table
    same = [key == value for key, value in zip(place.keys, was.at, strict=True)]
    changed = sa.update(table).where(*same, place.column == was.text).values({place.column: becomes})
    return tx.row(changed.returning(place.keys[0])) is not None
