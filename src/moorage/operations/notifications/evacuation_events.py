"""Notifications of evacuations: `evacuate`, once, by the API; for each host that is tried `rebuild_scheduled`, by the
conductor, and `rebuild` with start and end or error, as Nova's new host sends it.
"""

import time
from collections.abc import Iterator

import msgspec

from moorage.model.server import Server, TaskState
from moorage.operations.context import SagaContext
from moorage.operations.evacuate import evacuate, evacuate_claim, failed_evacuation
from moorage.operations.evacuate.evacuate_input import Evacuate
from moorage.operations.notifications.event import EventSource, ServerEvent, changed, trouble_of
from moorage.saga import Line, Run
from moorage.saga.journal import Ended, StepResult, Unwinding


def _busy(input: Evacuate) -> Server:
    return msgspec.structs.replace(input.server, task_state=TaskState.REBUILDING)


def _accepted(input: Evacuate) -> Iterator[ServerEvent]:
    busy = _busy(input)
    yield changed(input.server, busy, host=busy.host, service="api")
    yield ServerEvent("evacuate", busy, service="api")


def _events(run: Run[Evacuate, SagaContext], line: Line, written: Server | None) -> Iterator[ServerEvent]:
    """Nova's host begins with it, so each host that is tried has a start."""
    busy = _busy(run.input)
    match line:
        case StepResult(step=evacuate_claim.claim_host.name):
            claim = evacuate_claim.claim_host.decode(line.value)
            yield ServerEvent("rebuild_scheduled", busy, line.attempt, claim.name, for_host="conductor")
            yield ServerEvent("rebuild.start", busy, line.attempt, claim.name)
        case Ended(status="done"):
            done = evacuate.evacuated(run, written or busy, time.time_ns() // 1000)
            done = msgspec.structs.replace(done, cell=run[evacuate_claim.claim_host].cell)
            yield changed(busy, done, attempt=run.attempt, host=done.host)
            yield ServerEvent("rebuild.end", done, run.attempt, done.host)
        case Unwinding(reason="failed"):
            tried = run.get(evacuate_claim.claim_host)
            host = None if tried is None else tried.name
            yield ServerEvent("rebuild.error", busy, line.attempt, host, trouble=trouble_of(line.cause))
            failed = failed_evacuation.failed(run.input, busy, line.cause)
            yield changed(busy, failed, attempt=line.attempt, host=failed.host)
        case _:
            pass


STORIES_OF_EVACUATION: dict[str, EventSource] = {"evacuate": EventSource(Evacuate, _accepted, _events)}


__all__ = ["STORIES_OF_EVACUATION"]
