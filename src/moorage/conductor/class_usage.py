"""Corrects counters of classes of resources that differ from what the project's servers use, as `quota_usage` does with its own."""

import logging
from collections import Counter
from collections.abc import Collection, Mapping

from moorage.model.errors import Unavailable
from moorage.operations.class_counts import classes_in_cells
from moorage.operations.context import SagaContext
from moorage.operations.shown_records import hidden_now
from moorage.sql import Tx
from moorage.store.region import class_usage, counts, quotas
from moorage.store.region import servers as region_servers
from moorage.store.region.counts import Doings

logger = logging.getLogger(__name__)

Amounts = Mapping[str, int]


async def wrong_classes(
    context: SagaContext, doings: Mapping[str, Doings], without: Collection[str]
) -> list[tuple[str, Amounts, Amounts]]:
    """Return (project, counters, what is used) of projects at rest whose counters are wrong. `without`: projects that
    are not looked at. Projects whose cells do not all answer are not, either.
    """
    wrong: list[tuple[str, Amounts, Amounts]] = []
    kept = await context.region.read(class_usage.every_usage)
    cells = {str(cell): context.cells[cell] for cell in context.cells.ids}
    for project, before in sorted(kept.items()):
        if project in without or ((doing := doings.get(project)) is not None and doing.at_work):
            continue
        hidden = await context.region.read(hidden_now)
        orders = await context.region.read(lambda tx, of=project: region_servers.classes_of_orders(tx, of))  # type: ignore[misc]
        try:
            counted = Counter(orders) + Counter(await classes_in_cells(cells, hidden, project))
        except Unavailable as out:
            logger.info("the classes of project %s are not counted: %s", project, out)
            continue
        now = {name: counted[name] for name in before}
        if now != before:
            wrong.append((project, before, now))
    return wrong


async def correct_classes(
    context: SagaContext, project: str, before: Amounts, now: Amounts, doings: Doings | None
) -> bool:
    """Replace the counters, unless something happened in the project meanwhile."""

    def work(tx: Tx) -> bool:
        quotas.lock_usage(tx, project)
        if counts.doings(tx, project).get(project) != doings or class_usage.usage(tx, project) != before:
            return False
        class_usage.recount(tx, project, now)
        return True

    return await context.region.write(work)
