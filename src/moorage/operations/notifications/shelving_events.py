"""Notifications of shelving: `shelve`, `shelve_offload` and `unshelve`, with start and end, as Nova's compute sends
them.

Nova notifies no failure of these; a SHELVED server that starts on its host is `power_on`.
"""

from collections.abc import Iterator

import msgspec

from moorage.model.server import Server, TaskState
from moorage.operations.context import SagaContext
from moorage.operations.notifications.event import EventSource, ServerEvent, changed
from moorage.operations.shelve import shelve, unshelve, unshelve_claim, unshelve_in_place
from moorage.operations.steps import offload
from moorage.operations.steps.server_action import now_us
from moorage.operations.unshelve_input import Unshelve
from moorage.saga import Line, Run
from moorage.saga.journal import Ended, StepResult


def _busy(server: Server, task: TaskState) -> Server:
    return msgspec.structs.replace(server, task_state=task)


def _shelve_accepted(input: shelve.Shelve) -> Iterator[ServerEvent]:
    busy = _busy(input.server, TaskState.SHELVING)
    yield changed(input.server, busy, host=busy.host, service="api")
    if input.image is not None:  # Nova offloads a server that boots from a volume, and sends no more
        yield ServerEvent("shelve.start", busy, host=busy.host)


def _shelve_events(run: Run[shelve.Shelve, SagaContext], line: Line, written: Server | None) -> Iterator[ServerEvent]:
    input = run.input
    match line:
        case StepResult(step=shelve.record_shelved.name):
            shelved = shelve.shelved(input, input.server)
            yield changed(_busy(input.server, TaskState.SHELVING_IMAGE_UPLOADING), shelved, host=shelved.host)
            if input.image is not None:
                yield ServerEvent("shelve.end", shelved, host=shelved.host)
            if input.offload:
                yield ServerEvent("shelve_offload.start", shelved, host=shelved.host)
        case Ended(status="done") if input.offload:
            yield from _offloaded(shelve.shelved(input, input.server))
        case _:
            pass


def _offloaded(server: Server) -> Iterator[ServerEvent]:
    left = offload.offloaded(server)
    yield changed(_busy(server, TaskState.SHELVING_OFFLOADING), left, host=server.host)
    yield ServerEvent("shelve_offload.end", left, host=server.host)


def _offload_accepted(input: shelve.ShelveOffload) -> Iterator[ServerEvent]:
    busy = _busy(input.server, TaskState.SHELVING_OFFLOADING)
    yield changed(input.server, busy, host=busy.host, service="api")
    yield ServerEvent("shelve_offload.start", busy, host=busy.host)


def _offload_events(
    run: Run[shelve.ShelveOffload, SagaContext], line: Line, written: Server | None
) -> Iterator[ServerEvent]:
    if isinstance(line, Ended) and line.status == "done":
        yield from _offloaded(run.input.server)


def _unshelve_accepted(input: Unshelve) -> Iterator[ServerEvent]:
    yield changed(input.server, _busy(input.server, TaskState.UNSHELVING), service="api")


def _unshelve_events(run: Run[Unshelve, SagaContext], line: Line, written: Server | None) -> Iterator[ServerEvent]:
    """The host begins with it, so the start is sent once there is a host."""
    busy = _busy(run.input.server, TaskState.UNSHELVING)
    match line:
        case StepResult(step=unshelve_claim.claim_host.name):
            claim = unshelve_claim.claim_host.decode(line.value)
            yield ServerEvent("unshelve.start", busy, line.attempt, claim.name)
        case Ended(status="done"):
            claim, record = run[unshelve_claim.claim_host], run.get(unshelve.record_host)
            now = now_us()
            done = written or unshelve.unshelved(run, record or busy, now)
            done = msgspec.structs.replace(done, cell=claim.cell, host=claim.name, node=claim.node)
            yield changed(_busy(run.input.server, TaskState.SPAWNING), done, attempt=run.attempt, host=claim.name)
            yield ServerEvent("unshelve.end", done, run.attempt, claim.name)
        case _:
            pass


def _in_place_accepted(input: unshelve_in_place.UnshelveInPlace) -> Iterator[ServerEvent]:
    busy = _busy(input.server, TaskState.POWERING_ON)
    yield changed(input.server, busy, host=busy.host, service="api")
    yield ServerEvent("power_on.start", busy, host=busy.host)


def _in_place_events(
    run: Run[unshelve_in_place.UnshelveInPlace, SagaContext], line: Line, written: Server | None
) -> Iterator[ServerEvent]:
    if isinstance(line, Ended) and line.status == "done":
        server, state = written or run.input.server, run.get(unshelve_in_place.power_on)
        done = server if state is None else unshelve_in_place.started(server, state)
        yield changed(_busy(server, TaskState.POWERING_ON), done, host=done.host)
        yield ServerEvent("power_on.end", done, host=done.host)


STORIES_OF_SHELVING: dict[str, EventSource] = {
    "shelve": EventSource(shelve.Shelve, _shelve_accepted, _shelve_events),
    "shelve_offload": EventSource(shelve.ShelveOffload, _offload_accepted, _offload_events),
    "unshelve": EventSource(Unshelve, _unshelve_accepted, _unshelve_events),
    "unshelve_in_place": EventSource(unshelve_in_place.UnshelveInPlace, _in_place_accepted, _in_place_events),
}


__all__ = ["STORIES_OF_SHELVING"]
