"""One event of a saga's server, before it gets time, publisher and request id."""

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
    """The record after the event."""
    attempt: int = 0
    host: str | None = None
    """The host that would have sent it; None: no host was involved."""
    service: Service = "conductor"
    """The sender when no host is involved."""
    for_host: Service = "compute"
    """The sender when a host is involved: usually its own agent."""
    trouble: Trouble | None = None
    update: StateUpdate | None = None
    image: str = ""
    """The image that is made from it."""
    volume: str | None = None
    """The volume of a volume's event."""
    new_volume: str | None = None
    new_flavor: FlavorCopy | None = None
    """The flavor that it is about to have."""


@dataclass(frozen=True)
class EventSource:
    """The notifications of one kind of operation."""

    input_type: type[msgspec.Struct]
    accepted: Callable[[Any], Iterator[ServerEvent]]
    """Events at acceptance, from the input."""
    events: Callable[[Run[Any, Any], Line, Server | None], Iterator[ServerEvent]]
    """Events of a journal line. The third argument is the record as a step found it, if an earlier executor's step read
    it.
    """


def changed(before: Server, after: Server, **also: Any) -> ServerEvent:
    """`update`: the server's states changed."""
    update = StateUpdate(before.vm_state.value, None if before.task_state is None else before.task_state.value)
    return ServerEvent("update", after, update=update, **also)


def trouble_of(cause: Cause) -> Trouble:
    """The public part of a cause: the private part stays in the journal."""
    return Trouble(kind=cause.kind, message=cause.public, step=cause.step)
