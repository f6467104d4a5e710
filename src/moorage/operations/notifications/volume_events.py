"""Notifications of volumes: attached, detached, swapped, with Nova's names and the volume's id.

Nova sends no update of the server's state for them, because it does not change.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from moorage.model.server import Server
from moorage.operations.context import SagaContext
from moorage.operations.notifications.event import EventSource, ServerEvent, trouble_of
from moorage.operations.steps.server_action import now_us
from moorage.operations.steps.volumes import without_device
from moorage.operations.volumes import attach_volume, detach_volume, swap_volume
from moorage.saga import Line, Run
from moorage.saga.journal import Ended, Unwinding


def of_volume(
    kind: type[msgspec.Struct],
    word: str,
    after: Callable[[Run[Any, SagaContext], Server | None], Server],
    *,
    reports_error: bool = True,
) -> EventSource:
    """`WORD.start` when it is accepted, `WORD.end` when it is done, `WORD.error` when it failed and Nova has such an
    event.
    """

    def event_of(input: Any, event: str, server: Server, **also: Any) -> ServerEvent:
        old, new = getattr(input, "volume", None), getattr(input, "new_volume", None)
        return ServerEvent(f"{word}.{event}", server, host=input.server.host, volume=old, new_volume=new, **also)

    def accepted(input: Any) -> Iterator[ServerEvent]:
        yield event_of(input, "start", input.server)

    def events(run: Run[Any, SagaContext], line: Line, written: Server | None) -> Iterator[ServerEvent]:
        if isinstance(line, Ended) and line.status == "done":
            yield event_of(run.input, "end", after(run, written))
        elif isinstance(line, Unwinding) and line.reason == "failed" and reports_error:
            yield event_of(run.input, "error", run.input.server, trouble=trouble_of(line.cause))

    return EventSource(kind, accepted, events)


def _attached(run: Run[Any, SagaContext], written: Server | None) -> Server:
    located, attachment = run.get(attach_volume.begin_action), run.get(attach_volume.connect)
    server = run.input.server if located is None or located.server is None else located.server
    if written is not None:
        return written
    return server if attachment is None else attach_volume.attached(server, run, attachment, now_us())


def _detached(run: Run[Any, SagaContext], written: Server | None) -> Server:
    located = run.get(detach_volume.begin_action)
    server = run.input.server if located is None or located.server is None else located.server
    return without_device(server, run.input.device.bdm, now_us())


def _swapped(run: Run[Any, SagaContext], written: Server | None) -> Server:
    located, attachment = run.get(swap_volume.begin_action), run.get(swap_volume.connect)
    server = run.input.server if located is None or located.server is None else located.server
    return server if attachment is None else swap_volume.swapped(server, run, attachment)


VOLUME_STORIES: dict[str, EventSource] = {
    "attach_volume": of_volume(attach_volume.AttachVolumeInput, "volume_attach", _attached),
    "detach_volume": of_volume(detach_volume.DetachVolumeInput, "volume_detach", _detached, reports_error=False),
    "swap_volume": of_volume(swap_volume.SwapVolumeInput, "volume_swap", _swapped),
}
