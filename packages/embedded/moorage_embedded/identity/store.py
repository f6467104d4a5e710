"""The identity service's tables and its SQL but for grants (`role_grants.py`): one table per noun, and what has been revoked.

Most nouns are kept alike (find, insert, change, remove), so most statements here serve all of them.  What belongs
together is removed together, in the same transaction, by `CHILDREN`.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from moorage.model.errors import Conflict, NotFound
from moorage.sql import Tx
from moorage.sql.migrate import Tree

Record: TypeAlias = dict[str, Any]

metadata = sa.MetaData()
TABLES = Tree("embedded_identity", metadata, Path(__file__).parent / "revisions")


def _id() -> sa.Column[str]:
    return sa.Column("id", sa.String(64), primary_key=True)


def _text(name: str, size: int = 255) -> sa.Column[str]:
    return sa.Column(name, sa.String(size), nullable=False, default="")


def _ref(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.String(64), nullable=True, index=True)


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False)


def _json(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.JSON, nullable=True)


def _note(name: str = "description") -> sa.Column[Any]:
    return sa.Column(name, sa.Text, nullable=True)


# A domain is a project that is its own root, as in Keystone: `domain_id` is '' so that the unique key holds for it.
projects = sa.Table(
    "projects", metadata, _id(), _text("name"), _text("domain_id", 64), _ref("parent_id"), _flag("is_domain"),
    _flag("enabled"), _note(), _json("tags"), _json("options"), _json("extra"), sa.UniqueConstraint("domain_id", "name"),
)  # fmt: skip
users = sa.Table(
    "users", metadata, _id(), _text("name"), _text("domain_id", 64), _ref("default_project_id"), _flag("enabled"),
    _note(), _note("email"), _note("password_hash"), sa.Column("tokens_from", sa.Float, nullable=False, default=0.0),
    _json("options"), _json("extra"), sa.UniqueConstraint("domain_id", "name"),
)  # fmt: skip
groups = sa.Table(
    "groups", metadata, _id(), _text("name"), _text("domain_id", 64), _note(), _json("extra"),
    sa.UniqueConstraint("domain_id", "name"),
)  # fmt: skip
memberships = sa.Table(
    "memberships", metadata, sa.Column("group_id", sa.String(64), primary_key=True),
    sa.Column("user_id", sa.String(64), primary_key=True, index=True),
)  # fmt: skip
roles = sa.Table(
    "roles", metadata, _id(), _text("name"), _text("domain_id", 64), _note(), _json("options"), _json("extra"),
    sa.UniqueConstraint("domain_id", "name"),
)  # fmt: skip
implied_roles = sa.Table(
    "implied_roles", metadata, sa.Column("prior_id", sa.String(64), primary_key=True),
    sa.Column("implied_id", sa.String(64), primary_key=True),
)  # fmt: skip
grants = sa.Table(
    "grants", metadata,
    sa.Column("actor_kind", sa.String(8), primary_key=True), sa.Column("actor_id", sa.String(64), primary_key=True),
    sa.Column("target_kind", sa.String(8), primary_key=True), sa.Column("target_id", sa.String(64), primary_key=True),
    sa.Column("role_id", sa.String(64), primary_key=True), sa.Column("inherited", sa.Boolean, primary_key=True),
    sa.Index("grants_by_target", "target_kind", "target_id"),
)  # fmt: skip
regions = sa.Table(
    "regions", metadata, sa.Column("id", sa.String(255), primary_key=True), _note(),
    sa.Column("parent_region_id", sa.String(255), nullable=True), _json("extra"),
)  # fmt: skip
services = sa.Table(
    "services", metadata, _id(), _text("name"), _text("type"), _flag("enabled"), _note(), _json("extra")
)
endpoints = sa.Table(
    "endpoints", metadata, _id(), _text("service_id", 64), _text("interface", 8), _text("url", 2048),
    sa.Column("region_id", sa.String(255), nullable=True), _flag("enabled"), _note("name"), _note(), _json("extra"),
)  # fmt: skip
application_credentials = sa.Table(
    "application_credentials", metadata, _id(), _text("name"), _text("user_id", 64), _text("project_id", 64), _note(),
    _text("secret_hash"), _json("roles"), _flag("unrestricted"), _note("expires_at"), _json("access_rules"),
    sa.UniqueConstraint("user_id", "name"),
)  # fmt: skip
access_rules = sa.Table(
    "access_rules", metadata, _id(), _text("user_id", 64), _text("service", 64), _text("method", 16), _text("path", 255),
    sa.UniqueConstraint("user_id", "service", "method", "path"),
)  # fmt: skip
credentials = sa.Table(
    "credentials", metadata, _id(), sa.Column("user_id", sa.String(64), nullable=False, index=True),
    _ref("project_id"), _text("type"), _note("blob"),
)  # fmt: skip
policies = sa.Table("policies", metadata, _id(), _text("type"), _note("blob"), _json("extra"))
registered_limits = sa.Table(
    "registered_limits", metadata, _id(), _text("service_id", 64), sa.Column("region_id", sa.String(255), nullable=True),
    _text("resource_name"), sa.Column("default_limit", sa.Integer, nullable=False), _note(),
)  # fmt: skip
limits = sa.Table(
    "limits", metadata, _id(), _ref("project_id"), _ref("domain_id"), _text("service_id", 64),
    sa.Column("region_id", sa.String(255), nullable=True), _text("resource_name"),
    sa.Column("resource_limit", sa.Integer, nullable=False), _note(),
)  # fmt: skip
domain_options = sa.Table(
    "domain_options", metadata, sa.Column("domain_id", sa.String(64), primary_key=True),
    sa.Column("option_group", sa.String(64), primary_key=True), sa.Column("option", sa.String(64), primary_key=True),
    _note("value"),
)  # fmt: skip
endpoint_groups = sa.Table("endpoint_groups", metadata, _id(), _text("name"), _note(), _json("filters"))
project_endpoints = sa.Table(
    "project_endpoints", metadata, sa.Column("endpoint_id", sa.String(64), primary_key=True),
    sa.Column("project_id", sa.String(64), primary_key=True, index=True),
)  # fmt: skip
project_endpoint_groups = sa.Table(
    "project_endpoint_groups", metadata, sa.Column("endpoint_group_id", sa.String(64), primary_key=True),
    sa.Column("project_id", sa.String(64), primary_key=True, index=True),
)  # fmt: skip
trusts = sa.Table(
    "trusts", metadata, _id(), _ref("trustor_user_id"), _ref("trustee_user_id"), _ref("project_id"),
    _flag("impersonation"), sa.Column("expires_at", sa.Float, nullable=True),
    sa.Column("remaining_uses", sa.Integer, nullable=True), _ref("redelegated_trust_id"),
    sa.Column("redelegation_count", sa.Integer, nullable=False), _json("roles"),
)  # fmt: skip
revocations = sa.Table(
    "revocations", metadata, sa.Column("audit_id", sa.String(64), primary_key=True),
    sa.Column("until", sa.Float, nullable=False, index=True),
)  # fmt: skip

failed_logins = sa.Table(
    "failed_logins", metadata, sa.Column("user_id", sa.String(64), primary_key=True),
    sa.Column("count", sa.Integer, nullable=False), sa.Column("at", sa.Float, nullable=False),
)  # fmt: skip
CHILDREN: dict[str, tuple[tuple[sa.Table, str, str], ...]] = {
    # what goes with a row: table, column, and the kind of actor or target when it is a grant
    "projects": (
        (grants, "target_id", "project"),
        (application_credentials, "project_id", ""),
        (limits, "project_id", ""),
        (credentials, "project_id", ""),
        (domain_options, "domain_id", ""),
        (project_endpoints, "project_id", ""),
        (project_endpoint_groups, "project_id", ""),
        (trusts, "project_id", ""),
    ),
    "users": (
        (grants, "actor_id", "user"),
        (memberships, "user_id", ""),
        (application_credentials, "user_id", ""),
        (access_rules, "user_id", ""),
        (credentials, "user_id", ""),
        (failed_logins, "user_id", ""),
        (trusts, "trustor_user_id", ""),
        (trusts, "trustee_user_id", ""),
    ),
    "groups": ((grants, "actor_id", "group"), (memberships, "group_id", "")),
    "roles": ((grants, "role_id", ""), (implied_roles, "prior_id", ""), (implied_roles, "implied_id", "")),
    "services": ((endpoints, "service_id", ""),),
    "endpoints": ((project_endpoints, "endpoint_id", ""),),
    "endpoint_groups": ((project_endpoint_groups, "endpoint_group_id", ""),),
}
Doubled = IntegrityError
"""What two writers of the same key at once come to on PostgreSQL; one writer at a time is asked by `_refuse_double`."""
LIST_MAX = 10_000
"""Rows a list may return; Keystone has no pages here, so what is more is cut and marked `truncated`."""


def record_of(table: sa.Table, row: Sequence[Any]) -> Record:
    """The row by its columns' names."""
    return dict(zip(table.c.keys(), row, strict=True))


def table_of(name: str) -> sa.Table:
    return metadata.tables[name]


# ------------------------------------------------------------------------------------------------- any noun


@cache
def _by_id(table: str) -> sa.Executable:
    return sa.select(table_of(table)).where(table_of(table).c.id == sa.bindparam("b_id"))


@cache
def _equal(table: str, names: tuple[tuple[str, bool], ...]) -> sa.Executable:
    """By columns, each equal to a value or NULL (`True`); there are few such questions, and most requests ask one."""
    columns = table_of(table).c
    query = sa.select(table_of(table))
    for name, null in names:
        query = query.where(columns[name].is_(None) if null else columns[name] == sa.bindparam(f"b_{name}"))
    return query.order_by(*_order(columns)).limit(LIST_MAX + 1)


def _order(columns: Any) -> list[sa.Column[Any]]:
    return [columns[name] for name in ("name", "id") if name in columns]


def get(tx: Tx, table: str, id_: str) -> Record | None:
    found = tx.row(_by_id(table), {"b_id": id_})
    return None if found is None else record_of(table_of(table), found)


def need(tx: Tx, table: str, id_: str, word: str) -> Record:
    """The row with this id. Raises NotFound when there is none."""
    found = get(tx, table, id_)
    if found is None:
        raise NotFound(f"Could not find {word}: {id_}.")
    return found


def find(
    tx: Tx, table: str, equal: Mapping[str, Any], *, like: Mapping[str, tuple[str, str]] | None = None,
    ids: Sequence[str] | None = None,
) -> list[Record]:  # fmt: skip
    """Rows by equality, by `like` (column → (operator, text)) and among `ids`; by name, then id."""
    columns = table_of(table).c
    if not like and ids is None:
        asked = _equal(table, tuple((name, value is None) for name, value in equal.items()))
        rows = tx.rows(asked, {f"b_{name}": value for name, value in equal.items() if value is not None})
        return [record_of(table_of(table), row) for row in rows]
    query = sa.select(table_of(table))
    for name, value in equal.items():
        query = query.where(columns[name].is_(None) if value is None else columns[name] == value)
    for name, (operator, text) in (like or {}).items():
        query = query.where(_compare(columns[name], operator, text))
    if ids is not None:
        query = query.where(columns.id.in_(list(ids)))
    rows = tx.rows(query.order_by(*_order(columns)).limit(LIST_MAX + 1))
    return [record_of(table_of(table), row) for row in rows]


def _compare(column: sa.ColumnElement[Any], operator: str, text: str) -> sa.ColumnElement[bool]:
    folded = operator.startswith("i")
    subject, wanted = (sa.func.lower(column), text.lower()) if folded else (column, text)
    match operator.removeprefix("i"):
        case "contains":
            return subject.contains(wanted, autoescape=True)
        case "startswith":
            return subject.startswith(wanted, autoescape=True)
        case "endswith":
            return subject.endswith(wanted, autoescape=True)
        case _:
            return subject == wanted


def _refuse_double(tx: Tx, table: str, row: Mapping[str, Any], word: str) -> None:
    """The unique keys, asked before the write: SQLite's batches keep an exception to one member, PostgreSQL backs it up."""
    columns = table_of(table).c
    for key in table_of(table).constraints:
        if not isinstance(key, sa.UniqueConstraint):
            continue
        same = sa.and_(*(columns[column.name] == row[column.name] for column in key.columns))
        if tx.row(sa.select(columns.id).where(same, columns.id != row["id"])) is not None:
            raise Conflict(
                f"Conflict occurred attempting to store {word} - Duplicate entry found with name {row['name']}."
            )


def insert(tx: Tx, table: str, row: Mapping[str, Any], word: str) -> None:
    """Insert a row. Raises Conflict for a duplicate id or name."""
    if get(tx, table, str(row["id"])) is not None:
        raise Conflict(f"Conflict occurred attempting to store {word} - Duplicate ID, {row['id']}.")
    _refuse_double(tx, table, row, word)
    tx.run(sa.insert(table_of(table)).values(**row))


def change(tx: Tx, table: str, id_: str, values: Mapping[str, Any], word: str) -> Record:
    now = {**need(tx, table, id_, word), **values}
    if values:
        _refuse_double(tx, table, now, word)
        tx.run(sa.update(table_of(table)).where(table_of(table).c.id == id_).values(**values))
    return now


def exchange(tx: Tx, table: str, id_: str, column: str, was: str, becomes: str) -> bool:
    """One value for another; False when it is neither by now."""
    c = table_of(table).c
    changed = sa.update(table_of(table)).where(c.id == id_, c[column] == was).values({column: becomes})
    return tx.row(changed.returning(c.id)) is not None


def remove(tx: Tx, table: str, id_: str, word: str) -> None:
    """The row and what cannot be without it."""
    need(tx, table, id_, word)
    for child, column, kind in CHILDREN.get(table, ()):
        gone = sa.delete(child).where(child.c[column] == id_)
        if kind:
            gone = gone.where(child.c[column.replace("_id", "_kind")] == kind)
        tx.run(gone)
    tx.run(sa.delete(table_of(table)).where(table_of(table).c.id == id_))


def link(tx: Tx, table: str, row: Mapping[str, Any]) -> None:
    """A row of a table that has no ids of its own."""
    tx.run(sa.insert(table_of(table)).values(**row))


def unlink(tx: Tx, table: str, equal: Mapping[str, Any]) -> None:
    """All rows that are so; none is good, too."""
    columns = table_of(table).c
    tx.run(sa.delete(table_of(table)).where(*(columns[name] == value for name, value in equal.items())))


# ------------------------------------------------------------------------------------------------- membership


def groups_of(tx: Tx, user_id: str) -> list[str]:
    return [row[0] for row in tx.rows(sa.select(memberships.c.group_id).where(memberships.c.user_id == user_id))]


def members_of(tx: Tx, group_id: str) -> list[str]:
    query = sa.select(memberships.c.user_id).where(memberships.c.group_id == group_id)
    return [row[0] for row in tx.rows(query)]


def join_group(tx: Tx, group_id: str, user_id: str) -> None:
    if user_id not in members_of(tx, group_id):
        tx.run(sa.insert(memberships).values(group_id=group_id, user_id=user_id))


def leave_group(tx: Tx, group_id: str, user_id: str) -> bool:
    there = user_id in members_of(tx, group_id)
    tx.run(sa.delete(memberships).where(memberships.c.group_id == group_id, memberships.c.user_id == user_id))
    return there


# ------------------------------------------------------------------------------------------------- revocation


def revoke(tx: Tx, audit_id: str, until: float, now: float) -> None:
    """Remember that a token is void until it would have ended anyway; forget those that have ended."""
    tx.run(sa.delete(revocations).where(sa.or_(revocations.c.until < now, revocations.c.audit_id == audit_id)))
    tx.run(sa.insert(revocations).values(audit_id=audit_id, until=until))


def revoked(tx: Tx, now: float) -> frozenset[str]:
    return frozenset(row[0] for row in tx.rows(sa.select(revocations.c.audit_id).where(revocations.c.until >= now)))
