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
        """A commit that several transactions share counts once, under the name of one of them."""
        self.shared: Counter[tuple[str, str]] = Counter()
        """Transactions that were committed in the commit of another one, under their own names."""

    def reset(self) -> None:
        self.statements.clear()
        self.commits.clear()
        self.shared.clear()

    def has_committed(self, name: str) -> bool:
        """Whether a transaction of this name was committed, in a commit of its own or in one that it shared."""
        return any(label == name for _, label in (*self.commits, *self.shared))
