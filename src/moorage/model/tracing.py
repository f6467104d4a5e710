"""What is being done, as spans, for who measures it and who traces it.

    with span(Kind.CALL, "network: POST ports") as doing:
        ...
        doing.came_to("201")

Every room says what it does here, and knows neither Prometheus nor OpenTelemetry: `main/observe` watches, where it is configured.  While
nobody does, no span is made.
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
    """Somebody asks one of our services."""
    OPERATION = "operation"
    """A conductor executes a saga, from where it takes it up to where it leaves it."""
    STEP = "step"
    """One step of it, with all its tries, there or back."""
    CALL = "call"
    """A call to a neighbour."""
    COMMAND = "command"
    """A host is commanded, until its answer comes."""
    OBEY = "obey"
    """A host obeys a command."""
    DRIVE = "drive"
    """Its driver does the work."""


OK, CANCELLED = "ok", "cancelled"


class Span:
    """One thing that is being done."""

    __slots__ = ("_seen_by", "began", "facts", "kind", "name", "outcome", "parent", "seed", "took_s")

    def __init__(self, kind: SpanType, name: str, parent: str, seed: str, facts: dict[str, Any]) -> None:
        self.kind = kind
        self.name = name
        """Of a bounded set: no ids are in it."""
        self.parent = parent
        """The `traceparent` of what it is part of, where that was carried here; empty: it was not."""
        self.seed = seed
        """A request id: what is not part of anything, and has the same one, is of one trace."""
        self.facts = facts
        self.outcome = ""
        self.began = 0.0
        self.took_s = 0.0
        self._seen_by: list[tuple[Watcher, Any]] = []

    def annotate(self, **facts: Any) -> None:
        """Add to what is known of it."""
        self.facts.update(facts)

    def called(self, name: str) -> None:
        """It is known only now what it is."""
        self.name = name

    def came_to(self, outcome: str) -> None:
        """How it ended, in a word of a bounded set; without it: `ok`, or the kind of the exception that ended it."""
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
    """Hears of every span of this process. It must not raise, and must be quick."""

    def begun(self, span: Span) -> Any:
        """What is returned is given back when the span ends."""
        ...

    def ended(self, span: Span, state: Any, failure: BaseException | None) -> None: ...

    def traceparent(self) -> str:
        """What others are to be told of what is being done here (W3C Trace Context); empty: nothing."""
        ...


class _Unseen(Span):
    """Stands for every span while nobody watches."""

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
_asked: ContextVar[Span] = ContextVar("moorage_request", default=UNSEEN)


def request(service: str) -> Span:
    """The request that this service answers here: its route is said there, and its `seed` is the id that it has, unless that is empty.

    A service in the same process that is asked on its behalf answers another one, which nobody sees.
    """
    asked = _asked.get()
    return asked if asked.facts.get("service") == service else UNSEEN


@contextmanager
def answering(asked: Span) -> Iterator[None]:
    """Within it, `request()` is this one."""
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)


def watch(watcher: Watcher) -> Callable[[], None]:
    """Hear of all spans that begin from now on; call what is returned to end that."""
    global _watchers
    _watchers = (*_watchers, watcher)

    def leave() -> None:
        global _watchers
        _watchers = tuple(each for each in _watchers if each is not watcher)

    return leave


def watched() -> bool:
    """Whether anybody hears of spans."""
    return bool(_watchers)


def span(kind: SpanType, name: str, *, parent: str = "", seed: str = "", **facts: Any) -> Span:
    """What is about to be done; a context manager. `parent`, `seed`: see `Span`; ids belong into `facts`."""
    if not _watchers:
        return UNSEEN
    return Span(kind, name, parent, seed, facts)


def traceparent() -> str:
    """For a header or a message: what is being done here and now; empty while nobody traces it."""
    for watcher in _watchers:
        if found := watcher.traceparent():
            return found
    return ""


def _is_cancel(kind: type[BaseException]) -> bool:
    return issubclass(kind, asyncio.CancelledError | GeneratorExit)
