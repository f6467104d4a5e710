"""The few statements that differ between SQLite and PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from moorage.sql.tx import Tx


def insert(dialect: str, table: sa.Table) -> "sqlite.Insert | postgresql.Insert":
    """Return an INSERT with ON CONFLICT for this dialect."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


def upsert(
    dialect: str,
    table: sa.Table,
    rows: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    key: Sequence[str],
    change: Sequence[str] | None = None,
) -> "sqlite.Insert | postgresql.Insert":
    """Insert; if `key` exists already, set the columns of `change` (None: all given ones; empty: do not change the row)."""
    statement = insert(dialect, table).values(rows)
    if change is None:
        first = rows if isinstance(rows, Mapping) else rows[0]
        change = [column for column in first if column not in key]
    if not change:
        return statement.on_conflict_do_nothing(index_elements=list(key))
    return statement.on_conflict_do_update(
        index_elements=list(key), set_={column: sa.literal_column(f'excluded."{column}"') for column in change}
    )


def alone(tx: Tx, what: str) -> None:
    """Let only one transaction at a time continue after this line with the same `what`, for "count, then insert".

    SQLite has one writer anyway.  On PostgreSQL this is an advisory lock.
    """
    if tx.dialect == "postgresql":
        tx.row(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(what, 0))))
