"""Who asks, for whoever listens at the door: the audit log learns it from where tokens are validated (docs/operating/audit-log.md).

A listener puts a note into the context of a request and reads it when the answer is there; where nobody listens, telling
costs one look.
"""

from contextvars import ContextVar

from moorage.model.principal import Principal


class Heard:
    """What was learnt of who asks; None: nothing yet, or their token is no good."""

    __slots__ = ("principal",)

    def __init__(self) -> None:
        self.principal: Principal | None = None


LISTENING: ContextVar[Heard | None] = ContextVar("heard", default=None)
"""Of the request that this task answers; None within calls that we make ourselves."""


def heard(principal: Principal) -> None:
    """This is who asks."""
    listening = LISTENING.get()
    if listening is not None:
        listening.principal = principal
