"""Quotas: limits by project and class, and one row of counters per project, taken by one guarded statement (RULES §5).

A limit is the project's own, or the `default` class's, or the configuration's. A limit may be set below the current
usage; then nothing more is granted.

A user may have limits of their own within a project. Only such users have counters (`user_quotas`), so requests of all
others cost no more: the statement that takes tells whether a second one is needed.
"""

from collections.abc import Mapping
from functools import cache

import sqlalchemy as sa

from moorage.model.quota import COUNTED, DEFAULT_LIMITS, Shortfall, narrower, shortfall
from moorage.sql import Tx, insert, upsert
from moorage.store.region import user_quotas
from moorage.store.region.tables import region_metadata

DEFAULT_CLASS = "default"

quota_limits = sa.Table(
    "quota_limits",
    region_metadata,
    sa.Column("project", sa.String(255), primary_key=True),
    sa.Column("resource", sa.String(64), primary_key=True),
    sa.Column("hard_limit", sa.Integer, nullable=False),
)
quota_classes = sa.Table(
    "quota_classes",
    region_metadata,
    sa.Column("class", sa.String(255), primary_key=True),
    sa.Column("resource", sa.String(64), primary_key=True),
    sa.Column("hard_limit", sa.Integer, nullable=False),
)
quota_usage = sa.Table(
    "quota_usage",
    region_metadata,
    sa.Column("project", sa.String(255), primary_key=True),
    sa.Column("instances", sa.BigInteger, nullable=False),
    sa.Column("cores", sa.BigInteger, nullable=False),
    sa.Column("ram", sa.BigInteger, nullable=False),
)


# ------------------------------------------------------------------------------------------------ counters


def _limit(resource: str) -> sa.ColumnElement[int]:
    own = sa.select(quota_limits.c.hard_limit).where(
        quota_limits.c.project == sa.bindparam("b_project"), quota_limits.c.resource == resource
    )
    common = sa.select(quota_classes.c.hard_limit).where(
        quota_classes.c["class"] == DEFAULT_CLASS, quota_classes.c.resource == resource
    )
    fallback = sa.bindparam(f"b_{resource}_default", type_=sa.Integer)
    return sa.func.coalesce(own.scalar_subquery(), common.scalar_subquery(), fallback)


def _fits(resource: str, used: sa.ColumnElement[int] | None) -> sa.ColumnElement[bool]:
    """An amount of zero always fits, even when a limit was set below the usage."""
    wanted = sa.bindparam(f"b_{resource}", type_=sa.BigInteger)
    after = wanted if used is None else used + wanted
    return sa.or_(wanted <= 0, _limit(resource) < 0, after <= _limit(resource))


@cache
def _take(dialect: str) -> sa.Executable:
    """Insert the first counters, or add to them, where every limit allows it."""
    take = insert(dialect, quota_usage)
    wanted = [sa.bindparam(f"b_{resource}", type_=sa.BigInteger) for resource in COUNTED]
    first = sa.select(sa.bindparam("b_project", type_=sa.String), *wanted).where(
        *(_fits(each, None) for each in COUNTED)
    )
    return (
        take.from_select(["project", *COUNTED], first)
        .on_conflict_do_update(
            index_elements=["project"],
            set_={each: quota_usage.c[each] + take.excluded[each] for each in COUNTED},
            where=sa.and_(*(_fits(each, quota_usage.c[each]) for each in COUNTED)),
        )
        .returning(
            user_quotas.counted(sa.bindparam("b_project", type_=sa.String), sa.bindparam("b_user", type_=sa.String))
        )
    )


def reserve(
    tx: Tx, project: str, wants: Mapping[str, int], defaults: Mapping[str, int] = DEFAULT_LIMITS, user: str = ""
) -> Shortfall | None:
    """Take `{"instances": 1, "cores": 2, "ram": 512}` from the project's quota, all or nothing, in one statement.

    Returns None, or the limits that would be exceeded (then nothing is taken; more statements find out which). `user`:
    the requesting user; only a user with own limits costs a second statement.
    """
    values: dict[str, object] = {"b_project": project, "b_user": user}
    for resource in COUNTED:
        values[f"b_{resource}"] = wants.get(resource, 0)
        values[f"b_{resource}_default"] = defaults.get(resource, DEFAULT_LIMITS[resource])
    taken = tx.row(_take(tx.dialect), values)
    if taken is None:
        return shortfall(wants, usage(tx, project), limits(tx, project, defaults))
    if not taken.counted:
        return None
    short = user_quotas.take(tx, project, user, wants, user_limits(tx, project, user, defaults))
    if short is not None:
        release(tx, project, wants)
    return short


def would_break(
    tx: Tx, project: str, wants: Mapping[str, int], defaults: Mapping[str, int] = DEFAULT_LIMITS
) -> Shortfall | None:
    """The project's limits that taking these amounts would exceed now; nothing is taken."""
    used, most = usage(tx, project), limits(tx, project, defaults)
    broken = any(0 <= most[each] < used[each] + wants.get(each, 0) for each in COUNTED)
    return shortfall(wants, used, most) if broken else None


_RELEASE = (
    quota_usage.update()
    .where(quota_usage.c.project == sa.bindparam("b_project"))
    .values(user_quotas.less(quota_usage))
    .returning(user_quotas.counted(sa.bindparam("b_project"), sa.bindparam("b_user")))
)


def release(tx: Tx, project: str, amounts: Mapping[str, int], user: str = "") -> None:
    """Release the amounts; counters never fall below zero."""
    less = user_quotas.less_values(amounts)
    if not any(less.values()):
        return
    row = tx.row(_RELEASE, {"b_project": project, "b_user": user, **less})
    if row is not None and row.counted:
        user_quotas.give_back(tx, project, user, amounts)


def recount(tx: Tx, project: str, amounts: Mapping[str, int]) -> None:
    """Replace the counters by a reconciler's count."""
    values = {"project": project, **{each: amounts.get(each, 0) for each in COUNTED}}
    tx.run(upsert(tx.dialect, quota_usage, values, key=("project",)))


def every_usage(tx: Tx) -> dict[str, dict[str, int]]:
    """The counters of every project."""
    return {row.project: {each: getattr(row, each) for each in COUNTED} for row in tx.rows(sa.select(quota_usage))}


def lock_usage(tx: Tx, project: str) -> dict[str, int]:
    """The counters, locked until this transaction ends."""
    row = tx.row(sa.select(quota_usage).where(quota_usage.c.project == project).with_for_update())
    return {each: 0 if row is None else getattr(row, each) for each in COUNTED}


_usage = sa.select(quota_usage).where(quota_usage.c.project == sa.bindparam("b_project"))


def usage(tx: Tx, project: str) -> dict[str, int]:
    row = tx.row(_usage, {"b_project": project})
    return {each: 0 if row is None else getattr(row, each) for each in COUNTED}


# ------------------------------------------------------------------------------------------------ limits


def limits(tx: Tx, project: str, defaults: Mapping[str, int] = DEFAULT_LIMITS) -> dict[str, int]:
    """Every limit of a project."""
    own = tx.rows(
        sa.select(quota_limits.c.resource, quota_limits.c.hard_limit).where(quota_limits.c.project == project)
    )
    return {**class_limits(tx, DEFAULT_CLASS, defaults), **{row.resource: row.hard_limit for row in own}}


def user_limits(tx: Tx, project: str, user: str, defaults: Mapping[str, int] = DEFAULT_LIMITS) -> dict[str, int]:
    """Every limit of a user in a project: their own, or the project's."""
    return {**limits(tx, project, defaults), **user_quotas.own_limits(tx, project, user)}


def both_limits(tx: Tx, project: str, user: str, defaults: Mapping[str, int] = DEFAULT_LIMITS) -> dict[str, int]:
    """The lower of the project's limit and the user's own, for resources that are not counted per user and project."""
    projects = limits(tx, project, defaults)
    own = user_quotas.own_limits(tx, project, user)
    return {name: narrower(limit, own.get(name, -1)) for name, limit in projects.items()}


def class_limits(tx: Tx, name: str, defaults: Mapping[str, int] = DEFAULT_LIMITS) -> dict[str, int]:
    """Every limit of a class."""
    rows = tx.rows(
        sa.select(quota_classes.c.resource, quota_classes.c.hard_limit).where(quota_classes.c["class"] == name)
    )
    return {**DEFAULT_LIMITS, **defaults, **{row.resource: row.hard_limit for row in rows}}


def set_limits(tx: Tx, project: str, changes: Mapping[str, int]) -> None:
    rows = [{"project": project, "resource": name, "hard_limit": limit} for name, limit in sorted(changes.items())]
    if rows:
        tx.run(upsert(tx.dialect, quota_limits, rows, key=("project", "resource")))


def set_class_limits(tx: Tx, name: str, changes: Mapping[str, int]) -> None:
    rows = [{"class": name, "resource": each, "hard_limit": limit} for each, limit in sorted(changes.items())]
    if rows:
        tx.run(upsert(tx.dialect, quota_classes, rows, key=("class", "resource")))


def forget_limits(tx: Tx, project: str) -> None:
    """Remove the limits of the project and of all its users: the defaults apply again."""
    tx.run(quota_limits.delete().where(quota_limits.c.project == project))
    user_quotas.forget(tx, project)
