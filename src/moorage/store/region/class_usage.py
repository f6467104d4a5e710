"""Counters of classes of resources by project, for limits of the identity service (`class:DISK_GB`).

A row exists from the moment when the project first met a limit of the class; it is counted from the project's servers
then (`operations/class_counts.py`), changes with `quotas.reserve` and `quotas.release` in the same transactions, and a
reconciler counts again while nothing happens in the project.
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from moorage.model.quota import Over
from moorage.model.unified_limits import UnifiedLimits
from moorage.sql import Tx, upsert
from moorage.store.region.tables import region_metadata

quota_class_usage = sa.Table(
    "quota_class_usage",
    region_metadata,
    sa.Column("project", sa.String(255), primary_key=True),
    sa.Column("resource", sa.String(255), primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
)
KEY = ("project", "resource")


def counted(project: Any) -> sa.Label[int]:
    """How many classes are counted in this project: a column for another statement's result."""
    query = sa.select(sa.func.count()).select_from(quota_class_usage).where(quota_class_usage.c.project == project)
    return query.scalar_subquery().label("classes")


def usage(tx: Tx, project: str) -> dict[str, int]:
    """Class → the counter."""
    query = sa.select(quota_class_usage.c.resource, quota_class_usage.c.used)
    return {row.resource: row.used for row in tx.rows(query.where(quota_class_usage.c.project == project))}


def every_usage(tx: Tx) -> dict[str, dict[str, int]]:
    """Project → class → the counter."""
    counters: dict[str, dict[str, int]] = {}
    for row in tx.rows(sa.select(quota_class_usage)):
        counters.setdefault(row.project, {})[row.resource] = row.used
    return counters


def take(tx: Tx, project: str, wants: Mapping[str, int], limits: UnifiedLimits | None) -> tuple[Over, ...]:
    """Add to the counters, all or nothing; return the limits that would be exceeded. None: no limit holds now, and
    counters that exist go on. The caller holds the project's row of `quota_usage`.
    """
    used = usage(tx, project)
    most = {name: -1 if limits is None else limits.limit(name) for name in wants}
    over = tuple(
        Over(name, wants[name], used.get(name, 0), most[name])
        for name in sorted(wants)
        if 0 <= most[name] < used.get(name, 0) + wants[name]
    )
    if not over:
        _write(
            tx, project, {name: used.get(name, 0) + n for name, n in wants.items() if name in used or most[name] >= 0}
        )
    return over


def give_back(tx: Tx, project: str, amounts: Mapping[str, int]) -> None:
    """Reduce the counters that exist; never below zero."""
    used = usage(tx, project)
    _write(tx, project, {name: max(0, used[name] - n) for name, n in amounts.items() if name in used})


def begin(tx: Tx, project: str, amounts: Mapping[str, int]) -> None:
    """Create the counters that do not exist yet."""
    rows = [{"project": project, "resource": name, "used": amount} for name, amount in sorted(amounts.items())]
    if rows:
        tx.run(upsert(tx.dialect, quota_class_usage, rows, key=KEY, change=()))


def recount(tx: Tx, project: str, amounts: Mapping[str, int]) -> None:
    """Replace the counters by a reconciler's count."""
    _write(tx, project, amounts)


def _write(tx: Tx, project: str, amounts: Mapping[str, int]) -> None:
    rows = [{"project": project, "resource": name, "used": amount} for name, amount in sorted(amounts.items())]
    if rows:
        tx.run(upsert(tx.dialect, quota_class_usage, rows, key=KEY))
