"""Counts doubtful servers (RULES §26), so that an operator hears of them without asking.

It changes nothing: an operator decides about them (docs/operating/restore.md).
"""

import logging
from collections.abc import Mapping

import msgspec

from moorage.model.errors import Unavailable
from moorage.model.ids import CellId, ServerId
from moorage.operations.context import SagaContext
from moorage.operations.doubtful_servers import doubtful_in

NAME = "doubtful_servers"
NAMED_MAX = 20

logger = logging.getLogger(__name__)


class DoubtfulServersDone(msgspec.Struct, frozen=True):
    doubtful: Mapping[CellId, int] = {}
    """How many servers of each cell that answered are doubtful."""
    waiting: tuple[CellId, ...] = ()
    """Cells that did not answer."""


class DoubtfulServers:
    """Run by the leading conductor."""

    def __init__(self, context: SagaContext) -> None:
        self._context = context
        self._named: dict[CellId, set[ServerId]] = {}

    async def run(self) -> DoubtfulServersDone:
        """Run one round. Raises Unavailable when the region's database does not answer."""
        counted: dict[CellId, int] = {}
        waiting: list[CellId] = []
        for cell in self._context.cells.ids:
            try:
                found = await doubtful_in(self._context.region, cell, self._context.cells[cell])
            except Unavailable as out:
                logger.info("the servers of cell %s are not compared with the region's: %s", cell, out)
                waiting.append(cell)
                continue
            counted[cell] = len(found)
            self._name(cell, {each.server for each in found})
        return DoubtfulServersDone(counted, tuple(waiting))

    def _name(self, cell: CellId, found: set[ServerId]) -> None:
        if new := sorted(found - self._named.get(cell, set())):
            named = ", ".join(new[:NAMED_MAX]) + (" …" if len(new) > NAMED_MAX else "")
            logger.error("cell %s: a database went back, so these servers are left alone: %s", cell, named)
        self._named[cell] = found
