"""Builds the audit log of one process from the configuration: a middleware around each application, and where events go.

While the audit log is off, no middleware is added and its library is not imported.
"""

import importlib
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moorage.api.audit_log.middleware import AuditedApp
from moorage.main.composition import RegionProcess
from moorage.main.config import Config
from moorage.model.errors import Invalid

if TYPE_CHECKING:
    from moorage.api.audit_log.writer import AuditBook, Sink

logger = logging.getLogger(__name__)


class AuditMiddleware:
    """Adds the audit log to the applications of this process; while the log is off, `around` returns the application itself."""

    def __init__(self, config: Config, book: "AuditBook | None") -> None:
        self._wanted = config.audit_log
        self._book = book

    def around(self, service: str, app: Any) -> Any:
        if self._book is None:
            return app
        return AuditedApp(app, service, self._book, reads=self._wanted.reads, requests=self._wanted.requests)

    async def close(self) -> None:
        """Close it. Call this after the HTTP servers are closed, and before the region's database is closed."""
        if self._book is not None:
            await self._book.close()


def open_audit_log(config: Config, region: RegionProcess | None) -> AuditMiddleware:
    """Open the audit log as the configuration asks.

    `region` None: this process has no database, so events go into the file or the log.
    Raises Invalid when the file cannot be written.
    """
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
