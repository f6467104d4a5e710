"""What is said of shelving: `shelve`, `shelve_offload` and `unshelve`, with start and end, as Nova's compute says them.

Nova tells of no failure of these; a server that is SHELVED and starts on its host is `power_on`.
"""

import time
from collections.abc import Iterator

import msgspec

from moorage.model.server import Server, TaskState
from moorage.operations.context import SagaContext
from moorage.operations.notifications.event import Event, EventSource, changed
from moorage.operations.shelve import shelve, unshelve, unshelve_in_place
from moorage.operations.steps import offload
from moorage.operations.unshelve_input import Unshelve
from moorage.saga import Line, Run
from moorage.saga.journal import Ended, Result


def _now() -> int:
    return time.time_ns() // 1000


def _busy(server: Server, task: TaskState) -> Server:
    return msgspec.structs.replace(server, task_state=task)


def _shelve_accepted(asked: shelve.Shelve) -> Iterator[Event]:
    busy = _busy(asked.server, TaskState.SHELVING)
    yield changed(asked.server, busy, host=busy.host, service="api")
    if asked.image is not None:  # Nova offloads what boots from a volume, and says no more of it
        yield Event("shelve.start", busy, host=busy.host)


def _shelve_heard(run: Run[shelve.Shelve, SagaContext], line: Line, seen: Server | None) -> Iterator[Event]:
    asked = run.asked
    match line:
        case Result(step=shelve.record_shelved.name):
            shelved = shelve.shelved(asked, asked.server)
            yield changed(_busy(asked.server, TaskState.SHELVING_IMAGE_UPLOADING), shelved, host=shelved.host)
            if asked.image is not None:
                yield Event("shelve.end", shelved, host=shelved.host)
            if asked.offload:
                yield Event("shelve_offload.start", shelved, host=shelved.host)
        case Ended(status="done") if asked.offload:
            yield from _offloaded(shelve.shelved(asked, asked.server))
        case _:
            pass


def _offloaded(server: Server) -> Iterator[Event]:
    left = offload.offloaded(server)
    yield changed(_busy(server, TaskState.SHELVING_OFFLOADING), left, host=server.host)
    yield Event("shelve_offload.end", left, host=server.host)


def _offload_accepted(asked: shelve.ShelveOffload) -> Iterator[Event]:
    busy = _busy(asked.server, TaskState.SHELVING_OFFLOADING)
    yield changed(asked.server, busy, host=busy.host, service="api")
    yield Event("shelve_offload.start", busy, host=busy.host)


def _offload_heard(run: Run[shelve.ShelveOffload, SagaContext], line: Line, seen: Server | None) -> Iterator[Event]:
    if isinstance(line, Ended) and line.status == "done":
        yield from _offloaded(run.asked.server)


def _unshelve_accepted(asked: Unshelve) -> Iterator[Event]:
    yield changed(asked.server, _busy(asked.server, TaskState.UNSHELVING), service="api")


def _unshelve_heard(run: Run[Unshelve, SagaContext], line: Line, seen: Server | None) -> Iterator[Event]:
    """The host begins with it, so the start is told when there is one."""
    busy = _busy(run.asked.server, TaskState.UNSHELVING)
    match line:
        case Result(step=unshelve.claim_host.name):
            claim = unshelve.claim_host.decode(line.value)
            yield Event("unshelve.start", busy, line.attempt, claim.name)
        case Ended(status="done"):
            claim, record = run[unshelve.claim_host], run.get(unshelve.record_host)
            now = _now()
            done = seen or unshelve.unshelved(run, record or busy, now)
            done = msgspec.structs.replace(done, cell=claim.cell, host=claim.name, node=claim.node)
            yield changed(_busy(run.asked.server, TaskState.SPAWNING), done, attempt=run.attempt, host=claim.name)
            yield Event("unshelve.end", done, run.attempt, claim.name)
        case _:
            pass


def _in_place_accepted(asked: unshelve_in_place.UnshelveInPlace) -> Iterator[Event]:
    busy = _busy(asked.server, TaskState.POWERING_ON)
    yield changed(asked.server, busy, host=busy.host, service="api")
    yield Event("power_on.start", busy, host=busy.host)


def _in_place_heard(
    run: Run[unshelve_in_place.UnshelveInPlace, SagaContext], line: Line, seen: Server | None
) -> Iterator[Event]:
    if isinstance(line, Ended) and line.status == "done":
        server, state = seen or run.asked.server, run.get(unshelve_in_place.power_on)
        done = server if state is None else unshelve_in_place.started(server, state)
        yield changed(_busy(server, TaskState.POWERING_ON), done, host=done.host)
        yield Event("power_on.end", done, host=done.host)


STORIES_OF_SHELVING: dict[str, EventSource] = {
    "shelve": EventSource(shelve.Shelve, _shelve_accepted, _shelve_heard),
    "shelve_offload": EventSource(shelve.ShelveOffload, _offload_accepted, _offload_heard),
    "unshelve": EventSource(Unshelve, _unshelve_accepted, _unshelve_heard),
    "unshelve_in_place": EventSource(unshelve_in_place.UnshelveInPlace, _in_place_accepted, _in_place_heard),
}


__all__ = ["STORIES_OF_SHELVING"]
