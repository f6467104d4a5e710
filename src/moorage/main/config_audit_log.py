"""`[audit_log]` of the configuration."""

import msgspec


class AuditLog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who did what, from where and with what outcome; `[audit]` is another thing, which compares records."""

    enabled: bool = False
    reads: bool = False
    """Of reads too; else of changes, logins and refusals."""
    requests: bool = False
    """An event before each request as well (`audit.http.request`), not only with its answer."""
    file: str = ""
    """Lines of JSON go here; empty: into the process's log, unless `notify` is on."""
    notify: bool = False
    """Through the outbox, like notifications of servers: to their topics."""
