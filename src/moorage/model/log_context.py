"""On whose behalf this task works, for the log: set where a request or an operation begins, read by whoever writes a record."""

from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("log_request_id", default="")
"""`req-…`, as the answer to the request says it."""
operation_id: ContextVar[str] = ContextVar("log_operation_id", default="")
