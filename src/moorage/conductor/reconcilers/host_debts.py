"""Has hosts pay what they owe, as soon as they are home (RULES §25).

A host is home when it is heard and is not forced down. Each debt is paid by an operation of its own, because it is the
server lock that keeps everything else from the server meanwhile. A debt whose server was deleted ends without the host:
it goes with the guest. The guest itself, if the delete left it on a silent host, is destroyed by this round: no operation
can hold a server that is gone.
"""

import asyncio
import logging
from functools import partial

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.clock import Clock
from moorage.model.debt import Debt, DebtKind
from moorage.model.errors import BusOut, HostFailed, Problem, UnknownOutcome
from moorage.model.ids import ServerId
from moorage.operations.context import SagaContext
from moorage.operations.debts import left_guest, settle_debt
from moorage.operations.steps import left_guests
from moorage.operations.steps import servers as records
from moorage.operations.steps.debts import failed_payment
from moorage.operations.steps.hosts import SILENT
from moorage.store.region import debts
from moorage.store.region import servers as region_servers

NAME = "host_debts"
LOOKED_AT_MAX = 500
"""Debts that one round looks at."""
BEGUN_MAX = 50
AT_ONCE = 8
"""Guests of deleted servers that are destroyed at the same time."""
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
        begun, gone, waiting = list[str](), dict[ServerId, Debt](), list[Debt]()
        is_off = _OffHosts(self._context)
        for debt in due:
            try:
                where = await self._context.region.read(partial(region_servers.find, server=debt.server))
                if where is None or (where.deleted and where.operation is None):
                    if debt.server in gone or len(gone) >= BEGUN_MAX or await self._is_waited_for(debt, is_off):
                        waiting.append(debt)
                    else:
                        gone[debt.server] = debt
                    continue
                if (
                    where.operation is not None
                    or len(begun) >= BEGUN_MAX
                    or debt.server in begun
                    or not await self._may_be_paid(debt, is_off)
                ):
                    waiting.append(debt)
                    continue
                await settle_debt.begin(self._context, debt)
                begun.append(debt.server)
            except Problem as out:  # an operation, the cell or a service: the others are looked at all the same
                self._log(debt, out)
                waiting.append(debt)
        slots = asyncio.Semaphore(AT_ONCE)
        ends = await asyncio.gather(*(self._end_or_wait(debt, is_off, slots) for debt in gone.values()))
        waiting += [debt for debt, is_over in zip(gone.values(), ends, strict=True) if not is_over]
        if waiting:
            until_us = now_us + int(LOOK_AGAIN_S * US)
            await self._context.region.write(lambda tx: debts.put_off(tx, waiting, until_us))
        return HostDebtsDone(tuple(begun), sum(ends), len(waiting))

    def _log(self, debt: Debt, why: Problem) -> None:
        logger.info("%s: the debt of %s to server %s waits: %s", NAME, debt.host, debt.server, why)

    async def _is_waited_for(self, debt: Debt, is_off: "_OffHosts") -> bool:
        """Whether the host may have the guest of a deleted server, and nobody can tell."""
        return debt.kind is DebtKind.DESTROY and self._context.hosts.is_silent(debt.host) and not await is_off(debt)

    async def _end_or_wait(self, debt: Debt, is_off: "_OffHosts", slots: asyncio.Semaphore) -> bool:
        """End the debt of a server that was deleted. Returns False when that must be tried again."""
        try:
            async with slots:
                if debt.kind is DebtKind.DESTROY:
                    await left_guest.settle(self._context, debt, is_off=await is_off(debt))
                else:
                    await self._end(debt)
        except BusOut as out:
            self._log(debt, out)
            return False
        except (HostFailed, UnknownOutcome) as failed:
            answered = isinstance(failed, HostFailed) and failed.code not in SILENT
            after = failed_payment(debt, failed.public, answered=answered, now=int(self._clock.now() * US))
            await self._context.region.write(lambda tx: debts.note_failed(tx, after))
            self._log(debt, failed)
            return False
        except Problem as out:
            self._log(debt, out)
            return False
        return True

    async def _end(self, debt: Debt) -> None:
        """End a debt that went with the guest; what it concerns is released first."""
        await settle_debt.released(self._context, debt.server, debt)
        rows = await self._context.region.write(lambda tx: settle_debt.ended(tx, self._context, debt.server, debt))
        self._context.placement.settle(rows)

    async def _may_be_paid(self, debt: Debt, is_off: "_OffHosts") -> bool:
        """Whether its host is home; or has no guest of the server any more, because the server is elsewhere. A guest that
        was left is destroyed by its host, or proved to be off, wherever the server is.
        """
        if debt.kind is DebtKind.DESTROY:
            return not self._context.hosts.is_silent(debt.host) or await is_off(debt)
        if debt.host in self._context.placement.forced_down(debt.cell) or self._context.hosts.is_silent(debt.host):
            located = await records.find(self._context, debt.server)
            return located.server is not None and located.missing_in is None and located.server.host != debt.host
        return True


class _OffHosts:
    """Of which hosts it is proved that their guests are off; each is looked at once in a round."""

    def __init__(self, context: SagaContext) -> None:
        self._context = context
        self._known: dict[HostAddress, bool] = {}

    async def __call__(self, debt: Debt) -> bool:
        """Raises Unavailable while the host's cell does not answer."""
        at = HostAddress(debt.cell, debt.host)
        if at not in self._known:
            self._known[at] = await left_guests.is_off(self._context, at)
        return self._known[at]
