"""Counts classes of resources of a project when it first meets a limit of them; from then on counters change with the servers."""

from collections import Counter, OrderedDict
from collections.abc import Mapping

from moorage.model.unified_limits import UnifiedLimits
from moorage.operations.shown_records import Hidden, unmoved
from moorage.sql import Database, Tx
from moorage.store.cell import quota_usage
from moorage.store.region import class_usage, quotas
from moorage.store.region import servers as region_servers

KNOWN_MAX = 10_000


class ClassCounts:
    """Remembers which projects are counted, so that a boot pays nothing for it."""

    def __init__(self, region: Database, cells: Mapping[str, Database]) -> None:
        self._region, self._cells = region, cells
        self._counted: OrderedDict[str, frozenset[str]] = OrderedDict()

    async def ready(self, limits: UnifiedLimits) -> None:
        """See to it that everything is counted that is limited. Raises Unavailable while a cell does not answer that has to be counted."""
        wanted, project = limits.limited_classes(), limits.project
        if wanted <= self._counted.get(project, frozenset()):
            return
        had = await self._region.read(lambda tx: class_usage.usage(tx, project))
        if not wanted <= had.keys():
            orders = await self._region.read(lambda tx: region_servers.classes_of_orders(tx, project))
            counted = await unmoved(
                self._region, self._cells, lambda hidden: classes_in_cells(self._cells, hidden, project)
            )
            total = Counter(orders) + Counter(counted)

            def work(tx: Tx) -> None:
                quotas.lock_usage(tx, project)
                class_usage.begin(tx, project, {name: total[name] for name in wanted})

            await self._region.write(work)
        self._counted[project] = wanted
        self._counted.move_to_end(project)
        while len(self._counted) > KNOWN_MAX:
            self._counted.popitem(last=False)


async def classes_in_cells(cells: Mapping[str, Database], hidden: Hidden, project: str) -> dict[str, int]:
    """What the project's servers of all cells use of each class."""
    total: Counter[str] = Counter()
    for name, cell in cells.items():
        without = hidden.of_cell(name)
        total.update(await cell.read(lambda tx, of=without: quota_usage.classes_of_project(tx, project, without=of)))  # type: ignore[misc]
    return dict(total)
