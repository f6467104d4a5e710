"""The Protocol of a transport, with two implementations, `memory` and `nats`; and the parts that both share.

A transport may lose, repeat and reorder messages.  `publish` does not raise if there is no subscriber or no connection: everything that
must happen is recorded in SQL and repeated.  Handlers of one subscription are called one after another, so they must be quick: a
handler with more work starts a task.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from moorage.bus.log_limiter import Seldom

Handler: TypeAlias = Callable[[str, bytes], Awaitable[None]]

MAX_PENDING_MESSAGES = 10_000
"""Limit for each subscription; beyond it the oldest message is lost."""
MAX_MESSAGE_BYTES = 1_000_000

_log = logging.getLogger(__name__)


class Subscription(Protocol):
    @property
    def refused(self) -> bool:
        """Whether the broker does not let this process subscribe there."""
        ...

    async def close(self) -> None: ...


class Bus(Protocol):
    @property
    def healthy(self) -> bool:
        """False while the connection is known to be out."""
        ...

    @property
    def outages(self) -> int:
        """How often the connection was out and came back; a periodic check of this number misses no outage."""
        ...

    @property
    def lost(self) -> int:
        """How many messages were not sent, because the connection was out."""
        ...

    @property
    def published(self) -> Counter[str]:
        """How many messages were sent, by subject; tests check their budgets with it."""
        ...

    async def publish(self, subject: str, payload: bytes) -> None: ...

    async def subscribe(self, pattern: str, handler: Handler) -> Subscription: ...

    async def close(self) -> None: ...


broken = Seldom()
"""Handlers of this process that failed; the first failure of each half minute is logged."""


async def hand_over(handler: Handler, subject: str, payload: bytes) -> None:
    """Pass one message to one handler; a handler that fails loses this message and no other."""
    try:
        await handler(subject, payload)
    except Exception:  # noqa: BLE001 - a boundary: whatever a handler does, the next message is delivered
        if broken.due():
            _log.exception("a handler of %s failed; its message is lost (%d so far)", subject, broken.count)


def too_big(subject: str, payload: bytes) -> bool:
    if len(payload) <= MAX_MESSAGE_BYTES:
        return False
    _log.error("a message of %d bytes to %s is not sent: the limit is %d", len(payload), subject, MAX_MESSAGE_BYTES)
    return True
