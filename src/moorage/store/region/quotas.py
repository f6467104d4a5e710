"""Quotas: limits by project and class, and one row of counters per project, taken by one guarded statement (RULES §5).

A limit is the project's own, or the `default` class's, or the configuration's. A limit may be set below the current
usage; then nothing more is granted.

A user may have limits of their own within a project. Only such users have counters (`user_quotas`), so requests of all
others cost no more: the statement that takes tells whether a second one is needed.

Limits of the identity service (`UnifiedLimits`) replace all of these. They may be limits of other classes of resources
too, whose counters are in `class_usage`; who has taken or released something here holds the project's row, so its
counters of classes are its own until the transaction ends.
"""

from collections.abc import Mapping
from functools import cache

import sqlalchemy as sa

from moorage.model.quota import COUNTED, DEFAULT_LIMITS, Limits, Shortfall, narrower, shortfall
from moorage.model.unified_limits import CLASS, UNIFIED_NAMES, UnifiedLimits
from moorage.sql import Tx, insert, upsert
from moorage.store.region import class_usage, user_quotas
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


def _fits(resource: str, used: sa.ColumnElement[int] | None, *, given: bool) -> sa.ColumnElement[bool]:
    """An amount of zero always fits, even when a limit was set below the usage. `given`: no stored limit counts."""
    wanted = sa.bindparam(f"b_{resource}", type_=sa.BigInteger)
    after = wanted if used is None else used + wanted
    limit = sa.bindparam(f"b_{resource}_default", type_=sa.Integer) if given else _limit(resource)
    return sa.or_(wanted <= 0, limit < 0, after <= limit)


@cache
def _take(dialect: str, given: bool) -> sa.Executable:
    """Insert the first counters, or add to them, where every limit allows it."""
    take = insert(dialect, quota_usage)
    wanted = [sa.bindparam(f"b_{resource}", type_=sa.BigInteger) for resource in COUNTED]
    first = sa.select(sa.bindparam("b_project", type_=sa.String), *wanted).where(
        *(_fits(each, None, given=given) for each in COUNTED)
    )
    return (
        take.from_select(["project", *COUNTED], first)
        .on_conflict_do_update(
            index_elements=["project"],
            set_={each: quota_usage.c[each] + take.excluded[each] for each in COUNTED},
            where=sa.and_(*(_fits(each, quota_usage.c[each], given=given) for each in COUNTED)),
        )
        .returning(
            user_quotas.counted(sa.bindparam("b_project", type_=sa.String), sa.bindparam("b_user", type_=sa.String)),
            class_usage.counted(sa.bindparam("b_project", type_=sa.String)),
        )
    )


def reserve(
    tx: Tx, project: str, wants: Mapping[str, int], defaults: Limits = DEFAULT_LIMITS, user: str = ""
) -> Shortfall | None:
    """Take `{"instances": 1, "cores": 2, "ram": 512, "class:DISK_GB": 20}` from the project's quota, all or nothing.

    Returns None, or the limits that would be exceeded (then nothing is taken; more statements find out which). `user`:
    the requesting user. It is one statement; only a user with own limits costs a second one, and counters of classes two.
    """
    unified = defaults if isinstance(defaults, UnifiedLimits) else None
    counts = {each: wants[each] for each in COUNTED if each in wants}
    values: dict[str, object] = {"b_project": project, "b_user": user}
    for resource in COUNTED:
        values[f"b_{resource}"] = wants.get(resource, 0)
        values[f"b_{resource}_default"] = (
            unified.limit(UNIFIED_NAMES[resource]) if unified is not None else _default(defaults, resource)
        )
    taken = tx.row(_take(tx.dialect, unified is not None), values)
    if taken is None:
        short = shortfall(counts, usage(tx, project), limits(tx, project, defaults))
        return Shortfall(short.over, unified)
    if taken.counted:
        most: Mapping[str, int] = user_limits(tx, project, user, defaults)
        if unified is not None:  # which knows no limits of users
            most = dict[str, int].fromkeys(COUNTED, -1)
        if (short_of_user := user_quotas.take(tx, project, user, counts, most)) is not None:
            release(tx, project, counts)
            return short_of_user
    classes = {name: amount for name, amount in wants.items() if name.startswith(CLASS) and amount > 0}
    if classes and (taken.classes or (unified is not None and any(unified.limit(each) >= 0 for each in classes))):
        over = class_usage.take(tx, project, classes, unified)
        if over:
            release(tx, project, counts, user)
            return Shortfall(over, unified)
    return None


def _default(defaults: Limits, resource: str) -> int:
    assert not isinstance(defaults, UnifiedLimits)
    return defaults.get(resource, DEFAULT_LIMITS[resource])


def would_break(tx: Tx, project: str, wants: Mapping[str, int], defaults: Limits = DEFAULT_LIMITS) -> Shortfall | None:
    """The project's limits that taking these amounts would exceed now; nothing is taken."""
    used, most = usage(tx, project), limits(tx, project, defaults)
    unified = defaults if isinstance(defaults, UnifiedLimits) else None
    if unified is not None:
        classes = [name for name in wants if name.startswith(CLASS)]
        used |= class_usage.usage(tx, project)
        most |= {each: unified.limit(each) for each in classes}
    wants = {name: amount for name, amount in wants.items() if name in most}
    short = shortfall(wants, used, most)
    return Shortfall(short.over, unified) if short.over else None


_RELEASE = (
    quota_usage.update()
    .where(quota_usage.c.project == sa.bindparam("b_project"))
    .values(user_quotas.less(quota_usage))
    .returning(
        user_quotas.counted(sa.bindparam("b_project"), sa.bindparam("b_user")),
        class_usage.counted(sa.bindparam("b_project")),
    )
)


def release(tx: Tx, project: str, amounts: Mapping[str, int], user: str = "") -> None:
    """Release the amounts; counters never fall below zero."""
    less = user_quotas.less_values(amounts)
    classes = {name: amount for name, amount in amounts.items() if name.startswith(CLASS) and amount > 0}
    if not classes and not any(less.values()):
        return
    row = tx.row(_RELEASE, {"b_project": project, "b_user": user, **less})
    if row is not None and row.counted:
        user_quotas.give_back(tx, project, user, amounts)
    if row is not None and row.classes and classes:
        class_usage.give_back(tx, project, classes)


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


def limits(tx: Tx, project: str, defaults: Limits = DEFAULT_LIMITS) -> dict[str, int]:
    """Every limit of a project."""
    if isinstance(defaults, UnifiedLimits):
        return defaults.enforced(DEFAULT_LIMITS)
    return {**class_limits(tx, DEFAULT_CLASS, defaults), **own_limits(tx, project)}


def own_limits(tx: Tx, project: str) -> dict[str, int]:
    """The limits that were set for this project."""
    query = sa.select(quota_limits.c.resource, quota_limits.c.hard_limit).where(quota_limits.c.project == project)
    return {row.resource: row.hard_limit for row in tx.rows(query)}


def user_limits(tx: Tx, project: str, user: str, defaults: Limits = DEFAULT_LIMITS) -> dict[str, int]:
    """Every limit of a user in a project: their own, or the project's."""
    if isinstance(defaults, UnifiedLimits):
        return defaults.enforced(DEFAULT_LIMITS)
    return {**limits(tx, project, defaults), **user_quotas.own_limits(tx, project, user)}


def both_limits(tx: Tx, project: str, user: str, defaults: Limits = DEFAULT_LIMITS) -> dict[str, int]:
    """The lower of the project's limit and the user's own, for resources that are not counted per user and project."""
    if isinstance(defaults, UnifiedLimits):
        return defaults.enforced(DEFAULT_LIMITS)
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
