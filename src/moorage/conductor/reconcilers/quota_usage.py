"""Corrects quota counters that differ from the usage of the project's servers (RULES §5).

Servers are in several databases, so the count is not a snapshot. It is used only for a project in which no operation is
running and none began since; this is checked again in the transaction that writes. Users with their own limits are
counted in the same way.

The usage of a server whose record its cell has lost is unknown: its project's counters stay, until the record is back
or the server is deleted (RULES §22).
"""

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial

import msgspec

from moorage.conductor.class_usage import correct_classes, wrong_classes
from moorage.model.errors import Unavailable
from moorage.model.ids import CellId
from moorage.model.quota import COUNTED
from moorage.operations.context import SagaContext
from moorage.operations.doubtful_servers import doubtful_in
from moorage.operations.missing_servers import missing_in
from moorage.operations.shown_records import Hidden, hidden_now
from moorage.sql import Tx
from moorage.store.cell import quota_usage
from moorage.store.region import counts, quotas, user_quotas
from moorage.store.region import servers as region_servers
from moorage.store.region.counts import Doings

NAME = "quota_usage"

logger = logging.getLogger(__name__)

Amounts = Mapping[str, int]


class CorrectedUsage(msgspec.Struct, frozen=True):
    project: str
    before: dict[str, int]
    now: dict[str, int]
    user: str = ""
    """Empty: the project's own counters."""


class QuotaUsageDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    """Projects."""
    mended: tuple[CorrectedUsage, ...] = ()
    waiting: tuple[str, ...] = ()
    """Cells that did not answer: projects with servers there are not counted."""
    missing: tuple[str, ...] = ()
    """Projects whose counters differ, while a cell has lost records of their servers: the counters stay."""


class _Region(msgspec.Struct, frozen=True):
    doings: dict[str, Doings]
    kept: dict[str, dict[str, int]]
    orders: dict[str, dict[str, int]]
    users: dict[tuple[str, str], dict[str, int]]
    hidden: Hidden


class QuotaUsage:
    def __init__(self, context: SagaContext, *, mends: bool = True) -> None:
        """`mends`: False: differences are only reported."""
        self._context, self._mends = context, mends

    async def run(self) -> QuotaUsageDone:
        """One round over every project that has, or ever had, a server."""
        region = await self._context.region.read(_read_region)
        counted: dict[str, Counter[str]] = {project: Counter(usage) for project, usage in region.orders.items()}
        out: list[CellId] = []
        for cell in self._context.cells.ids:
            try:
                charged = await self._context.cells[cell].read(
                    partial(quota_usage.charged, without=region.hidden.of_cell(cell))
                )
            except Unavailable as problem:
                logger.info("the servers of cell %s are not counted: %s", cell, problem)
                out.append(cell)
                continue
            for project, usage in charged.items():
                counted.setdefault(project, Counter()).update(usage)
        hidden = await self._context.region.read(lambda tx: region_servers.projects_in(tx, out)) if out else frozenset()
        mended: list[CorrectedUsage] = []
        missing: set[str] = set()
        projects = sorted((region.doings.keys() | region.kept.keys()) - hidden)
        for project in projects:
            before = region.kept.get(project, {})
            now = {each: counted.get(project, Counter())[each] for each in COUNTED}
            doings = region.doings.get(project)
            if (doings is not None and doings.at_work) or all(before.get(each, 0) == now[each] for each in COUNTED):
                continue
            if await self._misses_records(project):
                missing.add(project)
            elif not self._mends:
                mended.append(CorrectedUsage(project, before, now))
            elif await self._correct(project, before, now, doings):
                logger.warning("quota counters of project %s are %s, and its servers use %s", project, before, now)
                mended.append(CorrectedUsage(project, before, now))
        mended += await self._users(region, hidden, missing)
        mended += await self._classes(region, hidden, missing)
        if missing:
            logger.warning(
                "the quota of projects %s is not counted: records of their servers are missing",
                ", ".join(sorted(missing)),
            )
        return QuotaUsageDone(len(projects), tuple(mended), tuple(out), tuple(sorted(missing)))

    async def _misses_records(self, project: str) -> bool:
        """Whether a cell has lost the record of one of its servers, or went back; a cell that does not answer may have."""
        for cell in self._context.cells.ids:
            try:
                region, database = self._context.region, self._context.cells[cell]
                if await missing_in(region, cell, database, project=project):
                    return True
                if await doubtful_in(region, cell, database, project=project):
                    return True
            except Unavailable:
                return True
        return False

    async def _users(self, region: _Region, hidden: Collection[str], missing: set[str]) -> list[CorrectedUsage]:
        """Correct the counters of users who have some; projects with missing records are added to `missing`."""
        mended: list[CorrectedUsage] = []
        for (project, user), before in sorted(region.users.items()):
            doings = region.doings.get(project)
            if project in hidden or project in missing or (doings is not None and doings.at_work):
                continue
            now = await self._of_user(project, user)
            if now == before:
                continue
            if await self._misses_records(project):
                missing.add(project)
                continue

            def work(
                tx: Tx,
                project: str = project,
                user: str = user,
                before: Amounts = before,
                now: Amounts = now,
                doings: Doings | None = doings,
            ) -> bool:
                quotas.lock_usage(tx, project)
                if counts.doings(tx, project).get(project) != doings or user_quotas.usage(tx, project, user) != before:
                    return False
                user_quotas.recount(tx, project, user, now)
                return True

            if not self._mends:
                mended.append(CorrectedUsage(project, before, now, user))
            elif await self._context.region.write(work):
                logger.warning(
                    "quota counters of user %s in project %s are %s, and the usage is %s", user, project, before, now
                )
                mended.append(CorrectedUsage(project, before, now, user))
        return mended

    async def _classes(self, region: _Region, hidden: Collection[str], missing: set[str]) -> list[CorrectedUsage]:
        """Correct the counters of classes of resources; projects with missing records are added to `missing`."""
        mended: list[CorrectedUsage] = []
        for project, before, now in await wrong_classes(self._context, region.doings, {*hidden, *missing}):
            if await self._misses_records(project):
                missing.add(project)
            elif not self._mends:
                mended.append(CorrectedUsage(project, dict(before), dict(now)))
            elif await correct_classes(self._context, project, before, now, region.doings.get(project)):
                logger.warning("counters of classes of project %s are %s, and the usage is %s", project, before, now)
                mended.append(CorrectedUsage(project, dict(before), dict(now)))
        return mended

    async def _of_user(self, project: str, user: str) -> dict[str, int]:
        orders, hidden = await self._context.region.read(
            lambda tx: (region_servers.charged_by(tx, project, user), hidden_now(tx))
        )
        total = Counter(orders)
        for cell in self._context.cells.ids:
            of_user = partial(quota_usage.charged_by, project=project, user=user, without=hidden.of_cell(cell))
            total.update(await self._context.cells[cell].read(of_user))
        return {each: total[each] for each in COUNTED}

    async def _correct(self, project: str, before: Amounts, now: Amounts, doings: Doings | None) -> bool:
        def work(tx: Tx) -> bool:
            kept = quotas.lock_usage(tx, project)
            if counts.doings(tx, project).get(project) != doings or any(
                kept[each] != before.get(each, 0) for each in COUNTED
            ):
                return False
            quotas.recount(tx, project, now)
            return True

        return await self._context.region.write(work)


def _read_region(tx: Tx) -> _Region:
    return _Region(
        counts.doings(tx),
        quotas.every_usage(tx),
        region_servers.charged(tx),
        user_quotas.every_usage(tx),
        hidden_now(tx),
    )
