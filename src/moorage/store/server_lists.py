"""Lists of servers: the query, its filters and order, and the pages.

Lists are paged by key (`ServerQuery.after`), never by offset, and sort the same way in SQLite, in PostgreSQL and in
Python, because the answers of several databases are merged: text by code point, a missing value before every other.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from moorage.model.errors import Invalid
from moorage.model.ids import ServerId
from moorage.model.server import Server, VmState
from moorage.sql.tx import Tx
from moorage.store.servers import ROW_WINS, TEXT, record_columns, server_of

SortKey: TypeAlias = tuple[str, Literal["asc", "desc"]]
SortValue: TypeAlias = str | int

PATTERN_CHARACTERS_MAX = 255
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
"""Fields a list may be sorted by; `MATCHABLE` those a regular expression may be tried on."""
MATCHABLE = (_TEXT_COLUMNS | frozenset(_IN_DOC) | {"power_state"}) - {"operation"}


class ServerQuery(msgspec.Struct, frozen=True):
    """Which servers, in which order, how many.  Every condition given must hold."""

    project: str | None = None
    user: str | None = None
    ids: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    """Not these, whatever else holds: servers whose record in the cell that is asked is not the one that is shown."""
    vm_states: tuple[str, ...] | None = None
    task_states: tuple[str, ...] | None = None
    host: str | None = None
    image: str | None = None
    flavor: str | None = None
    locked: bool | None = None
    matches: tuple[tuple[str, str], ...] = ()
    """(field of MATCHABLE, regular expression): found anywhere in the value."""
    between: tuple[tuple[str, int, int], ...] = ()
    """(a field of time, from, to): µs, `to` excluded."""
    ip: str | None = None
    ip6: str | None = None
    """Regular expressions; one address has to match."""
    tags: tuple[str, ...] = ()
    """All of them."""
    tags_any: tuple[str, ...] = ()
    not_tags: tuple[str, ...] = ()
    """Not all of them."""
    not_tags_any: tuple[str, ...] = ()
    changes_since: int | None = None
    changes_before: int | None = None
    deleted: bool | None = False
    """False: those that live; True: the deleted only; None: both."""
    soft_deleted: bool | None = None
    """With `deleted=False`: True shows the soft-deleted too. With `deleted=True`: False hides them."""
    sort: tuple[SortKey, ...] = NEWEST_FIRST
    after: tuple[SortValue, ...] | None = None
    """The sort values (`sort_values`) of the last server of the page before."""
    limit: int | None = None


class ServerRow:
    """One row of a list: decoded only when somebody looks (answers are cached by id and generation)."""

    __slots__ = ("_record", "_server", "host", "id", "key", "mark")

    def __init__(
        self, key: tuple[SortValue, ...], server_id: ServerId, host: str | None, record: Sequence[Any]
    ) -> None:
        self.key = key
        self.id = server_id
        self.host = host
        self.mark: tuple[Any, ...] = tuple(record[1 : 1 + len(ROW_WINS)])
        """Differs whenever anything of the row does: for those who keep what they made of a row."""
        self._record = record
        self._server: Server | None = None

    @property
    def server(self) -> Server:
        if self._server is None:
            self._server = server_of(self._record)
        return self._server


def list_servers(tx: Tx, table: sa.Table, query: ServerQuery, *also: sa.ColumnElement[bool]) -> list[ServerRow]:
    """One statement: the rows that answer the query, in its order, `also` being the table's own conditions."""
    keys = [_sort_expression(table, name, tx.dialect) for name, _ in query.sort]
    wanted = sa.select(table.c.id, table.c.host, *record_columns(table), *keys).where(
        table.c.doc.is_not(None), *_conditions(table, query, tx.dialect), *also
    )
    if query.after is not None:
        wanted = wanted.where(_beyond(keys, query.sort, query.after))
    wanted = wanted.order_by(
        *(key.asc() if way == "asc" else key.desc() for key, (_, way) in zip(keys, query.sort, strict=True))
    )
    if query.limit is not None:
        wanted = wanted.limit(query.limit)
    first = 3 + len(ROW_WINS)
    try:
        rows = tx.rows(wanted)
    except DBAPIError as failure:
        if query.matches or query.ip or query.ip6:
            raise Invalid("a filter is not a regular expression we can use", private=repr(failure)) from failure
        raise
    return [ServerRow(tuple(row[first:]), row[0], row[1], row[2:first]) for row in rows]


def count_servers(tx: Tx, table: sa.Table, query: ServerQuery, *also: sa.ColumnElement[bool]) -> int:
    """How many rows answer the query; order and limit do not matter."""
    conditions = _conditions(table, query, tx.dialect)
    return int(
        tx.scalar(sa.select(sa.func.count()).select_from(table).where(table.c.doc.is_not(None), *conditions, *also))
    )


def sort_values(server: Server, sort: Sequence[SortKey]) -> tuple[SortValue, ...]:
    """Where a server stands in that order: what SQL computes for its row, from the record."""
    return tuple(_sort_value(server, name) for name, _ in sort)


def in_order(rows: Sequence[ServerRow], sort: Sequence[SortKey]) -> list[ServerRow]:
    """Rows of several databases, in one order."""
    merged = list(rows)
    for at in reversed(range(len(sort))):
        merged.sort(key=_key_at(at), reverse=sort[at][1] == "desc")
    return merged


def checked_pattern(pattern: str) -> str:
    """The pattern, or Invalid when it is no regular expression, too long, or one whose search could take for ever."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise Invalid(f"a regular expression is at most {PATTERN_CHARACTERS_MAX} characters")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as wrong:
        raise Invalid(f"'{pattern}' is not a regular expression: {wrong}") from None
    if _EXPLODES.search(pattern):
        raise Invalid(f"'{pattern}' repeats a repetition; such a search may never end")
    return pattern


_EXPLODES = re.compile(r"[*+}][^(]*\)\s*[*+{]")


def _key_at(at: int) -> Callable[[ServerRow], SortValue]:
    return lambda row: row.key[at]


def _kind(name: str) -> type[str] | type[int]:
    if name in _TEXT_COLUMNS:
        return str
    return int if name in _INT_COLUMNS or name == "locked" else _IN_DOC[name]


def _plain(table: sa.Table, name: str, dialect: str) -> sa.ColumnElement[Any]:
    """A field of the record, from its column or out of `doc`."""
    if name not in _IN_DOC:
        return table.c[name]
    if dialect == "sqlite":
        return sa.func.json_extract(table.c.doc, f"$.{name}")
    found = sa.cast(table.c.doc, sa.JSON)[name].as_string()
    return sa.cast(found, sa.BigInteger) if _IN_DOC[name] is int else found.collate("C")


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
    """Strictly behind `after` in the order: equal in the first keys, further in the next one."""
    ways = []
    for at, (key, (_, way)) in enumerate(zip(keys, sort, strict=True)):
        further = key > after[at] if way == "asc" else key < after[at]
        ways.append(sa.and_(*(keys[before] == after[before] for before in range(at)), further))
    first = keys[0] >= after[0] if sort[0][1] == "asc" else keys[0] <= after[0]
    return sa.and_(first, sa.or_(*ways))


def _conditions(table: sa.Table, query: ServerQuery, dialect: str) -> list[sa.ColumnElement[bool]]:
    c = table.c
    found: list[sa.ColumnElement[bool]] = []
    equal: Mapping[str, object] = {
        "project": query.project,
        "user": query.user,
        "host": query.host,
        "image": query.image,
        "flavor": query.flavor,
        "locked": query.locked,
    }
    found += [c[name] == value for name, value in equal.items() if value is not None]
    one_of = {"id": query.ids, "vm_state": query.vm_states, "task_state": query.task_states}
    found += [c[name].in_(values) for name, values in one_of.items() if values is not None]
    if query.without:
        found.append(c.id.not_in(query.without))
    found += [_matching(table, name, pattern, dialect) for name, pattern in query.matches]
    found += [sa.and_(c[name] >= low, c[name] < high) for name, low, high in query.between]
    if query.ip is not None:
        found.append(_any_line(c.ips, query.ip, dialect))
    if query.ip6 is not None:
        found.append(_any_line(c.ip6s, query.ip6, dialect))
    changed = sa.func.coalesce(c.updated_at, c.created_at)
    if query.changes_since is not None:
        found.append(changed >= query.changes_since)
    if query.changes_before is not None:
        found.append(changed <= query.changes_before)
    return found + _about_tags(c.tags, query, dialect) + _about_deletion(table, query)


def _matching(table: sa.Table, name: str, pattern: str, dialect: str) -> sa.ColumnElement[bool]:
    if name not in MATCHABLE:
        raise Invalid(f"servers cannot be filtered by '{name}'")
    checked = checked_pattern(pattern)
    field = _plain(table, name, dialect)
    exact = checked[1:-1]
    if checked[:1] == "^" and checked[-1:] == "$" and _kind(name) is str and exact == re.escape(exact):
        return field == exact  # what clients send to find a name: an index can serve it
    return sa.cast(field, TEXT).regexp_match(checked)


def _any_line(column: sa.ColumnElement[str], pattern: str, dialect: str) -> sa.ColumnElement[bool]:
    """`^` and `$` stand for the ends of one address."""
    by_line = "(?m)" if dialect == "sqlite" else "(?n)"
    return sa.and_(column != "", column.regexp_match(by_line + checked_pattern(pattern)))


def _about_tags(column: sa.ColumnElement[str], query: ServerQuery, dialect: str) -> list[sa.ColumnElement[bool]]:
    inside = sa.func.instr if dialect == "sqlite" else sa.func.strpos

    def has(tag: str) -> sa.ColumnElement[bool]:
        found: sa.ColumnElement[bool] = inside(column, f"/{tag}/") > 0
        return found

    found: list[sa.ColumnElement[bool]] = [has(tag) for tag in query.tags]
    if query.tags_any:
        found.append(sa.or_(*map(has, query.tags_any)))
    if query.not_tags:
        found.append(sa.not_(sa.and_(*map(has, query.not_tags))))
    if query.not_tags_any:
        found.append(sa.not_(sa.or_(*map(has, query.not_tags_any))))
    return found


def _about_deletion(table: sa.Table, query: ServerQuery) -> list[sa.ColumnElement[bool]]:
    soft = table.c.vm_state == VmState.SOFT_DELETED.value
    gone = table.c.deleted_at.is_not(None)
    if query.deleted is None:
        return []
    if query.deleted:
        return [gone if query.soft_deleted is False else sa.or_(gone, soft)]
    return [table.c.deleted_at.is_(None)] + ([] if query.soft_deleted else [sa.not_(soft)])
