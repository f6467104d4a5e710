"""Counters of quota that do not say what the project's servers say: counted again (RULES §5).

Servers are in several databases, so the count is no snapshot.  It stands only for a project in which nothing is being done
and nothing was begun since: that is looked at again in the transaction that writes.
"""

import logging
from collections import Counter
from collections.abc import Mapping

import msgspec

from moorage.model.quota import COUNTED
from moorage.operations.rooms import Rooms
from moorage.sql import Tx
from moorage.store.cell import servers as cell_servers
from moorage.store.region import quotas
from moorage.store.region import servers as region_servers
from moorage.store.region.servers import Doings

NAME = "quota_usage"

logger = logging.getLogger(__name__)

Amounts = Mapping[str, int]


class Mended(msgspec.Struct, frozen=True):
    project: str
    was: dict[str, int]
    now: dict[str, int]


class QuotaUsageDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    """Projects."""
    mended: tuple[Mended, ...] = ()


class _Region(msgspec.Struct, frozen=True):
    doings: dict[str, Doings]
    kept: dict[str, dict[str, int]]
    orders: dict[str, dict[str, int]]


class QuotaUsage:
    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    async def run(self) -> QuotaUsageDone:
        """One round over every project that has, or ever had, a server."""
        region = await self._rooms.region.read(_look)
        counted: dict[str, Counter[str]] = {project: Counter(found) for project, found in region.orders.items()}
        for cell in self._rooms.cells.ids:
            for project, found in (await self._rooms.cells[cell].read(cell_servers.charged)).items():
                counted.setdefault(project, Counter()).update(found)
        mended: list[Mended] = []
        projects = sorted(region.doings.keys() | region.kept.keys())
        for project in projects:
            was = region.kept.get(project, {})
            now = {each: counted.get(project, Counter())[each] for each in COUNTED}
            if any(was.get(each, 0) != now[each] for each in COUNTED) and await self._mend(
                project, was, now, region.doings.get(project)
            ):
                logger.warning("the quota of project %s said %s, and its servers say %s", project, was, now)
                mended.append(Mended(project, was, now))
        return QuotaUsageDone(len(projects), tuple(mended))

    async def _mend(self, project: str, was: Amounts, now: Amounts, seen: Doings | None) -> bool:
        if seen is not None and seen.at_work:
            return False

        def work(tx: Tx) -> bool:
            kept = quotas.lock_usage(tx, project)
            if region_servers.doings(tx, project).get(project) != seen or any(
                kept[each] != was.get(each, 0) for each in COUNTED
            ):
                return False
            quotas.recount(tx, project, now)
            return True

        return await self._rooms.region.write(work)


def _look(tx: Tx) -> _Region:
    return _Region(region_servers.doings(tx), quotas.every_usage(tx), region_servers.charged(tx))
