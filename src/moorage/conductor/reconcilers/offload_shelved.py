"""Offloads servers that have been SHELVED for longer than `shelved_offload_time`, each by an operation of its own."""

import logging
from functools import partial

import msgspec

from moorage.model.clock import Clock, SystemClock
from moorage.model.errors import Conflict, NotFound, Unavailable
from moorage.model.ids import CellId
from moorage.model.server import Server, VmState
from moorage.operations.context import SagaContext
from moorage.operations.shelve import shelve
from moorage.store.cell import servers as cell_servers

NAME = "shelved"
PAGE_ROWS = 500
BEGUN_MAX = 1_000
"""How many operations one round begins; the next round begins more."""
US = 1_000_000

logger = logging.getLogger(__name__)


class ShelvedDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    begun: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    """Cells that did not answer, and servers that could not begin now."""


class OffloadShelved:
    def __init__(self, context: SagaContext, clock: Clock | None = None) -> None:
        self._context, self._clock = context, clock or SystemClock()

    async def run(self) -> ShelvedDone:
        """Run one round; it does nothing when shelved servers are not offloaded by themselves."""
        after_s = self._context.settings.shelved_offload_time_s
        if after_s < 0:
            return ShelvedDone()
        before_us = int((self._clock.now() - after_s) * US)
        looked_at, begun, waiting = 0, list[str](), list[str]()
        for cell in self._context.cells.ids:
            try:
                servers = await self._shelved(cell)
            except Unavailable as out:
                logger.info("shelved servers of cell %s wait: %s", cell, out)
                waiting.append(cell)
                continue
            looked_at += len(servers)
            for server in servers:
                if server.shelved is None or server.shelved.at > before_us or len(begun) >= BEGUN_MAX:
                    continue
                (begun if await self._begin(server) else waiting).append(server.id)
        return ShelvedDone(looked_at, tuple(begun), tuple(waiting))

    async def _shelved(self, cell: CellId) -> list[Server]:
        servers: list[Server] = []
        after = ""
        while True:
            page = await self._context.cells[cell].read(
                partial(cell_servers.in_state, state=VmState.SHELVED, after=after, limit=PAGE_ROWS)
            )
            servers += page
            if len(page) < PAGE_ROWS:
                return servers
            after = page[-1].id

    async def _begin(self, server: Server) -> bool:
        """Returns False when another operation works on it, or a service does not answer: the next round tries again."""
        try:
            await shelve.begin_offloading(
                self._context, server.id, server.user, server.project, check=still_shelved, request_id=""
            )
        except (Conflict, NotFound, Unavailable) as problem:
            logger.info("server %s stays shelved on its host for now: %s", server.id, problem)
            return False
        return True


def still_shelved(server: Server) -> None:
    """Raises Conflict when the server is no longer shelved."""
    if server.vm_state is not VmState.SHELVED or server.task_state is not None:
        raise Conflict(f"instance {server.id} is no longer shelved")
