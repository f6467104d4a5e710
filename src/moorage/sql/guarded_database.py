"""A database that turned out to be another one is asked nothing more, until it is the right one again."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from moorage.model.errors import Unavailable

_examining: ContextVar[bool] = ContextVar("examining", default=False)


class Barrable(Protocol):
    """A database."""

    barred: str
    """Why nothing may be asked of it for now, as a sentence; empty: it may."""


@contextmanager
def examining() -> Iterator[None]:
    """Inside, a barred database answers: somebody looks whether it is the right one again."""
    before = _examining.set(True)
    try:
        yield
    finally:
        _examining.reset(before)


def check_barred(database: Barrable) -> None:
    """Raises Unavailable with the reason."""
    if database.barred and not _examining.get():
        raise Unavailable(database.barred)
