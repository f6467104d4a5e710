"""The usage audit: when a period is over, sends `exists` for every server that existed in it (Nova's
`instance_usage_audit`).

A server's row is kept for a while after its delete, so a server that was deleted in the period is included.
"""

import logging
from collections.abc import Mapping

import msgspec

from moorage.model.clock import Clock
from moorage.model.errors import Unavailable
from moorage.model.ids import CellId
from moorage.model.notification import Notification, without_secrets
from moorage.operations.notifications.audit_periods import AuditUnit, last_completed
from moorage.sql import Database, Tx
from moorage.store.cell import usage_audits
from moorage.store.cell.notifications import OUTBOX

PAGE_MAX = 200
PAGES_MAX = 50
"""Pages of one cell in one round; the next round continues there."""
KEPT_US = 400 * 24 * 3_600 * 1_000_000

logger = logging.getLogger(__name__)


class UsageAuditDone(msgspec.Struct, frozen=True):
    sent: int = 0
    waiting: tuple[str, ...] = ()
    """Cells that did not answer: their servers are sent when they do."""


class UsageAudit:
    """Run by the leading conductor."""

    def __init__(self, cells: Mapping[CellId, Database], unit: AuditUnit, clock: Clock) -> None:
        self._cells = cells
        self._unit: AuditUnit = unit
        self._clock = clock
        self._finished: dict[CellId, tuple[int, int]] = {}

    async def run(self) -> UsageAuditDone:
        """Run one round; there is work only once in a period."""
        now = int(self._clock.now() * 1_000_000)
        period = last_completed(now, self._unit)
        if all(self._finished.get(cell) == period for cell in self._cells):
            return UsageAuditDone()
        sent = 0
        waiting: list[str] = []
        for cell, database in self._cells.items():
            try:
                for _ in range(PAGES_MAX):
                    count, finished = await database.write(lambda tx: _one_page(tx, period, now))
                    sent += count
                    if finished:
                        self._finished[cell] = period
                        break
            except Unavailable as out:
                logger.info("the usage audit of cell %s waits: %s", cell, out)
                waiting.append(cell)
        return UsageAuditDone(sent, tuple(waiting))


def _one_page(tx: Tx, period: tuple[int, int], now: int) -> tuple[int, bool]:
    """(servers sent, whether the audit is finished): the page, and the place after it, in one transaction."""
    began, ended = period
    at = usage_audits.place(tx, began, ended)
    if at.finished:
        return 0, True
    servers = usage_audits.page(tx, began, ended, at.after, PAGE_MAX)
    OUTBOX.write(
        tx,
        [
            Notification(
                id=f"{server.id}/exists/{began}/{ended}",
                event="exists",
                at=now,
                server=without_secrets(server),
                host=server.host or "",
                period=period,
            )
            for server in servers
        ],
    )
    finished = len(servers) < PAGE_MAX
    after = servers[-1].id if servers else at.after
    usage_audits.put(tx, began, ended, usage_audits.UsageAuditKey(after, at.told + len(servers), finished), now)
    if finished:
        usage_audits.forget(tx, began - KEPT_US)
    return len(servers), finished
