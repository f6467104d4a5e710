"""Has hosts pay what they owe, as soon as they are home (RULES §25).

A host is home when it is heard and is not forced down. Each debt is paid by an operation of its own, because it is the
server lock that keeps everything else from the server meanwhile. A debt whose server was deleted ends without the host:
the guest goes with its server.
"""

import logging
from functools import partial

import msgspec

from moorage.model.clock import Clock
from moorage.model.debt import Debt
from moorage.model.errors import Conflict, NotFound, Problem
from moorage.operations.context import SagaContext
from moorage.operations.debts import settle_debt
from moorage.operations.steps import servers as records
from moorage.store.region import debts
from moorage.store.region import servers as region_servers

NAME = "host_debts"
LOOKED_AT_MAX = 500
"""Debts that one round looks at."""
BEGUN_MAX = 50
LOOK_AGAIN_S = 2.0
"""When a debt is looked at again whose host is not home, or whose server is held."""
US = 1_000_000

logger = logging.getLogger(__name__)


class HostDebtsDone(msgspec.Struct, frozen=True):
    begun: tuple[str, ...] = ()
    """Servers for which a payment was begun."""
    ended: int = 0
    """Debts that ended because their server is gone."""
    waiting: int = 0


class HostDebts:
    """Run by the leading conductor."""

    def __init__(self, context: SagaContext, clock: Clock) -> None:
        self._context, self._clock = context, clock

    async def run(self) -> HostDebtsDone:
        """Run one round."""
        now_us = int(self._clock.now() * US)
        due = await self._context.region.read(partial(debts.due, now_us=now_us, limit=LOOKED_AT_MAX))
        begun, ended, waiting = list[str](), 0, list[Debt]()
        for debt in due:
            try:
                where = await self._context.region.read(partial(region_servers.find, server=debt.server))
                if where is None or (where.deleted and where.operation is None):
                    await self._end(debt)
                    ended += 1
                    continue
                if (
                    where.operation is not None
                    or len(begun) >= BEGUN_MAX
                    or debt.server in begun
                    or not await self._may_be_paid(debt)
                ):
                    waiting.append(debt)
                    continue
                await settle_debt.begin(self._context, debt)
                begun.append(debt.server)
            except (Conflict, NotFound) as busy:
                logger.info("%s: the debt of %s to server %s waits: %s", NAME, debt.host, debt.server, busy)
                waiting.append(debt)
            except Problem as out:  # the cell, or a service: the others are looked at all the same
                logger.info("%s: the debt of %s to server %s waits: %s", NAME, debt.host, debt.server, out)
                waiting.append(debt)
        if waiting:
            until_us = now_us + int(LOOK_AGAIN_S * US)
            await self._context.region.write(lambda tx: debts.put_off(tx, waiting, until_us))
        return HostDebtsDone(tuple(begun), ended, len(waiting))

    async def _end(self, debt: Debt) -> None:
        """End the debt of a server that was deleted; what it concerns is released first."""
        await settle_debt.released(self._context, debt.server, debt)
        rows = await self._context.region.write(lambda tx: settle_debt.ended(tx, self._context, debt.server, debt))
        self._context.placement.settle(rows)

    async def _may_be_paid(self, debt: Debt) -> bool:
        """Whether its host is home; or has no guest of the server any more, because the server is elsewhere."""
        if debt.host in self._context.placement.forced_down(debt.cell) or self._context.hosts.is_silent(debt.host):
            located = await records.find(self._context, debt.server)
            return located.server is not None and located.missing_in is None and located.server.host != debt.host
        return True
