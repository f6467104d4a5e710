"""Config → the audit log of one process: a listener at each of its doors, and where events go.

Nothing of it is there while it is off: no listener stands at a door, and its library is not imported.
"""

import importlib
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moorage.api.audit_log.middleware import Listener
from moorage.main.composition import RegionProcess
from moorage.main.config import Config
from moorage.model.errors import Invalid

if TYPE_CHECKING:
    from moorage.api.audit_log.writer import AuditBook, Sink

logger = logging.getLogger(__name__)


class AuditMiddleware:
    """What stands at the doors of this process; `around` is the application itself while the log is off."""

    def __init__(self, config: Config, book: "AuditBook | None") -> None:
        self._wanted = config.audit_log
        self._book = book

    def around(self, service: str, app: Any) -> Any:
        if self._book is None:
            return app
        return Listener(app, service, self._book, reads=self._wanted.reads, requests=self._wanted.requests)

    async def close(self) -> None:
        """After the doors, and before the region's database."""
        if self._book is not None:
            await self._book.close()


def open_audit_log(config: Config, region: RegionProcess | None) -> AuditMiddleware:
    """`region` None: this process keeps no database, and events go into the file or the log. Raises Invalid."""
    wanted = config.audit_log
    if not wanted.enabled:
        return AuditMiddleware(config, None)
    books = importlib.import_module("moorage.api.audit_log.writer")
    sinks: list[Sink] = []
    if wanted.file:
        try:
            sinks.append(books.FileSink(Path(wanted.file)))
        except OSError as refused:
            raise Invalid(f"[audit_log] file {wanted.file} cannot be written: {refused.strerror}") from refused
    if wanted.notify and region is not None:
        sinks.append(books.OutboxSink(region.databases.region, region.clock))
    elif wanted.notify:
        logger.warning(
            "audit events of this process are not sent on, for it keeps no database: they are in the file or the log"
        )
    if not sinks:
        sinks.append(books.LogSink())
    return AuditMiddleware(config, books.AuditBook(sinks, lambda: time.time_ns() // 1000))
