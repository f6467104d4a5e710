"""Copies quotas to the identity service as registered limits and limits of projects, as Nova's `limits migrate_to_unified_limits`.

What is there already stays as it is, so that it may be repeated. Limits of single users have no counterpart there.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

import msgspec

from moorage.model.errors import Problem, Unavailable
from moorage.model.flavor_classes import classes_of
from moorage.model.unified_limits import CLASS, COUNTED_CLASSES, UNIFIED_NAMES
from moorage.sql import Database, Tx
from moorage.store.cell import quota_usage
from moorage.store.region import flavors, quotas

PCPU = "class:PCPU"
"""Dedicated processors have no quota of their own; their limit is that of `cores`."""
DISK = "class:DISK_GB"
"""Nearly every server uses it, and no quota tells how much of it is allowed."""


class Limiter(Protocol):
    """The identity service, for the service and region that are migrated to."""

    async def registered(self) -> dict[str, int]: ...
    async def of_project(self, project: str) -> dict[str, int]: ...
    async def register(self, name: str, limit: int) -> None: ...
    async def limit_project(self, project: str, name: str, limit: int) -> None: ...


class LimitsMigrated(msgspec.Struct, frozen=True):
    failed: tuple[str, ...]
    """Sentences about limits that the identity service refused."""
    existing: dict[str, int]
    """Registered limits after the migration."""


async def migrate(
    region: Database,
    identity: Limiter,
    defaults: Mapping[str, int],
    project: str | None,
    *,
    dry_run: bool,
    report_line: Callable[[str], None],
) -> LimitsMigrated:
    """Create the limits that are missing. `report_line`: called with a sentence about each. Raises a Problem when limits cannot be read."""
    usual = _unified(await region.read(lambda tx: quotas.class_limits(tx, quotas.DEFAULT_CLASS, defaults)))
    registered = await identity.registered()
    create = partial(_create_missing, dry_run=dry_run, report_line=report_line)
    failed = await create(usual, registered, identity.register, lambda name: f"registered limit {name}")
    if project is not None:
        own = _unified(await region.read(lambda tx: quotas.own_limits(tx, project)))
        existing = await identity.of_project(project)
        limit = partial(identity.limit_project, project)
        failed += await create(own, existing, limit, lambda name: f"limit {name} of project {project}")
    return LimitsMigrated(tuple(failed), registered)


async def _create_missing(
    wanted: Mapping[str, int],
    existing: dict[str, int],
    create: Callable[[str, int], Awaitable[None]],
    named: Callable[[str], str],
    *,
    dry_run: bool,
    report_line: Callable[[str], None],
) -> list[str]:
    """Create those that do not exist, and add them to `existing`. Returns sentences about those that were refused."""
    failed: list[str] = []
    for name, limit in wanted.items():
        if name in existing:
            report_line(f"{named(name)} = {existing[name]} exists and stays")
            continue
        report_line(f"{named(name)} = {limit} is created")
        if dry_run:
            continue
        try:
            await create(name, limit)
            existing[name] = limit
        except Problem as problem:
            failed.append(f"the {named(name)} was not created: {problem.public}")
    return failed


def _unified(limits: Mapping[str, int]) -> dict[str, int]:
    named = {UNIFIED_NAMES[name]: limit for name, limit in limits.items() if name in UNIFIED_NAMES}
    return named | ({PCPU: limits["cores"]} if "cores" in limits else {})


async def wanted_classes(
    region: Database, cells: Mapping[str, Database], project: str | None, *, servers: bool
) -> tuple[set[str], tuple[str, ...]]:
    """Return the classes that flavors and (`servers`) servers ask for, and the cells that did not answer."""

    def of_flavors(tx: Tx) -> set[str]:
        return {name for each in flavors.every(tx) for name in classes_of(each, local_root=True)}

    found, silent = {DISK, *COUNTED_CLASSES, *await region.read(of_flavors)}, list[str]()
    for cell, database in cells.items() if servers else ():
        try:
            found |= await database.read(lambda tx: quota_usage.classes_used(tx, project))
        except Unavailable:
            silent.append(cell)
    return {each for each in found if each.startswith(CLASS)}, tuple(silent)
