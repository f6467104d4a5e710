"""The carrier between processes: core NATS, no JetStream; nothing is kept, for nothing needs keeping (HOUSE decision 5)."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlsplit

import nats
from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from moorage.bus.carrier import MAX_PENDING_MESSAGES, Handler, Subscription, hand_over, too_big
from moorage.model.errors import Unavailable

_log = logging.getLogger(__name__)

DEFAULT_PORT = 4222
RECONNECT_S = 0.2
PENDING_BYTES = 8_000_000
"""Kept for the time of a reconnect; beyond it, messages are lost."""


class _Listener:
    def __init__(self, subscription: NatsSubscription) -> None:
        self._subscription = subscription

    async def close(self) -> None:
        try:
            await self._subscription.unsubscribe()
        except (errors.ConnectionClosedError, errors.BadSubscriptionError):
            _log.debug("already closed: %s", self._subscription.subject)


class NatsBus:
    """See `carrier.Bus`.  Made by `connect`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._published: Counter[str] = Counter()
        self.lost = 0

    @property
    def healthy(self) -> bool:
        return self._client.is_connected

    @property
    def published(self) -> Counter[str]:
        return self._published

    async def publish(self, subject: str, payload: bytes) -> None:
        if too_big(subject, payload):
            return
        self._published[subject] += 1
        try:
            await self._client.publish(subject, payload)
        except (errors.Error, OSError) as error:
            self.lost += 1
            _log.warning("a message to %s is lost: %s", subject, error)

    async def subscribe(self, pattern: str, handler: Handler) -> Subscription:
        async def deliver(message: Msg) -> None:
            await hand_over(handler, message.subject, message.data)

        subscription = await self._client.subscribe(pattern, cb=deliver, pending_msgs_limit=MAX_PENDING_MESSAGES)
        await self.settle()
        return _Listener(subscription)

    async def settle(self, patience_s: int = 5) -> None:
        """Wait until the server has heard all we said; a subscription counts from then on."""
        try:
            await self._client.flush(timeout=patience_s)
        except (errors.Error, OSError) as error:
            _log.warning("the bus did not answer within %d s: %s", patience_s, error)

    async def close(self) -> None:
        await self._client.close()


async def connect(servers: Sequence[str], *, name: str = "moorage", patience_s: float = 20.0) -> NatsBus:
    """Wait until one of the servers listens, then connect for good: lost connections come back by themselves.

    The port is polled first because the client's own first try gives up in ways that are hard to tell from a wrong address.
    """
    await _until_one_listens(servers, patience_s)

    async def say(error: Exception) -> None:
        _log.warning("bus: %s", str(error) or type(error).__name__)

    async def back() -> None:
        _log.info("bus: connected again")

    client = await nats.connect(
        list(servers),
        name=name,
        connect_timeout=5,
        reconnect_time_wait=RECONNECT_S,
        max_reconnect_attempts=-1,
        ping_interval=10,
        max_outstanding_pings=2,
        pending_size=PENDING_BYTES,
        error_cb=say,
        reconnected_cb=back,
    )
    return NatsBus(client)


async def _until_one_listens(servers: Sequence[str], patience_s: float) -> None:
    last: OSError | None = None
    try:
        async with asyncio.timeout(patience_s):
            while True:
                for server in servers:
                    try:
                        at = urlsplit(server if "//" in server else f"nats://{server}")
                        _, writer = await asyncio.open_connection(at.hostname or "127.0.0.1", at.port or DEFAULT_PORT)
                    except OSError as error:
                        last = error
                    else:
                        writer.close()
                        return
                await asyncio.sleep(0.05)
    except TimeoutError:
        where = ", ".join(server.rpartition("@")[2] for server in servers)  # before it stand user and password
        raise Unavailable(
            "the message bus is not reachable", private=f"{where} after {patience_s:.0f} s: {last}"
        ) from last
