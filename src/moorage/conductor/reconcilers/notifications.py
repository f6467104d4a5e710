"""Sends the notifications of the outboxes: formatted, sent in order, and only then removed (S0.19).

The leading conductor sends. While two disagree about the leader, or when one dies between sending and removing, a
message is sent twice, with one `message_id`. While the broker does not accept messages, rows stay; the oldest are
dropped when there are too many or they are too old, and the log says how many. A database that does not answer keeps
its rows, and does not delay the others; if one can be read and not written, each leading process sends each of its rows
once.
"""

import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from moorage.bus.notifications import Message, Sender
from moorage.model.audit_event import MARK, Audited
from moorage.model.clock import Clock
from moorage.model.errors import Unavailable
from moorage.model.notification import Notification
from moorage.model.retry import SeldomLog, pause_s
from moorage.operations.notifications.messages import Wording, audit_messages, messages_of
from moorage.sql import Database
from moorage.store.cell import notifications as of_cell
from moorage.store.outbox import OutboxRow, OutboxTable
from moorage.store.region import notifications as of_region

logger = logging.getLogger(__name__)

BATCH_MAX = 100
BATCHES_MAX = 50
"""Batches of one round and one outbox; the next round comes soon."""
DROPPED_AT_ONCE_MAX = 1000

_decoder = msgspec.json.Decoder(Notification)
_audited = msgspec.json.Decoder(Audited)


class NotificationsDone(msgspec.Struct, frozen=True):
    sent: int = 0
    dropped: int = 0
    waiting_s: float = 0.0
    """Seconds until the next attempt, because the last send failed."""
    out: tuple[str, ...] = ()
    """Databases that did not answer."""


@dataclass(frozen=True)
class OutboxLimits:
    rows_max: int = 100_000
    age_max_s: float = 86_400.0
    retry_first_s: float = 1.0
    retry_most_s: float = 60.0
    tries_max: int = 0


class _NotTaken(Exception):
    """The broker did not accept a message."""

    def __init__(self, why: Unavailable) -> None:
        super().__init__(why.public)
        self.why = why


class NotificationRelay:
    """`regional` and `cells` are the databases that have an outbox."""

    def __init__(
        self,
        region: Database,
        cells: Sequence[Database],
        sender: Sender,
        wording: Wording,
        clock: Clock,
        limits: OutboxLimits = OutboxLimits(),
    ) -> None:
        self._outboxes: tuple[tuple[Database, OutboxTable], ...] = (
            (region, of_region.OUTBOX),
            *((cell, of_cell.OUTBOX) for cell in cells),
        )
        self._sender = sender
        self._wording = wording
        self._clock = clock
        self._limits = limits
        self._log = SeldomLog(logger, clock.monotonic)
        self._failed = 0
        self._dice = random.Random()
        self._resting_until = 0.0
        self._tries: tuple[str, int, int] = ("", 0, 0)
        """The first waiting row (database, number), and how often it was tried."""
        self._sent: dict[str, set[OutboxRow]] = {}
        """Database → rows that were sent and could not be removed, because it takes no writes now."""

    async def run(self) -> NotificationsDone:
        """Send the waiting messages; none while the pause after a failure lasts."""
        left_s = self._resting_until - self._clock.monotonic()
        if left_s > 0:
            return NotificationsDone(waiting_s=left_s)
        sent = dropped = 0
        out: list[str] = []
        try:
            for database, outbox in self._outboxes:
                try:
                    for _ in range(BATCHES_MAX):
                        delivered, lost = await self._one_batch(database, outbox)
                        sent, dropped = sent + delivered, dropped + lost
                        if delivered + lost < BATCH_MAX:
                            break
                except Unavailable as problem:
                    self._log_outage(database, problem)
                    out.append(database.name)
        except _NotTaken as refused:
            dropped += await self._rest(refused.why)
        else:
            self._failed = 0
        waiting_s = max(0.0, self._resting_until - self._clock.monotonic())
        return NotificationsDone(sent, dropped, waiting_s, tuple(out))

    def _log_outage(self, database: Database, problem: Unavailable) -> None:
        self._log.warning(database.name, "notifications of the %s database wait: %s", database.name, problem)

    async def _one_batch(self, database: Database, outbox: OutboxTable) -> tuple[int, int]:
        """(sent, dropped). Rows that were sent before a failure are removed; those that cannot be removed are not sent
        again.
        """
        rows = await database.read(lambda tx: outbox.first(tx, BATCH_MAX))
        before = self._sent.get(database.name, set())
        sent = self._sent[database.name] = {row for row in rows if row in before}
        done: list[int] = []
        lost = 0
        try:
            for row in rows:
                if row not in sent:
                    lost += not await self._one(database, row)
                    sent.add(row)
                done.append(row.number)
        finally:
            if done:
                await database.write(lambda tx: outbox.remove(tx, done))
                sent.clear()
        return len(done) - lost, lost

    async def _one(self, database: Database, row: OutboxRow) -> bool:
        """Returns False when it was given up. Raises _NotTaken when it is to be tried again."""
        try:
            messages = self._messages(row.doc)
        except Exception:
            logger.exception("notification %s of %s cannot be formatted, and is dropped", row.number, database.name)
            return False
        try:
            await self._sender.send(messages)
        except Unavailable as refused:
            tries = self._tries[2] + 1 if self._tries[:2] == (database.name, row.number) else 1
            self._tries = (database.name, row.number, tries)
            if not self._limits.tries_max or tries < self._limits.tries_max:
                raise _NotTaken(refused) from refused
            logger.error("notification %s of %s is dropped after %d tries", row.number, database.name, tries)
            return False
        return True

    def _messages(self, doc: bytes) -> list[Message]:
        if doc.startswith(MARK):
            return audit_messages(_audited.decode(doc), self._wording)
        return messages_of(_decoder.decode(doc), self._wording)

    async def _rest(self, refused: Unavailable) -> int:
        """Wait longer after every failure, and keep the outboxes within their limits; return how many rows were
        dropped.
        """
        self._failed += 1
        rest_s = pause_s(self._failed, self._limits.retry_first_s, self._limits.retry_most_s, self._dice)
        self._resting_until = self._clock.monotonic() + rest_s
        logger.warning("notifications wait %.0f s: %s %s", rest_s, refused, refused.private)
        before_us = time.time_ns() // 1000 - int(self._limits.age_max_s * 1_000_000)
        dropped = 0
        for database, outbox in self._outboxes:
            shorten = partial(
                outbox.shorten, before_us=before_us, most=self._limits.rows_max, limit=DROPPED_AT_ONCE_MAX
            )
            try:
                while (gone := await database.write(shorten)) > 0:
                    dropped += gone
            except Unavailable as out:
                self._log_outage(database, out)
        if dropped:
            logger.error("%d notifications were dropped: the outbox was full, or they were too old", dropped)
        return dropped
