"""`[audit_log]` of the configuration."""

import msgspec


class AuditLog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The audit log: who did what, from where, and with what outcome. (`[audit]` is another thing: it compares records.)"""

    enabled: bool = False
    reads: bool = False
    """Whether reads are recorded too; else only changes, logins and refusals."""
    requests: bool = False
    """An event before each request as well (`audit.http.request`), not only with its answer."""
    file: str = ""
    """Lines of JSON go here; empty: into the process's log, unless `notify` is on."""
    notify: bool = False
    """Whether events are sent through the outbox to the topics of notifications, as servers' notifications are."""
