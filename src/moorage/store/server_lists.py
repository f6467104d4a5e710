"""Lists of servers: the query, its filters and order, and the pages.

Lists are paged by key (`ServerQuery.after`), never by offset. They sort the same way in SQLite, in PostgreSQL and in
Python, because the answers of several databases are merged: text by code point, a missing value before every other.

Regular expressions are applied here, not in the database (`model/pattern.py`), so that both kinds of database find the
same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
import sqlalchemy as sa

from moorage.model.errors import Invalid
from moorage.model.ids import ServerId
from moorage.model.pattern import Pattern
from moorage.model.server import Server, VmState
from moorage.sql.tx import Tx
from moorage.store.servers import ROW_WINS, record_columns, server_of

SortKey: TypeAlias = tuple[str, Literal["asc", "desc"]]
SortValue: TypeAlias = str | int

SEARCHED_AT_ONCE = 1_000
SEARCHED_MAX = 200_000
"""How many servers of one database a search with regular expressions reads."""
NEWEST_FIRST: tuple[SortKey, ...] = (("created_at", "desc"), ("id", "desc"))
_TEXT_COLUMNS = frozenset(
    {"id", "project", "user", "name", "vm_state", "task_state", "host", "node", "availability_zone", "image"}
    | {"flavor", "key_name", "hostname", "reservation_id", "operation", "config_drive"}
)
_INT_COLUMNS = frozenset(
    {"power_state", "created_at", "updated_at", "deleted_at", "launched_at", "terminated_at"}
    | {"generation", "op_epoch", "op_line"}
)
_IN_DOC: dict[str, type[str] | type[int]] = {
    "description": str,
    "access_ip_v4": str,
    "access_ip_v6": str,
    "disk_config": str,
    "kernel_id": str,
    "ramdisk_id": str,
    "root_device": str,
    "locked_by": str,
    "launch_index": int,
    "progress": int,
}
SORTABLE = (_TEXT_COLUMNS | _INT_COLUMNS | frozenset(_IN_DOC) | {"locked"}) - {"operation", "op_epoch", "op_line"}
"""Fields by which a list may be sorted; `MATCHABLE` has those for regular expressions."""
MATCHABLE = (_TEXT_COLUMNS | frozenset(_IN_DOC) | {"power_state"}) - {"operation"}


class ServerQuery(msgspec.Struct, frozen=True):
    """Which servers, in which order, how many. All given conditions must hold."""

    project: str | None = None
    user: str | None = None
    ids: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    """Servers to leave out in any case: their record in this cell is hidden."""
    vm_states: tuple[str, ...] | None = None
    task_states: tuple[str, ...] | None = None
    host: str | None = None
    image: str | None = None
    flavor: str | None = None
    locked: bool | None = None
    matches: tuple[tuple[str, str], ...] = ()
    """(field of MATCHABLE, regular expression): it may match anywhere in the value."""
    between: tuple[tuple[str, int, int], ...] = ()
    """(time field, from, to): µs, `to` excluded."""
    ip: str | None = None
    ip6: str | None = None
    """Regular expressions; one address has to match."""
    tags: tuple[str, ...] = ()
    """The server has all of them."""
    tags_any: tuple[str, ...] = ()
    not_tags: tuple[str, ...] = ()
    """The server does not have all of them."""
    not_tags_any: tuple[str, ...] = ()
    changes_since: int | None = None
    changes_before: int | None = None
    deleted: bool | None = False
    """False: without deleted servers; True: only deleted ones; None: both."""
    soft_deleted: bool | None = None
    """With `deleted=False`: True includes soft-deleted servers. With `deleted=True`: False excludes them."""
    sort: tuple[SortKey, ...] = NEWEST_FIRST
    after: tuple[SortValue, ...] | None = None
    """The sort values (`sort_values`) of the last server of the previous page."""
    limit: int | None = None


class ServerRow:
    """One row of a list; decoded only when needed (answers are cached by id and generation)."""

    __slots__ = ("_record", "_server", "host", "id", "key", "mark")

    def __init__(
        self, key: tuple[SortValue, ...], server_id: ServerId, host: str | None, record: Sequence[Any]
    ) -> None:
        self.key = key
        self.id = server_id
        self.host = host
        self.mark: tuple[Any, ...] = tuple(record[1 : 1 + len(ROW_WINS)])
        """Differs whenever anything in the row differs: for caches of what was made from a row."""
        self._record = record
        self._server: Server | None = None

    @property
    def server(self) -> Server:
        if self._server is None:
            self._server = server_of(self._record)
        return self._server


def list_servers(tx: Tx, table: sa.Table, query: ServerQuery, *also: sa.ColumnElement[bool]) -> list[ServerRow]:
    """The rows that match the query, in its order; `also` are the table's own conditions. One statement, or pages of a
    search.

    Raises Invalid for a search that would read too many servers, and for an unknown sort or filter field.
    """
    keys = [_sort_expression(table, name, tx.dialect) for name, _ in query.sort]
    conditions, tests = _conditions(table, query, tx.dialect)
    conditions += [table.c.doc.is_not(None), *also]
    order = [key.asc() if way == "asc" else key.desc() for key, (_, way) in zip(keys, query.sort, strict=True)]
    whole = sa.select(table.c.id, table.c.host, *record_columns(table), *keys).where(*conditions).order_by(*order)
    first = 3 + len(ROW_WINS)

    def rows(wanted: sa.Select[Any]) -> list[ServerRow]:
        return [ServerRow(tuple(row[first:]), row[0], row[1], row[2:first]) for row in tx.rows(wanted)]

    if not tests:
        if query.after is not None:
            whole = whole.where(_beyond(keys, query.sort, query.after))
        return rows(whole if query.limit is None else whole.limit(query.limit))
    listed: list[ServerRow] = []
    for ids in _searched(tx, table, conditions, tests, order, keys, query):
        listed += rows(whole.where(table.c.id.in_(ids)))
        if query.limit is not None and len(listed) >= query.limit:
            return listed[: query.limit]
    return listed


def count_servers(tx: Tx, table: sa.Table, query: ServerQuery, *also: sa.ColumnElement[bool]) -> int:
    """How many rows match the query; order and limit do not matter. Raises Invalid as `list_servers` does."""
    conditions, tests = _conditions(table, query, tx.dialect)
    conditions += [table.c.doc.is_not(None), *also]
    if not tests:
        return int(tx.scalar(sa.select(sa.func.count()).select_from(table).where(*conditions)))
    query = msgspec.structs.replace(query, sort=NEWEST_FIRST, after=None)
    keys = [_sort_expression(table, name, tx.dialect) for name, _ in query.sort]
    order = [key.desc() for key in keys]
    return sum(len(ids) for ids in _searched(tx, table, conditions, tests, order, keys, query))


def _searched(
    tx: Tx,
    table: sa.Table,
    conditions: Sequence[sa.ColumnElement[bool]],
    tests: Sequence["_Test"],
    order: Sequence[sa.ColumnElement[Any]],
    keys: Sequence[sa.ColumnElement[Any]],
    query: ServerQuery,
) -> Iterator[list[str]]:
    """Ids of the rows that also pass the tests, in the query's order, by page of rows that were read."""
    fields = [field for field, _ in tests]
    wanted = sa.select(table.c.id, *fields, *keys).where(*conditions).order_by(*order).limit(SEARCHED_AT_ONCE)
    after, looked_at = query.after, 0
    while True:
        statement = wanted if after is None else wanted.where(_beyond(keys, query.sort, after))
        rows = tx.rows(statement)
        yield [
            row[0]
            for row in rows
            if all(value is not None and test(str(value)) for (_, test), value in zip(tests, row[1:], strict=False))
        ]
        if len(rows) < SEARCHED_AT_ONCE:
            return
        looked_at += len(rows)
        if looked_at >= SEARCHED_MAX:
            raise Invalid(
                f"This search would read more than {SEARCHED_MAX} servers; narrow it by a project, a host or a time."
            )
        after = tuple(rows[-1][1 + len(fields) :])


def sort_values(server: Server, sort: Sequence[SortKey]) -> tuple[SortValue, ...]:
    """A server's place in that order: the values that SQL computes for its row, from the record."""
    return tuple(_sort_value(server, name) for name, _ in sort)


def in_order(rows: Sequence[ServerRow], sort: Sequence[SortKey]) -> list[ServerRow]:
    """Rows of several databases, in one order."""
    merged = list(rows)
    for at in reversed(range(len(sort))):
        merged.sort(key=_key_at(at), reverse=sort[at][1] == "desc")
    return merged


def _key_at(at: int) -> Callable[[ServerRow], SortValue]:
    return lambda row: row.key[at]


def _kind(name: str) -> type[str] | type[int]:
    if name in _TEXT_COLUMNS:
        return str
    return int if name in _INT_COLUMNS or name == "locked" else _IN_DOC[name]


def _plain(table: sa.Table, name: str, dialect: str) -> sa.ColumnElement[Any]:
    """A field of the record, from its column or from `doc`."""
    if name not in _IN_DOC:
        return table.c[name]
    if dialect == "sqlite":
        return sa.func.json_extract(table.c.doc, f"$.{name}")
    text = sa.cast(table.c.doc, sa.JSON)[name].as_string()
    return sa.cast(text, sa.BigInteger) if _IN_DOC[name] is int else text.collate("C")


def _sort_expression(table: sa.Table, name: str, dialect: str) -> sa.ColumnElement[Any]:
    if name not in SORTABLE:
        raise Invalid(f"servers cannot be sorted by '{name}'")
    plain = _plain(table, name, dialect)
    if name == "locked":
        return sa.cast(plain, sa.Integer)
    if name in _IN_DOC or table.c[name].nullable:
        missing: SortValue = "" if _kind(name) is str else -1
        return sa.func.coalesce(plain, missing)
    return plain


def _sort_value(server: Server, name: str) -> SortValue:
    if name == "flavor":
        return server.flavor.id
    if name == "config_drive":
        return "True" if server.config_drive else ""
    value = getattr(server, name)
    if value is None:
        return "" if _kind(name) is str else -1
    return str(value) if _kind(name) is str else int(value)


def _beyond(
    keys: Sequence[sa.ColumnElement[Any]], sort: Sequence[SortKey], after: Sequence[SortValue]
) -> sa.ColumnElement[bool]:
    """Strictly after `after` in the order: equal in the first keys, greater in the next one."""
    ways = []
    for at, (key, (_, way)) in enumerate(zip(keys, sort, strict=True)):
        further = key > after[at] if way == "asc" else key < after[at]
        ways.append(sa.and_(*(keys[before] == after[before] for before in range(at)), further))
    first = keys[0] >= after[0] if sort[0][1] == "asc" else keys[0] <= after[0]
    return sa.and_(first, sa.or_(*ways))


_Test: TypeAlias = tuple[sa.ColumnElement[Any], Callable[[str], bool]]
"""A field, and the test for its text; a missing value passes no test."""


def _conditions(
    table: sa.Table, query: ServerQuery, dialect: str
) -> tuple[list[sa.ColumnElement[bool]], list["_Test"]]:
    """The conditions for the database, and the tests that are applied here."""
    c = table.c
    tests: list[_Test] = []
    conditions: list[sa.ColumnElement[bool]] = []
    equal: Mapping[str, object] = {
        "project": query.project,
        "user": query.user,
        "host": query.host,
        "image": query.image,
        "flavor": query.flavor,
        "locked": query.locked,
    }
    conditions += [c[name] == value for name, value in equal.items() if value is not None]
    one_of = {"id": query.ids, "vm_state": query.vm_states, "task_state": query.task_states}
    conditions += [c[name].in_(values) for name, values in one_of.items() if values is not None]
    if query.without:
        conditions.append(c.id.not_in(query.without))
    for name, text in query.matches:
        if name not in MATCHABLE:
            raise Invalid(f"servers cannot be filtered by '{name}'")
        _search(_plain(table, name, dialect), Pattern(text), _kind(name) is str, dialect, conditions, tests)
    conditions += [sa.and_(c[name] >= low, c[name] < high) for name, low, high in query.between]
    for column, pattern in ((c.ips, query.ip), (c.ip6s, query.ip6)):
        if pattern is not None:
            conditions.append(column != "")
            tests.append((column, _any_line(Pattern(pattern))))
    changed = sa.func.coalesce(c.updated_at, c.created_at)
    if query.changes_since is not None:
        conditions.append(changed >= query.changes_since)
    if query.changes_before is not None:
        conditions.append(changed <= query.changes_before)
    return conditions + _about_tags(c.tags, query, dialect) + _about_deletion(table, query), tests


def _search(
    field: sa.ColumnElement[Any],
    pattern: Pattern,
    is_text: bool,
    dialect: str,
    conditions: list[sa.ColumnElement[bool]],
    tests: list[_Test],
) -> None:
    """One expression on one field: an expression that is only a text is left to the database, which may use an index."""
    if is_text and pattern.exact is not None:
        conditions.append(field == pattern.exact)
    elif is_text and pattern.literal is not None:
        conditions.append(_inside(dialect)(field, pattern.literal) > 0)
    else:
        tests.append((field, pattern.found_in))


def _any_line(pattern: Pattern) -> Callable[[str], bool]:
    """`^` and `$` match the ends of one address."""
    return lambda lines: any(map(pattern.found_in, lines.split("\n")))


def _inside(dialect: str) -> Callable[..., sa.ColumnElement[int]]:
    return sa.func.instr if dialect == "sqlite" else sa.func.strpos


def _about_tags(column: sa.ColumnElement[str], query: ServerQuery, dialect: str) -> list[sa.ColumnElement[bool]]:
    inside = _inside(dialect)

    def has(tag: str) -> sa.ColumnElement[bool]:
        condition: sa.ColumnElement[bool] = inside(column, f"/{tag}/") > 0
        return condition

    conditions: list[sa.ColumnElement[bool]] = [has(tag) for tag in query.tags]
    if query.tags_any:
        conditions.append(sa.or_(*map(has, query.tags_any)))
    if query.not_tags:
        conditions.append(sa.not_(sa.and_(*map(has, query.not_tags))))
    if query.not_tags_any:
        conditions.append(sa.not_(sa.or_(*map(has, query.not_tags_any))))
    return conditions


def _about_deletion(table: sa.Table, query: ServerQuery) -> list[sa.ColumnElement[bool]]:
    soft = table.c.vm_state == VmState.SOFT_DELETED.value
    gone = table.c.deleted_at.is_not(None)
    if query.deleted is None:
        return []
    if query.deleted:
        return [gone if query.soft_deleted is False else sa.or_(gone, soft)]
    return [table.c.deleted_at.is_(None)] + ([] if query.soft_deleted else [sa.not_(soft)])
