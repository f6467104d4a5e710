"""Quota limits of projects, of their users and of the default class, which administrators set."""

from collections.abc import Mapping

from moorage.model.errors import Invalid
from moorage.model.quota import COUNTED, DEFAULT_LIMITS, OF_PROJECTS_ONLY
from moorage.operations.shown_records import Hidden, unmoved
from moorage.sql import Database, Tx
from moorage.store.cell import quota_usage
from moorage.store.region import quotas, server_groups, user_quotas
from moorage.store.region import servers as region_servers

Cells = Mapping[str, Database]
NONE = -1


def used_of(tx: Tx, project: str) -> dict[str, int]:
    """What a project uses of each counted resource."""
    return {**quotas.usage(tx, project), "server_groups": server_groups.count(tx, project)}


async def used_by(region: Database, cells: Cells, project: str, user: str) -> dict[str, int]:
    """What one user in a project uses of each counted resource: counted from the servers in all cells, unless the user
    has counters.
    """

    def work(tx: Tx) -> tuple[dict[str, int] | None, dict[str, int], int]:
        kept = user_quotas.usage(tx, project, user)
        return kept, region_servers.charged_by(tx, project, user), server_groups.count(tx, project, user)

    kept, orders, groups = await region.read(work)
    if kept is None:
        kept = await unmoved(region, cells, lambda hidden: _counted(cells, hidden, orders, project, user))
    return {**kept, "server_groups": groups}


async def _counted(cells: Cells, hidden: Hidden, orders: Mapping[str, int], project: str, user: str) -> dict[str, int]:
    total = {each: orders.get(each, 0) for each in COUNTED}
    for name, cell in cells.items():
        without = hidden.of_cell(name)
        usage = await cell.read(lambda tx, of=without: quota_usage.charged_by(tx, project, user, without=of))  # type: ignore[misc]
        total = {each: total[each] + usage.get(each, 0) for each in COUNTED}
    return total


async def set_limits(
    region: Database,
    project: str,
    changes: Mapping[str, int],
    *,
    force: bool,
    defaults: Mapping[str, int] = DEFAULT_LIMITS,
) -> None:
    """Set all limits or none. Raises Invalid for a limit below what is used or given to users, unless forced."""

    def work(tx: Tx) -> None:
        if not force:
            used, given = used_of(tx, project), user_quotas.given_out(tx, project)
            limits = quotas.limits(tx, project, defaults)
            for name, limit in changes.items():
                out = given.get(name, 0)
                bound = NONE if limits[name] < 0 or limits[name] - out < 0 else out
                _within(name, limit, max(bound, used.get(name, 0)), NONE)
        quotas.set_limits(tx, project, changes)

    await region.write(work)


async def set_user_limits(
    region: Database,
    cells: Cells,
    project: str,
    user: str,
    changes: Mapping[str, int],
    *,
    force: bool,
    defaults: Mapping[str, int] = DEFAULT_LIMITS,
) -> None:
    """Set all limits or none; from now on the user's usage is counted.

    Raises Invalid for a limit below what the user uses, or above what the project has left, unless forced.
    """
    used = await used_by(region, cells, project, user)

    def work(tx: Tx) -> None:
        if not force:
            limits, own = quotas.limits(tx, project, defaults), user_quotas.own_limits(tx, project, user)
            given = user_quotas.given_out(tx, project)
            for name, limit in changes.items():
                left = limits[name] - given.get(name, 0)
                most = NONE if left < 0 or own.get(name, 0) < 0 else left + own.get(name, 0)
                _within(name, limit, used.get(name, 0), most)
        quotas.set_limits(tx, project, {name: n for name, n in changes.items() if name in OF_PROJECTS_ONLY})
        user_quotas.set_limits(
            tx, project, user, {name: n for name, n in changes.items() if name not in OF_PROJECTS_ONLY}
        )
        if user_quotas.usage(tx, project, user) is None:
            user_quotas.recount(tx, project, user, used)

    await region.write(work)


def _within(name: str, limit: int, least: int, most: int) -> None:
    """-1 is no limit: larger than any number; as `most`, any number is allowed."""
    if 0 <= limit < least:
        raise Invalid(
            f"Quota limit {limit} for {name} must be greater than or equal to already used and reserved {least}."
        )
    if most >= 0 and (limit < 0 or limit > most):
        raise Invalid(f"Quota limit {limit} for {name} must be less than or equal to {most}.")


async def set_class_limits(region: Database, name: str, changes: Mapping[str, int]) -> None:
    await region.write(lambda tx: quotas.set_class_limits(tx, name, changes))


async def forget_limits(region: Database, project: str) -> None:
    await region.write(lambda tx: quotas.forget_limits(tx, project))


async def forget_user_limits(region: Database, project: str, user: str) -> None:
    """Remove the user's limits and counters: only the project's limits apply."""
    await region.write(lambda tx: user_quotas.forget(tx, project, [user]))
