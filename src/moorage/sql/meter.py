"""Counts statements and commits, by database and by the step that caused them (RULES §2, P1).

BEGIN, COMMIT and SAVEPOINT are not statements; a commit counts when the transaction wrote.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from moorage.model.task_context import sql_label


@contextmanager
def label(name: str) -> Iterator[None]:
    """Count all SQL that runs within the block (also in another thread on behalf of this task) under `name`."""
    token = sql_label.set(name)
    try:
        yield
    finally:
        sql_label.reset(token)


def current_label() -> str:
    return sql_label.get()


class Meter:
    """The totals of one process: (database, label) → count."""

    def __init__(self) -> None:
        self.statements: Counter[tuple[str, str]] = Counter()
        self.commits: Counter[tuple[str, str]] = Counter()

    def reset(self) -> None:
        self.statements.clear()
        self.commits.clear()
