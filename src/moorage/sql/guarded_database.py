"""A database that turned out to be another one is asked nothing more, until it is the right one again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from moorage.model.errors import Unavailable
from moorage.model.task_context import checking_database


class Barrable(Protocol):
    """A database."""

    barred: str
    """Why nothing may be asked of it for now, as a sentence; empty: it may."""


@contextmanager
def examining() -> Iterator[None]:
    """Inside, a barred database answers: somebody looks whether it is the right one again."""
    before = checking_database.set(True)
    try:
        yield
    finally:
        checking_database.reset(before)


def check_barred(database: Barrable) -> None:
    """Raises Unavailable with the reason."""
    if database.barred and not checking_database.get():
        raise Unavailable(database.barred)
