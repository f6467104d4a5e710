"""One thing a saga says of its server, before it is stamped with who, when and which."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from moorage.model.notification import Service, StateUpdate, Trouble
from moorage.model.server import FlavorCopy, Server
from moorage.saga import Cause, Line, Run


@dataclass(frozen=True)
class ServerEvent:
    event: str
    server: Server
    """As it is told: the record after the event."""
    attempt: int = 0
    host: str | None = None
    """Of the host that would have said it; None: it was not at any host."""
    service: Service = "conductor"
    """Who says it where no host does."""
    for_host: Service = "compute"
    """Who says it where there is a host: its own agent, as a rule."""
    trouble: Trouble | None = None
    update: StateUpdate | None = None
    image: str = ""
    """The image that is made of it."""
    volume: str | None = None
    """Of an event of a volume: which."""
    new_volume: str | None = None
    new_flavor: FlavorCopy | None = None
    """That it is about to have."""


@dataclass(frozen=True)
class EventSource:
    """What is said of one kind of operation."""

    input_type: type[msgspec.Struct]
    accepted: Callable[[Any], Iterator[ServerEvent]]
    """From what was asked."""
    events: Callable[[Run[Any, Any], Line, Server | None], Iterator[ServerEvent]]
    """The third is the record as a step found it, if one looked for who told the saga before."""


def changed(before: Server, after: Server, **also: Any) -> ServerEvent:
    """`update`: the states of a server were others before."""
    was = StateUpdate(before.vm_state.value, None if before.task_state is None else before.task_state.value)
    return ServerEvent("update", after, update=was, **also)


def trouble_of(cause: Cause) -> Trouble:
    """The public part of a cause: what is private stays in the journal."""
    return Trouble(kind=cause.kind, message=cause.public, step=cause.step)
