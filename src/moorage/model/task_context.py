"""All context variables that packages share: what a task knows about the request or operation for which it works.

A context variable follows a task into the tasks that it starts.  Where each is set and who reads it:

    variable            set by                                read by
    global_request_id   Compute API, conductor                clients, for the header of every call; acceptance of operations; the log
    request_id          Compute API                           the log
    operation_id        conductor                             the log
    lease_left          conductor                             clients: no call outlasts the lease that it is made under
    caller              audit log                             the code that validates a token writes the principal into it
    sql_label           code that runs SQL                    the counters of statements and commits
    checking_database   the watch over databases              databases: a barred one answers only to this check

Two modules have variables that only they use: `model/tracing.py` (the span of the request that is answered) and
`main/observability/tracing.py` (the exporter's own).
"""

from collections.abc import Callable
from contextvars import ContextVar

from moorage.model.principal import Principal


class RequestCaller:
    """The principal of a request; None until a token was validated."""

    __slots__ = ("principal",)

    def __init__(self) -> None:
        self.principal: Principal | None = None


global_request_id: ContextVar[str] = ContextVar("request_id", default="")
"""`req-…` of the work under way, which is sent to other services: the caller's own id if there is one."""
request_id: ContextVar[str] = ContextVar("log_request_id", default="")
"""`req-…`, as the answer to the request has it."""
operation_id: ContextVar[str] = ContextVar("log_operation_id", default="")
lease_left: ContextVar[Callable[[], float] | None] = ContextVar("lease_left", default=None)
"""Seconds that the task's lease still holds, counted from before its renewal was sent; None: there is no lease."""
caller: ContextVar[RequestCaller | None] = ContextVar("caller", default=None)
"""The caller of the request that this task answers; None without an audit log, and in calls that this process makes itself."""
sql_label: ContextVar[str] = ContextVar("moorage_sql_label", default="")
"""The step or call that statements are counted under."""
checking_database: ContextVar[bool] = ContextVar("checking_database", default=False)
"""True while a barred database is checked."""


def record_caller(principal: Principal) -> None:
    """Record the principal of this request's token, if there is an audit log."""
    noted = caller.get()
    if noted is not None:
        noted.principal = principal
