"""Limits of single users within a project, and counters of those users.

A user's counters exist from the moment when the user gets a limit; they are counted from the user's servers then, and a
reconciler counts again while nothing happens in the project (`conductor/reconcilers/quota_usage.py`).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from moorage.model.quota import COUNTED, Shortfall, shortfall
from moorage.sql import Tx, upsert
from moorage.store.region.tables import region_metadata

USERS_MAX = 10_000

quota_user_limits = sa.Table(
    "quota_user_limits",
    region_metadata,
    sa.Column("project", sa.String(255), primary_key=True),
    sa.Column("user", sa.String(255), primary_key=True),
    sa.Column("resource", sa.String(64), primary_key=True),
    sa.Column("hard_limit", sa.Integer, nullable=False),
)
quota_user_usage = sa.Table(
    "quota_user_usage",
    region_metadata,
    sa.Column("project", sa.String(255), primary_key=True),
    sa.Column("user", sa.String(255), primary_key=True),
    sa.Column("instances", sa.BigInteger, nullable=False),
    sa.Column("cores", sa.BigInteger, nullable=False),
    sa.Column("ram", sa.BigInteger, nullable=False),
)


def _is(table: sa.Table, project: Any, user: Any) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.project == project, table.c.user == user)


# ------------------------------------------------------------------------------------------------ counters


def counted(project: Any, user: Any) -> sa.Label[int]:
    """Whether this user has counters: a column for another statement's result."""
    query = sa.select(sa.func.count()).select_from(quota_user_usage).where(_is(quota_user_usage, project, user))
    return query.scalar_subquery().label("counted")


def less(table: sa.Table) -> dict[str, sa.ColumnElement[int]]:
    """New values of counters that are reduced by the parameters of `less_values`; never below zero."""

    def reduced(counter: sa.Column[int], by: sa.BindParameter[int]) -> sa.ColumnElement[int]:
        return sa.case((counter > by, counter - by), else_=0)

    return {each: reduced(table.c[each], sa.bindparam(f"b_{each}", type_=sa.BigInteger)) for each in COUNTED}


def less_values(amounts: Mapping[str, int]) -> dict[str, int]:
    """The parameters of a statement with `less`: what each counter is reduced by."""
    return {f"b_{each}": amounts.get(each, 0) for each in COUNTED}


def take(tx: Tx, project: str, user: str, wants: Mapping[str, int], limits: Mapping[str, int]) -> Shortfall | None:
    """Add to the counters of a user who has them, where the limits allow it; return the limits that would be exceeded,
    or None.
    """
    table = quota_user_usage
    counts = {each: wants[each] for each in COUNTED if wants.get(each)}
    fits = [table.c[each] + n <= limits[each] for each, n in counts.items() if n > 0 and limits[each] >= 0]
    more = {each: table.c[each] + n for each, n in counts.items()}
    if not more:
        return None
    done = tx.row(table.update().where(_is(table, project, user), *fits).values(more).returning(table.c.user))
    return None if done is not None else shortfall(counts, usage(tx, project, user) or {}, limits)


_GIVE_BACK = (
    quota_user_usage.update()
    .where(_is(quota_user_usage, sa.bindparam("b_project"), sa.bindparam("b_user")))
    .values(less(quota_user_usage))
)


def give_back(tx: Tx, project: str, user: str, amounts: Mapping[str, int]) -> None:
    tx.run(_GIVE_BACK, {"b_project": project, "b_user": user, **less_values(amounts)})


def usage(tx: Tx, project: str, user: str) -> dict[str, int] | None:
    """The counters; None for a user without them."""
    row = tx.row(sa.select(quota_user_usage).where(_is(quota_user_usage, project, user)))
    return None if row is None else {each: getattr(row, each) for each in COUNTED}


def every_usage(tx: Tx) -> dict[tuple[str, str], dict[str, int]]:
    """(project, user) → counters."""
    rows = tx.rows(sa.select(quota_user_usage).limit(USERS_MAX))
    return {(row.project, row.user): {each: getattr(row, each) for each in COUNTED} for row in rows}


def recount(tx: Tx, project: str, user: str, amounts: Mapping[str, int]) -> None:
    """Create a user's counters, or replace them."""
    values = {"project": project, "user": user, **{each: amounts.get(each, 0) for each in COUNTED}}
    tx.run(upsert(tx.dialect, quota_user_usage, values, key=("project", "user")))


# ------------------------------------------------------------------------------------------------ limits


def own_limits(tx: Tx, project: str, user: str) -> dict[str, int]:
    """The limits that were set for this user."""
    table = quota_user_limits
    rows = tx.rows(sa.select(table.c.resource, table.c.hard_limit).where(_is(table, project, user)))
    return {row.resource: row.hard_limit for row in rows}


def given_out(tx: Tx, project: str) -> dict[str, int]:
    """Resource → the sum of the limits of all users of a project."""
    table = quota_user_limits
    query = sa.select(table.c.resource, sa.func.sum(table.c.hard_limit).label("sum"))
    rows = tx.rows(query.where(table.c.project == project).group_by(table.c.resource))
    return {row.resource: int(row.sum) for row in rows}


def set_limits(tx: Tx, project: str, user: str, changes: Mapping[str, int]) -> None:
    rows = [
        {"project": project, "user": user, "resource": name, "hard_limit": limit}
        for name, limit in sorted(changes.items())
    ]
    if rows:
        tx.run(upsert(tx.dialect, quota_user_limits, rows, key=("project", "user", "resource")))


def forget(tx: Tx, project: str, users: Iterable[str] | None = None) -> None:
    """Remove the limits and counters of these users, or of all users of the project."""
    for table in (quota_user_limits, quota_user_usage):
        statement = table.delete().where(table.c.project == project)
        if users is not None:
            statement = statement.where(table.c.user.in_(list(users)))
        tx.run(statement)
