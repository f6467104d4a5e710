"""What a task knows of the request or operation that it works for: every context variable that packages share, declared here.

A context variable follows a task into the tasks that it starts.  Where each is set and who reads it:

    variable            set by                                read by
    global_request_id   Compute API, conductor                clients, for the header of every call; acceptance of operations; the log
    request_id          Compute API                           the log
    operation_id        conductor                             the log
    lease_left          conductor                             clients: no call outlasts the lease that it is made under
    caller              audit log                             whoever validates a token writes the principal into it
    sql_label           whoever runs SQL                      the counters of statements and commits
    checking_database   the watch over databases              databases: a barred one answers only to this check

Two modules keep variables that nobody else uses: `model/tracing.py` (the span of the request that is answered) and
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
"""`req-…` of the work under way, which other services are sent: the caller's own id where there is one."""
request_id: ContextVar[str] = ContextVar("log_request_id", default="")
"""`req-…`, as the answer to the request has it."""
operation_id: ContextVar[str] = ContextVar("log_operation_id", default="")
lease_left: ContextVar[Callable[[], float] | None] = ContextVar("lease_left", default=None)
"""Seconds that the lease we act under still holds, counted from before its renewal was sent; None: under no lease."""
caller: ContextVar[RequestCaller | None] = ContextVar("caller", default=None)
"""Of the request that this task answers; None when nobody wants to know, and within calls that this process makes itself."""
sql_label: ContextVar[str] = ContextVar("moorage_sql_label", default="")
"""The step or call that statements are counted under."""
checking_database: ContextVar[bool] = ContextVar("checking_database", default=False)
"""True while a barred database is checked."""


def record_caller(principal: Principal) -> None:
    """Note whose token this request has, where an audit log listens."""
    noted = caller.get()
    if noted is not None:
        noted.principal = principal
