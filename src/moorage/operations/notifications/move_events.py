"""Notifications of moves: `resize_prep`, `resize`, `resize_finish`, `resize_confirm`, `resize_revert` and
`live_migration_*`, each with start and end.

Nova's compute sends them: the new host prepares and finishes, the old one sends and releases. A failure is
`resize.error`.
"""

from collections.abc import Iterator

import msgspec

from moorage.model.server import Server, TaskState, VmState
from moorage.operations.context import SagaContext
from moorage.operations.live_migrate import live_migrate, prepare_destination
from moorage.operations.live_migrate.live_migrate_input import LiveMigrate
from moorage.operations.notifications.event import EventSource, ServerEvent, changed, trouble_of
from moorage.operations.resize import (
    confirm_resize,
    cross_cell_resize,
    prepare_resize,
    resize,
    resize_input,
    revert_resize,
)
from moorage.operations.steps import live_migration
from moorage.operations.steps.server_action import now_us
from moorage.saga import Line, Run
from moorage.saga.journal import Ended, StepResult, Unwinding

STOP_GUEST = cross_cell_resize.stop_guest.name
"""From this step on, a guest that may go to another cell leaves its host, whichever way its disk goes."""
AT_HOSTS = frozenset({STOP_GUEST, prepare_resize.send_guest.name, resize.land_guest.name, resize.start_guest.name})


def _busy(server: Server, task: TaskState | None) -> Server:
    return msgspec.structs.replace(server, task_state=task)


# ----------------------------------------------------------------------------------------------------------- resize


def _accepted(input: resize_input.Resize) -> Iterator[ServerEvent]:
    busy = _busy(input.server, TaskState.RESIZE_PREP)
    yield changed(input.server, busy, host=busy.host, service="api")


def _events(run: Run[resize_input.Resize, SagaContext], line: Line, written: Server | None) -> Iterator[ServerEvent]:
    input, server = run.input, run.input.server
    prep = _busy(server, TaskState.RESIZE_PREP)
    match line:
        case StepResult(step=prepare_resize.claim_host.name):
            claim = prepare_resize.claim_host.decode(line.value)
            yield ServerEvent("resize_prep.start", prep, line.attempt, claim.name, new_flavor=input.flavor)
            yield ServerEvent("resize_prep.end", prep, line.attempt, claim.name, new_flavor=input.flavor)
        case StepResult() if line.step == (STOP_GUEST if input.cross_cell else prepare_resize.send_guest.name):
            yield ServerEvent("resize.start", _busy(server, TaskState.RESIZE_MIGRATING), line.attempt, server.host)
            yield ServerEvent("resize.end", _busy(server, TaskState.RESIZE_MIGRATED), line.attempt, server.host)
        case Ended(status="done"):
            claim = run[prepare_resize.claim_host]
            now = now_us()
            done = resize.resized(run, written or server, now)
            finishing = msgspec.structs.replace(done, vm_state=server.vm_state, task_state=TaskState.RESIZE_FINISH)
            yield ServerEvent("resize_finish.start", finishing, host=claim.name)
            yield changed(finishing, done, host=claim.name)
            yield ServerEvent("resize_finish.end", done, host=claim.name)
        case Unwinding(reason="failed"):
            at_host = line.cause.step in AT_HOSTS
            host = server.host if at_host else None
            yield ServerEvent("resize.error", prep, host=host, trouble=trouble_of(line.cause))
            yield changed(prep, server, host=server.host)
        case _:
            pass


# ----------------------------------------------------------------------------------------------- confirm and revert


def _confirm_accepted(input: confirm_resize.ConfirmResize) -> Iterator[ServerEvent]:
    moved = input.server.moved
    yield ServerEvent("resize_confirm.start", input.server, host=None if moved is None else moved.host)


def _confirm_events(
    run: Run[confirm_resize.ConfirmResize, SagaContext], line: Line, written: Server | None
) -> Iterator[ServerEvent]:
    server = run.input.server
    if isinstance(line, Ended) and line.status == "done":
        done = confirm_resize.confirmed(now_us())(server)
        host = None if server.moved is None else server.moved.host
        yield changed(server, done, host=host)
        yield ServerEvent("resize_confirm.end", done, host=host)


def _revert_accepted(input: revert_resize.RevertResize) -> Iterator[ServerEvent]:
    busy = _busy(input.server, TaskState.RESIZE_REVERTING)
    yield changed(input.server, busy, host=busy.host, service="api")
    moved = input.server.moved  # the host to which it goes back sends it
    yield ServerEvent("resize_revert.start", busy, host=busy.host if moved is None else moved.host)


def _revert_events(
    run: Run[revert_resize.RevertResize, SagaContext], line: Line, written: Server | None
) -> Iterator[ServerEvent]:
    server = run.input.server
    busy = _busy(server, TaskState.RESIZE_REVERTING)
    match line:
        case Ended(status="done") if server.moved is not None:
            done = revert_resize.reverted(run, server, server.moved, now_us())
            yield changed(busy, done, host=done.host)
            yield ServerEvent("resize_revert.end", done, host=done.host)
        case Unwinding(reason="failed"):
            yield changed(busy, msgspec.structs.replace(server, vm_state=VmState.RESIZED), host=server.host)
        case _:
            pass


# --------------------------------------------------------------------------------------------------- live migration


def _live_accepted(input: LiveMigrate) -> Iterator[ServerEvent]:
    busy = _busy(input.server, TaskState.MIGRATING)
    yield changed(input.server, busy, host=busy.host, service="api")


def _live_events(run: Run[LiveMigrate, SagaContext], line: Line, written: Server | None) -> Iterator[ServerEvent]:
    """The destination prepares and takes over, the source sends and releases, or both undo."""
    server = run.input.server
    busy = _busy(server, TaskState.MIGRATING)
    match line:
        case StepResult(step=prepare_destination.prepare_guest.name):
            claim = run[prepare_destination.claim_host]
            yield ServerEvent("live_migration_pre.start", busy, line.attempt, claim.name)
            yield ServerEvent("live_migration_pre.end", busy, line.attempt, claim.name)
        case Ended(status="done"):
            moved = live_migrate.moved(run, written or busy)
            moved = msgspec.structs.replace(moved, cell=run[prepare_destination.claim_host].cell)
            done = _busy(moved, None)
            yield ServerEvent("live_migration_post.start", busy, host=server.host)
            yield ServerEvent("live_migration_post_dest.start", busy, host=done.host)
            yield changed(busy, done, host=done.host)
            yield ServerEvent("live_migration_post_dest.end", done, host=done.host)
            yield ServerEvent(
                "live_migration_post.end", busy, host=server.host
            )  # the old host does not know better yet
        case Unwinding():
            yield from _live_turned(run, line, busy)
        case _:
            pass


def _live_turned(run: Run[LiveMigrate, SagaContext], line: Unwinding, busy: Server) -> Iterator[ServerEvent]:
    server, claim = run.input.server, run.get(prepare_destination.claim_host)
    stopped = line.reason == "cancel" or line.cause.problem().code == live_migration.ABORTED
    if stopped:
        yield ServerEvent("live_migration_abort.start", busy, host=server.host)
        yield ServerEvent("live_migration_abort.end", busy, host=server.host)
    if claim is not None:
        yield ServerEvent("live_migration_rollback.start", busy, host=server.host)
        yield ServerEvent("live_migration_rollback.end", server, host=server.host)
        yield ServerEvent("live_migration_rollback_dest.start", busy, host=claim.name)
        yield ServerEvent("live_migration_rollback_dest.end", busy, host=claim.name)
    yield changed(busy, server, host=server.host)


STORIES_OF_MOVES: dict[str, EventSource] = {
    "resize": EventSource(resize_input.Resize, _accepted, _events),
    "confirm_resize": EventSource(confirm_resize.ConfirmResize, _confirm_accepted, _confirm_events),
    "live_migrate": EventSource(LiveMigrate, _live_accepted, _live_events),
    "revert_resize": EventSource(revert_resize.RevertResize, _revert_accepted, _revert_events),
}


__all__ = ["STORIES_OF_MOVES"]
