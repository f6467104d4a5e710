"""The transport between processes: core NATS without JetStream, because no message needs to be stored.

**A client is replaced, never repaired.**  The client library reconnects by itself after a lost connection, but closes for ever when the
server sends `-ERR` (authentication expired, too many connections, slow consumer, message too large), and notices only after half
a minute that a server has stopped answering.  So its own reconnecting is switched off: when a client ends for any reason, a new one is
made, with growing pauses, and subscribes to everything again.  A server that does not run at the start is the same case.

**Proof of life.**  Every second a PING must be answered.  If a server is frozen, or a network drops all packets, the connection stays
open, and only the missing answer shows it.  `healthy` tells whether there was an answer lately.

**Nothing before TLS.**  The library uses TLS only if the server offers it, and an attacker in between may claim that it does not.  So
if TLS is configured, credentials are sent on an encrypted connection or not at all (`_Careful`).
"""

import asyncio
import logging
import random
import ssl
from collections import Counter
from collections.abc import Sequence

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription
from typing_extensions import override

from moorage.bus.security import Security
from moorage.bus.transport import MAX_PENDING_MESSAGES, Handler, Subscription, hand_over, too_big
from moorage.model.errors import Invalid

_log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 3
"""Limit for one server; all servers together, with the first proof of life, have `OPEN_TIMEOUT_S`."""
OPEN_TIMEOUT_S = 15.0
PAUSE_FIRST_S = 0.1
PAUSE_MOST_S = 5.0
STEADY_AFTER_S = 10.0
"""If a client worked for this long, the pauses start again with the shortest one when it ends."""
PROBE_EVERY_S = 1.0
CONFIRM_WITHIN_S = 2.0
"""How long a subscription waits for its confirmation."""
PROVEN_FOR_S = 5.0
"""Without an answer for this long the bus is out; hosts without a sign of life during this time do not count as silent."""
REPLACE_AFTER_S = 10.0
"""Without an answer for this long the client is replaced."""
PONG_TIMEOUT_S = 60
"""The library's own limit, which is never reached: a PONG after it makes the library's reader fail."""
PENDING_BYTES = 1_000_000
"""Limit of bytes that wait for a server that does not read; further messages are lost."""
CLOSE_TIMEOUT_S = 1.0
REFUSED_AGAIN_S = 30.0
"""How often a subscription is tried again that the server refused."""
SAY_AGAIN_S = 30.0
"""How often the log repeats that the bus is out."""


NO_SECURITY = Security()
REFUSED = "authorization violation", "authentication"
"""Parts of a server's error when it does not accept the credentials."""
DENIED = "permissions violation"
NOT_ACCEPTED = "it does not accept the credentials of this process"


class _Careful(Client):
    """A client that sends its credentials only on an encrypted connection, if TLS is configured."""

    def __init__(self, *, tls: bool) -> None:
        super().__init__()
        self._must_be_encrypted = tls

    @override
    def _connect_command(self) -> bytes:
        writer = getattr(self._transport, "_io_writer", None)
        if self._must_be_encrypted and (writer is None or writer.get_extra_info("ssl_object") is None):
            raise errors.Error("the server offers no TLS, which [bus] tls asks for")
        return super()._connect_command()


class _NatsSubscription:
    """One subscription, which moves from client to client."""

    def __init__(self, bus: "NatsBus", pattern: str, handler: Handler) -> None:
        self._bus = bus
        self.pattern = pattern
        self._handler = handler
        self._held: NatsSubscription | None = None
        self.client: Client | None = None
        """The client on which it was subscribed last."""
        self.refused = False

    async def open(self, client: Client) -> None:
        if self._held is not None and self.client is client:
            # It was refused: the client keeps a task for it until it is ended.
            held, self._held = self._held, None
            await held.unsubscribe()
        self.client, self.refused = client, False
        self._held = await client.subscribe(self.pattern, cb=self._deliver, pending_msgs_limit=MAX_PENDING_MESSAGES)

    async def _deliver(self, message: Msg) -> None:
        await hand_over(self._handler, message.subject, message.data)

    async def close(self) -> None:
        self._bus.forget(self)
        if self._held is None:
            return
        try:
            await self._held.unsubscribe()
        except (errors.Error, OSError):
            _log.debug("already closed: %s", self.pattern)


class NatsBus:
    """A bus over NATS; see `transport.Bus`.  Made by `connect`."""

    def __init__(self, servers: Sequence[str], name: str, security: Security = NO_SECURITY) -> None:
        self._servers = list(servers)
        self._name = name
        self._security = security
        self._client: Client | None = None
        self._listeners: list[_NatsSubscription] = []
        self._published: Counter[str] = Counter()
        self._proven_at = float("-inf")
        self._out_since: float | None = None
        self._logged_at = float("-inf")
        self._open = asyncio.Event()
        self._dice = random.Random()
        self._flushes: set[asyncio.Task[None]] = set()
        self._keeper: asyncio.Task[None] | None = None
        self.outages = 0
        self.lost = 0
        self.denied = 0
        """How often the broker refused a subject for which this process has no permission."""
        self._denied_logged_at = self._refused_tried_at = float("-inf")
        self._cause = ""
        """Why the last client could not connect, if that is known better than from the error of its last try."""

    @property
    def healthy(self) -> bool:
        client = self._client
        return client is not None and client.is_connected and _now() - self._proven_at <= PROVEN_FOR_S

    @property
    def published(self) -> Counter[str]:
        return self._published

    async def publish(self, subject: str, payload: bytes) -> None:
        if too_big(subject, payload):
            return
        self._published[subject] += 1
        client = self._client
        if client is None or not self.healthy or client.pending_data_size > PENDING_BYTES:
            self.lost += 1  # the library would wait for room in its buffer while the server reads nothing
            return
        try:
            await client.publish(subject, payload)
        except (errors.Error, OSError) as error:
            self.lost += 1
            _log.debug("a message to %s is lost: %s", subject, error)

    async def subscribe(self, pattern: str, handler: Handler) -> Subscription:
        """Subscribe; messages arrive from now on, or from the moment when the bus is back."""
        listener = _NatsSubscription(self, pattern, handler)
        self._listeners.append(listener)
        client = self._client
        if client is not None:
            try:
                await listener.open(client)
                if not await self._confirmed(client):
                    _log.warning("the bus has not confirmed the subscription to %s yet", pattern)
            except (errors.Error, OSError) as error:
                _log.warning("the bus could not take the subscription to %s yet: %s", pattern, _why(error))
        return listener

    async def _confirmed(self, client: Client) -> bool:
        """Whether the server has received everything that we sent."""
        flush = asyncio.create_task(client.flush(timeout=PONG_TIMEOUT_S))
        self._flushes.add(flush)
        flush.add_done_callback(self._on_request_done)
        done, _ = await asyncio.wait({flush}, timeout=CONFIRM_WITHIN_S)
        return bool(done) and flush.exception() is None

    def _on_request_done(self, flush: "asyncio.Task[None]") -> None:
        self._flushes.discard(flush)
        if not flush.cancelled() and flush.exception() is not None:
            _log.debug("bus: %s", flush.exception())

    def forget(self, listener: _NatsSubscription) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        client, self._client = self._client, None
        if client is not None:
            await _drop(client)

    # ------------------------------------------------------------------------------------------ one client after another

    def start(self) -> None:
        """Begin to connect, and keep connected while the bus is open."""
        self._keeper = asyncio.create_task(self._keep(), name="bus")

    async def first_open(self, patience_s: float) -> bool:
        """Wait for the first connection; False when it takes longer."""
        try:
            async with asyncio.timeout(patience_s):
                await self._open.wait()
        except TimeoutError:
            return False
        return True

    async def _keep(self) -> None:
        tries = 0
        while True:
            client, closed = _Careful(tls=self._security.tls), asyncio.Event()
            began, why = _now(), "the connection was closed"
            try:
                async with asyncio.timeout(OPEN_TIMEOUT_S):
                    await self._connect(client, closed)
                began = _now()
                why = await self._live(client, closed)
            except (errors.Error, OSError, TimeoutError) as error:
                why = self._cause or _why(error)
            except Invalid as wrong:  # a file of keys that became invalid while we ran
                why = wrong.public
            except Exception as error:  # noqa: BLE001 - whatever the library does, the bus must come back
                why = repr(error)
            finally:
                self._client = None
                for flush in self._flushes:
                    flush.cancel()
                await _drop(client)
            tries = 1 if _now() - began >= STEADY_AFTER_S else tries + 1
            self._log_outage(why)
            pause_s = min(PAUSE_FIRST_S * 2.0 ** min(tries - 1, 30), PAUSE_MOST_S)
            await asyncio.sleep(pause_s * (0.5 + 0.5 * self._dice.random()))

    async def _connect(self, client: Client, closed: asyncio.Event) -> None:
        async def on_error(error: Exception) -> None:
            why = _why(error)
            if DENIED in why.lower():
                for each in self._listeners:
                    each.refused |= f'subscription to "{each.pattern}"'.lower() in why.lower()
                self._log_denied(why)
                return
            if isinstance(error, ssl.SSLError) or why.startswith(NOT_ACCEPTED):
                self._cause = why
            _log.debug("bus: %s", why)

        self._cause = ""

        async def ended() -> None:
            closed.set()

        await client.connect(
            self._servers,
            name=self._name,
            connect_timeout=CONNECT_TIMEOUT_S,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,  # each server is tried at most twice; the pauses are our own
            ping_interval=120,
            error_cb=on_error,
            closed_cb=ended,
            **self._security.options(),
        )
        await self._subscribe_all(client)
        await client.flush(timeout=PONG_TIMEOUT_S)
        if not _reads(client):
            raise errors.ConnectionClosedError
        await self._subscribe_all(client)  # subscriptions that were added meanwhile
        self._client = client
        self._prove()
        self._open.set()

    async def _subscribe_all(self, client: Client) -> None:
        while missing := [each for each in self._listeners if each.client is not client]:
            for listener in missing:
                await listener.open(client)

    async def _live(self, client: Client, closed: asyncio.Event) -> str:
        """Ask for proof of life until the client fails; returns why it failed."""
        probing = asyncio.create_task(self._probe(client))
        ending = asyncio.create_task(closed.wait())
        try:
            await asyncio.wait({probing, ending}, return_when=asyncio.FIRST_COMPLETED)
            if probing.done():
                return probing.result()
            return _why(client.last_error) if client.last_error is not None else "the connection was closed"
        finally:
            probing.cancel()
            ending.cancel()
            await asyncio.gather(probing, ending, return_exceptions=True)

    async def _probe(self, client: Client) -> str:
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            flush = asyncio.create_task(client.flush(timeout=PONG_TIMEOUT_S))
            try:
                while not (await asyncio.wait({flush}, timeout=PROBE_EVERY_S))[0]:
                    silent_s = _now() - self._proven_at
                    if silent_s > PROVEN_FOR_S:
                        self._log_outage(f"no answer for {silent_s:.0f} s")
                    if silent_s > REPLACE_AFTER_S:
                        return f"no answer for {silent_s:.0f} s"
                await flush
            finally:
                flush.cancel()  # there is nothing to cancel, or the client has failed already
            if not _reads(client):
                return "the connection was closed"
            self._prove()
            if _now() - self._refused_tried_at >= REFUSED_AGAIN_S:  # the broker may have another configuration by now
                self._refused_tried_at = _now()
                for listener in [each for each in self._listeners if each.refused]:
                    await listener.open(client)

    def _prove(self) -> None:
        now = _now()
        if now - self._proven_at > PROVEN_FOR_S and self._out_since is None and self._open.is_set():
            self._out_since = self._proven_at  # nothing was checked meanwhile: this process itself stood still
        self._proven_at = now
        if self._out_since is not None:
            self.outages += 1
            _log.warning("the message bus is back after %.0f s", now - self._out_since)
            self._out_since, self._logged_at = None, float("-inf")

    def _log_denied(self, why: str) -> None:
        """Log missing permissions: otherwise they look like a host that sends nothing."""
        self.denied += 1
        now = _now()
        if now - self._denied_logged_at >= SAY_AGAIN_S:
            self._denied_logged_at = now
            _log.warning(
                "the message bus lets this process not do all that it tries: %s (%d times so far)", why, self.denied
            )

    def _log_outage(self, why: str) -> None:
        now = _now()
        if self._out_since is None:
            self._out_since = now
        if now - self._logged_at >= SAY_AGAIN_S:
            self._logged_at = now
            where = ", ".join(server.rpartition("@")[2] for server in self._servers)  # before it are user and password
            _log.warning("the message bus at %s is out: %s; trying again until it is back", where, why)


async def connect(
    servers: Sequence[str], *, name: str = "moorage", patience_s: float = 5.0, security: Security = NO_SECURITY
) -> NatsBus:
    """Connect, and stay connected.  A bus that does not answer within `patience_s` is returned too; it logs this and keeps trying.

    Raises Invalid for keys and certificates that cannot be used.
    """
    security.check()
    bus = NatsBus(servers, name, security)
    bus.start()
    await bus.first_open(patience_s)
    return bus


def _reads(client: Client) -> bool:
    """Whether the client is connected and its reader runs: without a reader the library treats every PING as answered."""
    reader: asyncio.Task[None] | None = getattr(client, "_reading_task", None)
    return client.is_connected and reader is not None and not reader.done()


async def _drop(client: Client) -> None:
    """Close the client, without waiting for a server that no longer reads."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await client.close()
    except (errors.Error, OSError, TimeoutError) as error:
        _log.debug("a client of the bus did not close by itself: %s", _why(error))
        transport = getattr(client, "_transport", None)
        if transport is not None:
            transport.close()


def _why(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); [bus] ca says whose are"
    if isinstance(error, ssl.SSLError):
        return f"no TLS with it ({error.reason or text})"
    if any(each in text.lower() for each in REFUSED):
        return f"{NOT_ACCEPTED} ({text.removeprefix('nats: ')})"
    return text


def _now() -> float:
    return asyncio.get_running_loop().time()
