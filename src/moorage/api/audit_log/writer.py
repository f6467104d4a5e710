"""Where the events of the audit log go: lines of JSON in a file or in the process's log, and the region's outbox.

A line is written before its answer is sent.  Rows of the outbox are written in one commit for many, within a second: what a
process that is killed had not written yet is only in the file.
"""

import asyncio
import logging
import logging.handlers
import os
from collections import deque
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Protocol

import msgspec
from typing_extensions import override

from moorage.api.audit_log import cadf
from moorage.api.audit_log.middleware import AUTHENTICATE
from moorage.api.audit_log.request_facts import Facts
from moorage.model.audit_event import Audited
from moorage.model.clock import Clock
from moorage.model.errors import Unavailable
from moorage.model.ids import new_uuid
from moorage.model.retry import SeldomLog
from moorage.sql import Database
from moorage.store.region.notifications import OUTBOX

log = logging.getLogger(__name__)
lines = logging.getLogger("moorage.audit_log")
"""What is not written into a file of its own."""

QUEUE_MAX = 10_000
"""Events that wait for the outbox; the oldest go when there are more."""
FLUSH_EVERY_S = 1.0
ROWS_AT_ONCE = 500
FILE_MODE = 0o600

_encode = msgspec.json.Encoder().encode


class Sink(Protocol):
    def take(self, event: Audited) -> None: ...

    async def close(self) -> None: ...


class _Handler(logging.handlers.WatchedFileHandler):
    """Opened again when the file was moved away or removed; private to its owner."""

    @override
    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
        return os.fdopen(descriptor, "a", encoding="utf-8")

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        raise


class FileSink:
    """Writes one line for each event; after a rotation the file is opened again."""

    def __init__(self, path: Path) -> None:
        self._handler = _Handler(path)

    def take(self, event: Audited) -> None:
        self._handler.emit(_record(event))

    async def close(self) -> None:
        self._handler.close()


class LogSink:
    """Into the log of the process, on a logger of its own."""

    def take(self, event: Audited) -> None:
        lines.info("%s", line_of(event))

    async def close(self) -> None:
        """The log is the process's."""


class OutboxSink:
    """Into the region's outbox, from where a conductor sends it: many with one commit."""

    def __init__(self, region: Database, clock: Clock) -> None:
        self._region = region
        self._clock = clock
        self._waiting: deque[Audited] = deque(maxlen=QUEUE_MAX)
        self._log = SeldomLog(log, clock.monotonic)
        self.lost = 0
        self._task = asyncio.create_task(self._run(), name="audit-log")

    def take(self, event: Audited) -> None:
        if len(self._waiting) == QUEUE_MAX:
            self.lost += 1
            self._log.warning("full", "%d audit events were dropped: the outbox does not take them", self.lost)
        self._waiting.append(event)

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(FLUSH_EVERY_S)
            await self.flush()

    async def flush(self) -> None:
        """Write what waits; what could not be written waits on."""
        while self._waiting:
            batch = [self._waiting[place] for place in range(min(ROWS_AT_ONCE, len(self._waiting)))]
            before = self.lost
            try:
                await self._region.write(_writing(batch))
            except Unavailable as out:
                self._log.warning("out", "audit events wait for the region's database: %s", out)
                return
            for _ in range(len(batch) - (self.lost - before)):  # those that were pushed out meanwhile are gone
                self._waiting.popleft()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.flush()


def _writing(batch: Sequence[Audited]) -> Callable[[Any], None]:
    return lambda tx: OUTBOX.write_audited(tx, batch)


def _record(event: Audited) -> logging.LogRecord:
    return logging.LogRecord("moorage.audit_log", logging.INFO, "", 0, line_of(event), None, None)


def line_of(event: Audited) -> str:
    """As oslo.messaging's notifications are put, so that one reader reads both."""
    line = {
        "message_id": event.id,
        "timestamp": event.at,
        "event_type": event.event_type,
        "publisher_id": event.publisher,
        "payload": event.cadf,
    }
    return _encode(line).decode()


class AuditBook:
    """Words events, and gives them to every sink."""

    def __init__(self, sinks: Sequence[Sink], now_us: Callable[[], int]) -> None:
        self._sinks = tuple(sinks)
        self._now_us = now_us
        self.written = 0

    def write(self, kind: str, facts: Facts) -> None:
        payload = cadf.as_dict(cadf.of_login(facts) if kind == AUTHENTICATE else cadf.of_request(facts))
        event = Audited(
            cadf=msgspec.Raw(_encode(payload)),
            event_type=kind,
            publisher=f"{facts.service}.{cadf.HERE}",
            at=self._now_us(),
            id=new_uuid(),
            request_id=facts.request_id,
            global_request_id=facts.global_request_id,
            user="" if facts.principal is None else facts.principal.user,
            project="" if facts.principal is None else facts.principal.project or "",
        )
        for sink in self._sinks:
            sink.take(event)
        self.written += 1

    async def close(self) -> None:
        for sink in self._sinks:
            await sink.close()
