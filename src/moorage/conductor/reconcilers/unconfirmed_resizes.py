"""Confirms servers that have waited in VERIFY_RESIZE for longer than `resize_confirm_window`, each by an operation of
its own.
"""

import logging
from functools import partial

import msgspec

from moorage.model.clock import Clock, SystemClock
from moorage.model.errors import Conflict, NotFound, Unavailable, UnknownOutcome
from moorage.model.ids import CellId
from moorage.model.server import Server, VmState
from moorage.operations.context import SagaContext
from moorage.operations.resize import confirm_resize
from moorage.operations.steps import moving
from moorage.store.cell import servers as cell_servers

NAME = "unconfirmed"
PAGE_ROWS = 500
BEGUN_MAX = 1_000
"""How many operations one round begins; the next round begins more."""
US = 1_000_000

logger = logging.getLogger(__name__)


class UnconfirmedDone(msgspec.Struct, frozen=True):
    looked_at: int = 0
    begun: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    """Cells that did not answer, and servers that could not begin now."""


class ConfirmResizes:
    def __init__(self, context: SagaContext, clock: Clock | None = None) -> None:
        self._context, self._clock = context, clock or SystemClock()

    async def run(self) -> UnconfirmedDone:
        """Run one round; it does nothing when resizes wait without limit."""
        window_s = self._context.settings.resize_confirm_window_s
        if window_s <= 0:
            return UnconfirmedDone()
        before_us = int((self._clock.now() - window_s) * US)
        looked_at, begun, waiting, mute = 0, list[str](), list[str](), set[str]()
        for cell in self._context.cells.ids:
            try:
                servers = await self._resized(cell)
            except Unavailable as out:
                logger.info("resized servers of cell %s wait: %s", cell, out)
                waiting.append(cell)
                continue
            looked_at += len(servers)
            for server in servers:
                if server.moved is None or server.moved.at > before_us or len(begun) >= BEGUN_MAX:
                    continue
                (begun if await self._begin(server, mute) else waiting).append(server.id)
        return UnconfirmedDone(looked_at, tuple(begun), tuple(waiting))

    async def _resized(self, cell: CellId) -> list[Server]:
        servers: list[Server] = []
        after = ""
        while True:
            page = await self._context.cells[cell].read(
                partial(cell_servers.in_state, state=VmState.RESIZED, after=after, limit=PAGE_ROWS)
            )
            servers += page
            if len(page) < PAGE_ROWS:
                return servers
            after = page[-1].id

    async def _begin(self, server: Server, mute: set[str]) -> bool:
        """Returns False when another operation works on it, a host is silent, or the new host has lost the guest: the
        next round tries again.

        No user asked for this, so the old host keeps what it has while it is not certain that the new one has the
        guest. `mute`: hosts that did not answer in this round; they are not asked again before the next one.
        """
        if str(server.host) in mute or not await self._has_guest(server, mute):
            logger.warning(
                "the resize of server %s is not confirmed: its new host does not report its guest", server.id
            )
            return False
        try:
            await confirm_resize.begin(
                self._context, server, server.user, server.project, check=still_waiting, request_id=""
            )
        except (Conflict, NotFound, Unavailable) as problem:
            logger.info("the resize of server %s is not confirmed now: %s", server.id, problem)
            return False
        return True

    async def _has_guest(self, server: Server, mute: set[str]) -> bool:
        """Whether its new host reports its guest."""
        if self._context.hosts.is_silent(str(server.host)):
            return False
        try:
            return not await moving.is_lost(self._context, server, sure=True)
        except Unavailable as out:
            logger.info("host %s does not answer whether it has a guest of server %s: %s", server.host, server.id, out)
            if isinstance(out, UnknownOutcome):
                mute.add(str(server.host))
            return False


def still_waiting(server: Server) -> None:
    """Raises Conflict when the server no longer waits for confirmation."""
    if server.vm_state is not VmState.RESIZED or server.task_state is not None or server.moved is None:
        raise Conflict(f"instance {server.id} no longer waits for confirmation")
