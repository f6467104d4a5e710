"""One open transaction, as functions of `store` use it."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from moorage.model.errors import Internal
from moorage.sql.meter import Meter, current_label
from moorage.sql.prepared import PreparedStatement, prepared_of
from moorage.sql.raw_statement import RawStatement

T = TypeVar("T")
Params: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


class TransactionRefused(Exception):
    """Raised by `tx.refuse`; it never leaves this package."""

    def __init__(self, value: object) -> None:
        super().__init__("refused")
        self.value = value


class LostRace(Exception):
    """Raised by `tx.lost`; it never leaves this package."""


class Tx:
    """One open transaction. Statements are SQLAlchemy Core constructs; `RawStatement` is for the busiest."""

    def __init__(
        self,
        connection: Connection,
        meter: Meter,
        name: str,
        dialect: str,
        raw: sqlite3.Connection | None = None,
    ) -> None:
        self._connection = connection
        self._meter = meter
        self._name = name
        self._raw = raw
        self.dialect = dialect
        """`sqlite` or `postgresql`."""
        self.wrote = False

    def _execute(self, statement: sa.Executable, parameters: Params) -> sa.CursorResult[Any]:
        self._meter.statements[self._name, current_label()] += 1
        if not isinstance(statement, sa.Select | sa.CompoundSelect):
            self.wrote = True
        return cast("sa.CursorResult[Any]", self._connection.execute(statement, parameters))

    def found(self, statement: RawStatement, parameters: Mapping[str, Any]) -> Sequence[Any]:
        """Return every row of a statement in the database's own dialect, as plain tuples.

        On SQLite the driver's own errors are not translated: such statements violate no constraint.
        """
        self._meter.statements[self._name, current_label()] += 1
        self.wrote |= statement.writes
        if self._raw is not None:
            return self._raw.execute(statement.sqlite, parameters).fetchall()
        return self._connection.exec_driver_sql(statement.numbered, statement.values(parameters)).fetchall()

    def each(self, statement: RawStatement, rows: Sequence[Sequence[Any]]) -> int:
        """Run one statement of SQLite for every row of parameters, and return how many rows it changed. (PostgreSQL is
        given arrays.)

        Raises Internal on PostgreSQL.
        """
        if self._raw is None:
            raise Internal("this statement is for SQLite alone")
        self._meter.statements[self._name, current_label()] += 1
        self.wrote |= statement.writes
        return self._raw.executemany(statement.sqlite, rows).rowcount

    def _prepared(
        self, prepared: PreparedStatement, parameters: Params, raw: sqlite3.Connection, *, wants_rows: bool = True
    ) -> list[Any] | None:
        """Its rows; None: SQLAlchemy must execute it."""
        if type(parameters) is dict or isinstance(parameters, Mapping):  # to ask an abstract class takes longer
            one: Mapping[str, Any] | None = parameters
        elif parameters is None or len(parameters) == 1:
            one = parameters[0] if parameters else {}
        elif not parameters or (wants_rows and prepared.returns):  # without a set of values SQLAlchemy executes it once
            return None
        else:
            one = None
        self._meter.statements[self._name, current_label()] += 1
        if not prepared.reads:
            self.wrote = True
        if one is not None:
            return prepared.run(raw, self._connection.dialect, one)
        prepared.run_each(raw, self._connection.dialect, cast("Sequence[Mapping[str, Any]]", parameters))
        return []

    def rows(self, statement: sa.Executable, parameters: Params = None) -> Sequence[Any]:
        """Return every row; row counts come from here (`RETURNING`), never from `rowcount`."""
        if self._raw is not None and (prepared := prepared_of(statement)) is not None:
            rows = self._prepared(prepared, parameters, self._raw)
            if rows is not None:
                return rows
        return self._execute(statement, parameters).fetchall()

    def stream(self, statement: sa.Executable, rows: int) -> Iterator[Sequence[Any]]:
        """Yield every row of a statement without parameters, `rows` at a time, while the database still finds others."""
        prepared_of(statement)  # what is streamed is long and seldom: the first time counts
        if self._raw is not None and (prepared := prepared_of(statement)) is not None:
            self._meter.statements[self._name, current_label()] += 1
            yield from prepared.run_in_parts(self._raw, self._connection.dialect, rows)
            return
        yield from self._execute(statement.execution_options(yield_per=rows), None).partitions()

    def row(self, statement: sa.Executable, parameters: Params = None) -> Any:
        """Return the first row, or None."""
        if self._raw is not None and (prepared := prepared_of(statement)) is not None:
            rows = self._prepared(prepared, parameters, self._raw)
            if rows is not None:
                return rows[0] if rows else None
        return self._execute(statement, parameters).fetchone()

    def scalar(self, statement: sa.Executable, parameters: Params = None) -> Any:
        """Return the first column of the first row, or None."""
        first = self.row(statement, parameters)
        return None if first is None else first[0]

    def run(self, statement: sa.Executable, parameters: Params = None) -> None:
        """Run a statement that returns nothing; a list of parameter mappings runs it for each."""
        if (
            self._raw is not None
            and (prepared := prepared_of(statement)) is not None
            and self._prepared(prepared, parameters, self._raw, wants_rows=False) is not None
        ):
            return
        self._execute(statement, parameters).close()

    def refuse(self, value: object) -> NoReturn:
        """Roll back everything that this function wrote, and make `write` return `value`. It raises TransactionRefused, which
        `write` catches.
        """
        raise TransactionRefused(value)

    def lost(self) -> NoReturn:
        """Roll back everything and run the function again, as after a deadlock: another transaction was first, and only
        this statement shows it.

        It raises LostRace, which `write` catches.  It is not used on SQLite, where one transaction writes at a time.
        """
        raise LostRace


Work: TypeAlias = Callable[[Tx], T]
