"""Prepares statements that are executed often: on SQLite such a statement passes through SQLAlchemy once.

SQLAlchemy needs ten times as long as SQLite for a row: it looks up its cache, binds, executes and wraps.  A statement that
is executed for the second time (the same object: one of a module, or of a function that caches it) is prepared here: its text
and the order of its parameters are kept and passed to the driver.  Rows are tuples whose columns also have names.  Types that
need a conversion (booleans) are converted.  `Tx` does this by itself.  On PostgreSQL the driver prepares by text.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, TypeAlias, cast

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.visitors import iterate
from typing_extensions import override

FORMS_MAX = 100
PADDED_TO_POWERS_UNTIL, PADDED_STEP = 1_024, 512
"""A list has one placeholder for each element, so each length would need its own text. Therefore the last element is repeated until the
length is a power of two, or a multiple of the step for a long list."""

Values: TypeAlias = Mapping[str, Any]
Convert: TypeAlias = Callable[[Any], Any]


_RUN_HERE = (sa.Select, sa.CompoundSelect, sa.Insert, sa.Update, sa.Delete, sa.TextClause)
_EXECUTED, _PREPARED = "_moorage_executed", "_moorage_prepared"
"""Attributes on the statement itself.  A statement that is made from another one (`.where(…)`) copies them, so both name their object."""


def prepared_of(statement: sa.Executable) -> "PreparedStatement | None":
    """Return the prepared statement, from its second execution on; None: SQLAlchemy executes it."""
    kept = statement.__dict__
    prepared = kept.get(_PREPARED)
    if prepared is not None and prepared.statement is statement:
        return cast("PreparedStatement", prepared) if prepared.can_run else None
    if kept.get(_EXECUTED) != id(statement):
        kept[_EXECUTED] = id(statement)
        return None
    prepared = kept[_PREPARED] = PreparedStatement(statement)
    return prepared if prepared.can_run else None


class PreparedStatement:
    """One statement, with its text for SQLite for each set of parameters that was used."""

    def __init__(self, statement: sa.Executable) -> None:
        self.statement = statement
        self.returns = bool(getattr(statement, "_returning", ())) or isinstance(statement, sa.TextClause)
        """Whether it returns rows: with several sets of parameters only SQLAlchemy collects them."""
        lists = [
            each
            for each in iterate(cast("ClauseElement", statement))
            if isinstance(each, sa.BindParameter) and each.expanding
        ]
        self.can_run = (
            isinstance(statement, _RUN_HERE)
            and not _has_defaults(statement)
            and not any(isinstance(each.type, sa.types.TupleType) for each in lists)
        )
        """Whether it can be prepared: not if SQLAlchemy adds a table's defaults, or expands lists of tuples, during execution."""
        self.reads = isinstance(statement, sa.Select | sa.CompoundSelect)
        self._lists = frozenset(each.key for each in lists)
        self._forms: dict[tuple[object, ...], _Form] = {}

    @override
    def __str__(self) -> str:
        return str(self.statement)

    def run(self, raw: sqlite3.Connection, dialect: Dialect, values: Values) -> list[Any]:
        """Execute the statement, and return all rows."""
        values = self._with_lists(values)
        form = self._form(dialect, values)
        try:
            cursor = raw.execute(form.text, form.bound(values))
            rows = cursor.fetchall()
        except sqlite3.Error as failure:
            raise _as_sqlalchemy(form.text, failure) from failure
        return form.named(cursor, rows) if rows else rows

    def run_in_parts(self, raw: sqlite3.Connection, dialect: Dialect, rows: int) -> Iterator[Sequence[Sequence[Any]]]:
        """Execute a statement without parameters, and yield its rows in parts, as plain tuples."""
        form = self._form(dialect, {})
        try:
            cursor = raw.execute(form.text, form.bound({}))
            while fetched := cursor.fetchmany(rows):
                yield form.converted(fetched)
        except sqlite3.Error as failure:
            raise _as_sqlalchemy(form.text, failure) from failure

    def run_each(self, raw: sqlite3.Connection, dialect: Dialect, many: Sequence[Values]) -> None:
        """Execute the statement for each set of parameters; rows are not read. Lists may differ in length between the sets."""
        if self._lists:
            for values in many:
                self.run(raw, dialect, values)
            return
        form = self._form(dialect, many[0])
        try:
            raw.executemany(form.text, [form.bound(values) for values in many])
        except sqlite3.Error as failure:
            raise _as_sqlalchemy(form.text, failure) from failure

    def _form(self, dialect: Dialect, values: Values) -> "_Form":
        key: tuple[object, ...] = tuple(values)
        if self._lists:
            key += tuple(_padded(len(values[name])) for name in values if name in self._lists)
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) >= FORMS_MAX:
                self._forms.clear()
            form = self._forms[key] = _Form(self.statement, dialect, values, self._lists)
        return form

    def _with_lists(self, values: Values) -> Values:
        """What an expanding parameter is given may be any collection: here it is a list."""
        if not self._lists:
            return values
        return {name: list(each) if name in self._lists else each for name, each in values.items()}


def _has_defaults(statement: sa.Executable) -> bool:
    if not isinstance(statement, sa.Insert | sa.Update):
        return False
    return any(column.default is not None or column.onupdate is not None for column in statement.table.c)


class _Form:
    def __init__(self, statement: sa.Executable, dialect: Dialect, values: Values, lists: frozenset[str]) -> None:
        made = cast("ClauseElement", statement).compile(dialect=dialect, column_keys=list(values))
        compiled = cast("SQLCompiler", made)
        state = compiled.construct_expanded_state(
            {name: _longer(each, _padded(len(each))) if name in lists else each for name, each in values.items()}
        )
        names = state.positiontup or []
        self.text = state.statement
        self._lists = {name: each for name, each in state.parameter_expansion.items() if name in values}
        given = {*values, *chain.from_iterable(self._lists.values())}
        self._fixed = {name: value for name, value in state.parameters.items() if name in names and name not in given}
        self._pick = _picker(names)
        self._converts = [
            (at, cast("Convert", state.processors[name])) for at, name in enumerate(names) if name in state.processors
        ]
        self._results = _result_processors(compiled, dialect)
        self._row: type[tuple[Any, ...]] | None = None

    def bound(self, values: Values) -> Sequence[Any]:
        """The values in the order of the text."""
        if self._lists:
            values = dict(values)
            for name, marks in self._lists.items():
                values |= dict(zip(marks, _longer(values[name], len(marks)), strict=True))
        picked = self._pick(self._fixed | values if self._fixed else values)  # type: ignore[operator]
        if self._converts:
            changed = list(picked)
            for at, convert in self._converts:
                changed[at] = convert(changed[at])
            return changed
        return picked

    def named(self, cursor: sqlite3.Cursor, rows: list[Any]) -> list[Any]:
        """The rows, their columns by name too."""
        if self._row is None:
            self._row = _row_class([column[0] for column in cursor.description])
        return list(map(self._row, self.converted(rows)))

    def converted(self, rows: list[Any]) -> list[Any]:
        """The rows, with what must be converted."""
        return [_converted(row, self._results) for row in rows] if self._results else rows


def _padded(length: int) -> int:
    if length <= PADDED_TO_POWERS_UNTIL:
        return 1 << (length - 1).bit_length() if length else 0
    return -(-length // PADDED_STEP) * PADDED_STEP


def _longer(elements: Sequence[Any], length: int) -> Sequence[Any]:
    missing = length - len(elements)
    return [*elements, *[elements[-1]] * missing] if missing > 0 else elements


def _picker(names: Sequence[str]) -> Callable[[Values], tuple[Any, ...]]:
    if not names:
        return lambda _: ()
    pick = itemgetter(*names)
    return cast("Callable[[Values], tuple[Any, ...]]", pick) if len(names) > 1 else lambda values: (pick(values),)


def _result_processors(compiled: SQLCompiler, dialect: Dialect) -> list[tuple[int, Convert]]:
    converters: list[tuple[int, Convert]] = []
    for at, column in enumerate(compiled._result_columns):
        convert = column.type.dialect_impl(dialect).result_processor(dialect, None)
        if convert is not None:
            converters.append((at, convert))
    return converters


def _converted(row: Sequence[Any], converts: Sequence[tuple[int, Convert]]) -> list[Any]:
    changed = list(row)
    for at, convert in converts:
        changed[at] = convert(changed[at])
    return changed


def _row_class(names: Sequence[str]) -> type[tuple[Any, ...]]:
    columns = {name: property(itemgetter(at)) for at, name in enumerate(names)}
    return cast("type[tuple[Any, ...]]", type("PreparedRow", (tuple,), {"__slots__": (), **columns}))


def _as_sqlalchemy(text: str, failure: sqlite3.Error) -> BaseException:
    """As SQLAlchemy would have raised it."""
    return DBAPIError.instance(text, None, failure, sqlite3.Error, hide_parameters=True)
