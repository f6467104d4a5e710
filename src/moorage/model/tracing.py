"""Spans: what a process does, for metrics and traces.

    with span(Kind.CALL, "network: POST ports") as doing:
        ...
        doing.came_to("201")

Every package reports here what it does, and depends neither on Prometheus nor on OpenTelemetry: `main/observability` watches the spans if it
is configured.  Without a watcher no span is made.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol

from typing_extensions import override


class SpanType(StrEnum):
    REQUEST = "request"
    """One of our services answers a request."""
    OPERATION = "operation"
    """A conductor executes a saga, from the moment it starts or adopts it until it ends or leaves it."""
    STEP = "step"
    """One step of a saga with all its tries: its do or its undo."""
    CALL = "call"
    """A call to another service."""
    COMMAND = "command"
    """A command to a host, until its answer comes."""
    OBEY = "obey"
    """A host executes a command."""
    DRIVE = "drive"
    """The driver's part of a command."""


OK, CANCELLED = "ok", "cancelled"


class Span:
    """One thing that a process does, with its duration."""

    __slots__ = ("_seen_by", "began", "facts", "kind", "name", "outcome", "parent", "seed", "took_s")

    def __init__(self, kind: SpanType, name: str, parent: str, seed: str, facts: dict[str, Any]) -> None:
        self.kind = kind
        self.name = name
        """Its name, from a bounded set: it contains no ids."""
        self.parent = parent
        """The `traceparent` that was passed to it; empty: none was."""
        self.seed = seed
        """A request id: spans without a parent that have the same one belong to one trace."""
        self.facts = facts
        self.outcome = ""
        self.began = 0.0
        self.took_s = 0.0
        self._seen_by: list[tuple[Watcher, Any]] = []

    def annotate(self, **facts: Any) -> None:
        """Add facts to the span."""
        self.facts.update(facts)

    def called(self, name: str) -> None:
        """Set the name, if it is known only now."""
        self.name = name

    def came_to(self, outcome: str) -> None:
        """Set the outcome, from a bounded set; without it: `ok`, or the kind of the exception that ended it."""
        self.outcome = outcome

    def __enter__(self) -> "Span":
        self.began = time.perf_counter()
        self._seen_by = [(watcher, watcher.begun(self)) for watcher in _watchers]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.took_s = time.perf_counter() - self.began
        if not self.outcome:
            self.outcome = OK if kind is None else CANCELLED if _is_cancel(kind) else kind.__name__
        for watcher, state in reversed(self._seen_by):
            watcher.ended(self, state, failure)


class Watcher(Protocol):
    """Is called for every span of this process. It must not raise, and must be quick."""

    def begun(self, span: Span) -> Any:
        """A span has begun. The returned value is passed to `ended`."""
        ...

    def ended(self, span: Span, state: Any, failure: BaseException | None) -> None: ...

    def traceparent(self) -> str:
        """Return the present span for other processes (W3C Trace Context); empty: none."""
        ...


class _Unseen(Span):
    """Replaces every span while there is no watcher."""

    __slots__ = ()

    @override
    def annotate(self, **facts: Any) -> None:
        """Nobody asks."""

    @override
    def called(self, name: str) -> None:
        """Nobody asks."""

    @override
    def came_to(self, outcome: str) -> None:
        """Nobody asks."""

    @override
    def __enter__(self) -> Span:
        return self

    @override
    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nobody asks."""


UNSEEN = _Unseen(SpanType.STEP, "", "", "", {})

_watchers: tuple[Watcher, ...] = ()
_request_span: ContextVar[Span] = ContextVar("moorage_request", default=UNSEEN)


def request(service: str) -> Span:
    """Return the span of the request that this service answers; its route is set there, and its `seed` is the request's id, if any.

    If a service in the same process is called for this request, that service gets a span that is not watched.
    """
    current = _request_span.get()
    return current if current.facts.get("service") == service else UNSEEN


@contextmanager
def answering(request_span: Span) -> Iterator[None]:
    """Make `request()` return this span within the block."""
    token = _request_span.set(request_span)
    try:
        yield
    finally:
        _request_span.reset(token)


def watch(watcher: Watcher) -> Callable[[], None]:
    """Let the watcher see all spans that begin from now on; call the returned function to end this."""
    global _watchers
    _watchers = (*_watchers, watcher)

    def leave() -> None:
        global _watchers
        _watchers = tuple(each for each in _watchers if each is not watcher)

    return leave


def watched() -> bool:
    """Tell whether there is a watcher."""
    return bool(_watchers)


def span(kind: SpanType, name: str, *, parent: str = "", seed: str = "", **facts: Any) -> Span:
    """Make a span; a context manager. `parent`, `seed`: see `Span`; ids belong into `facts`."""
    if not _watchers:
        return UNSEEN
    return Span(kind, name, parent, seed, facts)


def traceparent() -> str:
    """Return the `traceparent` of the present span, for a header or a message; empty if it is not traced."""
    for watcher in _watchers:
        if carried := watcher.traceparent():
            return carried
    return ""


def _is_cancel(kind: type[BaseException]) -> bool:
    return issubclass(kind, asyncio.CancelledError | GeneratorExit)
