"""Bars a database that turned out to be another one from use, until it is the right one again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from moorage.model.errors import Unavailable
from moorage.model.task_context import checking_database


class Barrable(Protocol):
    """A database that can be barred."""

    barred: str
    """Why the database must not be used at present, as a sentence; empty: it may be used."""


@contextmanager
def examining() -> Iterator[None]:
    """Let a barred database answer within the block, to check whether it is the right one again."""
    before = checking_database.set(True)
    try:
        yield
    finally:
        checking_database.reset(before)


def check_barred(database: Barrable) -> None:
    """Check that the database is not barred. Raises Unavailable with the reason when it is."""
    if database.barred and not checking_database.get():
        raise Unavailable(database.barred)
