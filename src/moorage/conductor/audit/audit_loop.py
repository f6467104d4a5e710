"""Runs audits: requested ones, and one of its own periodically (N4)."""

import logging
from functools import partial

import msgspec

from moorage.conductor.audit.auditor import Auditor
from moorage.model.audit import OWN, Audit, AuditReport, AuditRequest
from moorage.model.clock import Clock
from moorage.model.errors import Problem
from moorage.model.ids import new_uuid
from moorage.operations.context import SagaContext
from moorage.store.region import audits

NAME = "audits"
BEGUN_AGAIN_S = 3_600.0
"""An audit that was requested this long ago, and that a process began and did not finish, is given up: the audit itself
may end processes.
"""
SAID_MAX = 20
"""How many findings of its own audit the log names; the report has all."""
GIVEN_UP = "Every process that began it ended before the audit did."

logger = logging.getLogger(__name__)


class AuditsDone(msgspec.Struct, frozen=True):
    ran: int = 0
    found: int = 0
    failed: int = 0


class Audits:
    """`every_s`: seconds between the audits that nobody requested, 0: none; `repairs`: whether those repair what they
    find.
    """

    def __init__(self, context: SagaContext, auditor: Auditor, clock: Clock, *, every_s: float, repairs: bool) -> None:
        self._context, self._auditor, self._clock = context, auditor, clock
        self._every_s, self._repairs = every_s, repairs
        self._next: float | None = None

    async def run(self) -> AuditsDone:
        """One round: the waiting audits, one after the other."""
        if self._every_s > 0:
            await self._ask_if_due()
        ran = found = failed = 0
        for each in await self._context.region.read(audits.open_ones):
            report = await self._run(each)
            ran += report is not None
            found += 0 if report is None else report.found
            failed += report is None
        return AuditsDone(ran, found, failed)

    async def _ask_if_due(self) -> None:
        now = self._clock.monotonic()
        if self._next is None:  # another process may have led until a moment ago
            last = await self._context.region.read(lambda tx: audits.last_of(tx, OWN))
            since_s = self._clock.now() - last / 1_000_000 if last is not None else 0.0
            self._next = now + max(0.0, self._every_s - max(0.0, since_s))
        if now < self._next:
            return
        self._next = now + self._every_s
        request = AuditRequest(repair=self._repairs)
        await self._context.region.write(lambda tx: audits.ask(tx, new_uuid(), OWN, request, self._now_us))

    @property
    def _now_us(self) -> int:
        return int(self._clock.now() * 1_000_000)

    async def _run(self, audit: Audit) -> AuditReport | None:
        if audit.began_at is not None and self._now_us - audit.asked_at > BEGUN_AGAIN_S * 1_000_000:
            logger.warning("audit %s: %s", audit.id, GIVEN_UP)
            end = partial(audits.end, id=audit.id, began_at=audit.began_at, report=AuditReport(), why=GIVEN_UP)
            await self._context.region.write(partial(end, now_us=self._now_us))
            return None
        began = await self._context.region.write(lambda tx: audits.begin(tx, audit.id, self._now_us))
        if began is None:
            return None
        report, why = AuditReport(), ""
        try:
            report = await self._auditor.run(audit.asked, audit.id, audit.asked_by, began)
        except Problem as problem:
            why = f"{problem.public} {problem.private}".strip()
            logger.warning("audit %s: %s", audit.id, why)
        except Exception as failure:
            why = repr(failure)
            logger.exception("audit %s failed", audit.id)
        await self._context.region.write(lambda tx: audits.end(tx, audit.id, began, report, self._now_us, why))
        if audit.asked_by == OWN:
            _log_report(report)
        return None if why else report


def _log_report(report: AuditReport) -> None:
    """One line for each finding, so that the log is enough to see it; the counts include all."""
    if not report.found:
        logger.info("audit: nothing found, %s checked", report.looked_at)
        return
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(report.counts.items()))
    logger.warning("audit: %d found (%s); `moorage audit` shows them", report.found, counts)
    for each in report.findings[:SAID_MAX]:
        logger.warning("audit: %s %s at %s of server %s", each.kind, each.what, each.where, each.server or "none")
