"""What a carrier is: two of them, `memory` and `nats`, behind one Protocol; and what both do the same way.

A carrier may lose, repeat and reorder.  `publish` never raises because nobody listens or the way is cut: what must happen stands
in SQL and is asked again.  Handlers of one subscription are called one after the other, so they must be quick: whoever has work to do
begins a task.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from moorage.bus.log_limiter import Seldom

Handler: TypeAlias = Callable[[str, bytes], Awaitable[None]]

MAX_PENDING_MESSAGES = 10_000
"""Per subscription; beyond that the oldest is lost."""
MAX_MESSAGE_BYTES = 1_000_000

_log = logging.getLogger(__name__)


class Subscription(Protocol):
    async def close(self) -> None: ...


class Bus(Protocol):
    @property
    def healthy(self) -> bool:
        """False while the way to the others is known to be cut."""
        ...

    @property
    def outages(self) -> int:
        """How often the way has been cut and was open again: whoever looks now and then misses none."""
        ...

    @property
    def lost(self) -> int:
        """How many messages did not go out, for the way was cut."""
        ...

    @property
    def published(self) -> Counter[str]:
        """How many messages went out, by subject: what budgets are counted from."""
        ...

    async def publish(self, subject: str, payload: bytes) -> None: ...

    async def subscribe(self, pattern: str, handler: Handler) -> Subscription: ...

    async def close(self) -> None: ...


broken = Seldom()
"""Handlers of this process that broke; the first of each half minute is logged."""


async def hand_over(handler: Handler, subject: str, payload: bytes) -> None:
    """One message to one handler; a handler that breaks loses this message and no other."""
    try:
        await handler(subject, payload)
    except Exception:  # noqa: BLE001 - a boundary: whatever a handler does, the next message is delivered
        if broken.due():
            _log.exception("a handler of %s broke; its message is lost (%d so far)", subject, broken.count)


def too_big(subject: str, payload: bytes) -> bool:
    if len(payload) <= MAX_MESSAGE_BYTES:
        return False
    _log.error("a message of %d bytes to %s is not sent: the limit is %d", len(payload), subject, MAX_MESSAGE_BYTES)
    return True
