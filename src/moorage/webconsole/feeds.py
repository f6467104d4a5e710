"""Feeds: one poll of the API for each topic and scope, however many browsers follow it.

The first follower reads everything with their own token. A later follower with the same project and roles makes one cheap call with
their own token, and then gets the feed's present state. Such a proof is good for `PROOF_S`: whoever follows or asks after that makes the
call again, so a user who was disabled or lost a role sees nothing more of others' polls.

The load is limited: after each poll there is a pause of at least `REST_TIMES` its duration, so one feed keeps the API busy for less than a
twentieth of the time, for any size of fleet.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import msgspec

from moorage.webconsole.sessions import Session, Sessions
from moorage.webconsole.topics import SessionOver, TopicReader, TopicState, parse
from moorage.webconsole.upstream import AWAY, Down, Upstream, UpstreamError

LIVELY_S, STILL_S = 1.0, 5.0
"""Pause between polls while something is under way, and while nothing is."""
REST_TIMES = 20.0
WOKEN_S = 0.3
"""Pause before the poll after a follower's change."""
INLINE_MAX_BYTES = 64 * 1024
"""Larger states are fetched by the browser, compressed."""
FEEDS_MAX = 1_000
HEARTBEAT_S = 15.0
PROOF_S = 60.0
"""How long the API's answer to a token is good for what others' polls bring; the API itself may remember a token for as long again."""
PROVED_MAX = 1_000
"""Limit of topics that a session is known to be allowed to see."""

log = logging.getLogger(__name__)


class Full(Exception):
    """Raised when this process follows as many feeds as it may."""


@dataclass
class FeedState:
    """The present state of a feed; a new one replaces it when something changes."""

    version: int = 0
    body: bytes = b""
    trouble: bytes = b""
    """A sentence for people, as JSON; empty: the API answers."""


@dataclass(eq=False)
class Feed:
    """One topic in one scope."""

    key: tuple[str, ...]
    topic: str
    state: FeedState = field(default_factory=FeedState)
    lively: bool = False
    took_s: float = 0.0
    followers: list[Session] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    turn: int = 0

    def take(self, state: TopicState) -> None:
        """Take the result of a poll; browsers get it if it is new."""
        body = msgspec.json.encode(state.data)
        self.lively = state.lively
        if body != self.state.body or self.state.trouble:
            self._show(FeedState(self.state.version + 1, body))

    def report_trouble(self, trouble: UpstreamError) -> None:
        report = _described(trouble)
        if report != self.state.trouble:
            self._show(FeedState(self.state.version + 1, self.state.body, report))

    def _show(self, state: FeedState) -> None:
        self.state = state
        self.changed.set()
        self.changed = asyncio.Event()

    def pause_s(self) -> float:
        return max(LIVELY_S if self.lively else STILL_S, REST_TIMES * self.took_s)


class Feeds:
    """All feeds of the console."""

    def __init__(
        self,
        upstream: Upstream,
        sessions: Sessions,
        *,
        shared: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`shared`: whether users with the same roles in the same project follow the same feed."""
        self._upstream = upstream
        self._sessions = sessions
        self._clock = clock
        self._shared = shared
        self._feeds: dict[tuple[str, ...], Feed] = {}
        self._locks: WeakValueDictionary[tuple[str, ...], asyncio.Lock] = WeakValueDictionary()
        self.closing = asyncio.Event()
        self.polls = 0

    def __len__(self) -> int:
        return len(self._feeds)

    async def snapshot(self, session: Session, text: str) -> bytes:
        """Return the topic's present state for this user.

        Raises Unknown for an unknown topic, Trouble when a service refuses or fails, SessionOver, and Full when there are too many feeds.
        """
        return (await self._open(session, text)).state.body

    async def follow(self, session: Session, text: str) -> AsyncIterator[bytes]:
        """Server-sent events, until the session ends or the browser goes. Raises Unknown, Trouble, SessionOver, Full before the first."""
        return self._events(session, await self._open(session, text))

    def wake(self, session: Session) -> None:
        """Poll all feeds of the session's scope soon, because the user changed something."""
        for feed in self._feeds.values():
            if feed.key == self._key(session, feed.topic):
                feed.woken.set()

    async def close(self) -> None:
        """End all streams and polls."""
        self.closing.set()
        tasks = [feed.task for feed in self._feeds.values() if feed.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------------------------ followers

    async def _open(self, session: Session, text: str) -> Feed:
        """The feed, after a check that this session may see it. Of many sessions that come at once, one reads everything."""
        topic, _, _, _ = parse(text)
        key = self._key(session, topic)
        async with self._locks.setdefault(key, asyncio.Lock()):
            feed = self._feeds.get(key)
            if feed is None:
                if len(self._feeds) >= FEEDS_MAX:
                    raise Full
                state, took_s = await self._ask(session, topic)
                feed = Feed(key, topic, took_s=took_s)
                feed.take(state)
                self._begin(feed)
                return feed
        if not self._is_proved(session, topic):
            await self._prove(session, topic)
        return feed

    def _is_proved(self, session: Session, topic: str) -> bool:
        return self._clock() - session.proved.get(topic, float("-inf")) < PROOF_S

    def _key(self, session: Session, topic: str) -> tuple[str, ...]:
        identity = session.identity
        return topic, *identity.scope, *(() if self._shared else (identity.user_id,))

    def _begin(self, feed: Feed) -> None:
        self._feeds[feed.key] = feed
        feed.task = asyncio.create_task(self._poll(feed), name=f"feed-{feed.topic}")

    def _join(self, session: Session, feed: Feed) -> Feed:
        """Follow the feed; it may have ended since it was opened, because it had no followers."""
        feed = self._feeds.get(feed.key, feed)
        if feed.key not in self._feeds:
            self._begin(feed)
        feed.followers.append(session)
        return feed

    async def _events(self, session: Session, feed: Feed) -> AsyncIterator[bytes]:
        """Send events. The session follows only from the first event on: a browser that is gone before has started nothing."""
        feed = self._join(session, feed)
        sent = 0
        closing = asyncio.create_task(self.closing.wait())
        try:
            while not self.closing.is_set():
                if not self._sessions.holds(session):
                    self._sessions.end(session)
                    yield _event("over", b"{}")
                    return
                if not self._is_proved(session, feed.topic):
                    try:
                        await self._prove(session, feed.topic)
                    except SessionOver:
                        continue
                    except UpstreamError as trouble:
                        yield _event("trouble", _described(trouble))
                        await asyncio.wait({closing}, timeout=HEARTBEAT_S)
                        continue
                changed, state = feed.changed, feed.state
                if state.version != sent:
                    sent = state.version
                    yield _of(state)
                waiting = asyncio.create_task(changed.wait())
                try:
                    done, _ = await asyncio.wait(
                        {waiting, closing}, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    waiting.cancel()
                if not done:
                    yield b": still here\n\n"
        finally:
            closing.cancel()
            feed.followers.remove(session)

    # ------------------------------------------------------------------------------------------------ polls

    async def _ask(self, session: Session, topic: str) -> tuple[TopicState, float]:
        """Read the topic with this session's token, and measure the time; end the session if the token is no longer valid."""
        known, function, id, words = parse(topic)
        began = self._clock()
        self.polls += 1
        try:
            state = await function(TopicReader(self._upstream, session.identity), id, words)
        except SessionOver:
            self._sessions.end(session)
            raise
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as odd:
            log.exception("the topic %s could not be read", topic)
            raise Down(
                AWAY, "The API answered in a form that this page does not know; the console's log has more."
            ) from odd
        self._note(session, known)
        return state, self._clock() - began

    async def _prove(self, session: Session, topic: str) -> None:
        """Make one cheap call with this session's token, to check that it may see the feed."""
        try:
            await TopicReader(self._upstream, session.identity).get("/ext/operations", limit=1)
        except SessionOver:
            self._sessions.end(session)
            raise
        self._note(session, topic)

    def _note(self, session: Session, topic: str) -> None:
        if len(session.proved) >= PROVED_MAX:
            session.proved.clear()
        session.proved[topic] = self._clock()

    async def _poll(self, feed: Feed) -> None:
        """Poll until there are no followers; the first follower has read the first state."""
        while True:
            await self._pause(feed)
            if not feed.followers:
                del self._feeds[feed.key]
                return
            feed.turn = (feed.turn + 1) % len(feed.followers)
            session = feed.followers[feed.turn]
            try:
                state, feed.took_s = await self._ask(session, feed.topic)
            except SessionOver:
                feed.changed.set()  # this follower is told that the session is over, and the next poll uses another token
                feed.changed = asyncio.Event()
                feed.woken.set()
            except UpstreamError as trouble:
                feed.report_trouble(trouble)
            else:
                feed.take(state)

    async def _pause(self, feed: Feed) -> None:
        try:
            async with asyncio.timeout(feed.pause_s()):
                await feed.woken.wait()
            await asyncio.sleep(WOKEN_S)
        except TimeoutError:
            pass
        feed.woken.clear()


def _described(trouble: UpstreamError) -> bytes:
    return msgspec.json.encode({"status": trouble.status, "sentence": trouble.sentence})


def _of(state: FeedState) -> bytes:
    if state.trouble:
        return _event("trouble", state.trouble)
    if len(state.body) > INLINE_MAX_BYTES:
        mark = hashlib.sha256(state.body).hexdigest()[:16]
        return _event("changed", msgspec.json.encode({"version": mark}))
    return _event("data", state.body)


def _event(name: str, body: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + body + b"\n\n"
