"""Which notifications each operation has, derived from the lines of its journal: the table of operations → events.

    accepted       the commit that accepts it            power_off.start, delete.start
    Result         a region step's own commit            create.start (a host is claimed), shutdown.*
    Failed, Turn   an attempt, or the operation, failed  create.error, reboot.error
    Ended          the commit that ends it               create.end, delete.end, power_off.end

A journal line is written once, in a fenced transaction, and its notifications with it: so they are neither lost nor
sent twice when an executor dies. An operation with a start, an end and perhaps an error is one `start_and_end(…)`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from moorage.model.notification import StateUpdate, Trouble
from moorage.model.server import Server, TaskState, VmState
from moorage.operations.boot import boot
from moorage.operations.context import SagaContext
from moorage.operations.delete import delete, soft_delete
from moorage.operations.guest import crash_dump, power, rebuild, rescue
from moorage.operations.images import snapshot
from moorage.operations.interfaces import attach_claim, attach_interface, detach_interface
from moorage.operations.notifications.evacuation_events import STORIES_OF_EVACUATION
from moorage.operations.notifications.event import EventSource, ServerEvent, changed, trouble_of
from moorage.operations.notifications.move_events import STORIES_OF_MOVES
from moorage.operations.notifications.shelving_events import STORIES_OF_SHELVING
from moorage.operations.notifications.volume_events import VOLUME_STORIES
from moorage.operations.steps.server_action import now_us
from moorage.saga import Line, Run
from moorage.saga.journal import Ended, Failed, StepResult, Unwinding

AT_HOSTS = frozenset({"start_guest", "await_vifs", "tell_host", "plug", "unplug"})
"""Steps that fail at a host; for the other steps the conductor sends the error (S0.19: only host and publisher differ).
"""
CANCELLED = "UnexpectedDeletingTaskStateError"
"""Nova's name for a build that stopped because its server is being deleted."""


# ----------------------------------------------------------------------------------------------------- shared parts


def start_and_end(
    kind: type[msgspec.Struct],
    action: Callable[[Any], str | None],
    after: Callable[[Run[Any, SagaContext], Server | None], Server],
    *,
    task: Callable[[Any], TaskState | None] = lambda input: None,
    reports_error: Callable[[Any], bool] = lambda input: True,
) -> EventSource:
    """`X.start` when it is accepted, `X.end` when it is done, `X.error` when it failed.

    `action` returns X, Nova's name, from the input (None: no notification); `after` returns the record when it is done,
    from the saga and the record as an adopter found it.
    """

    def accepted(input: Any) -> Iterator[ServerEvent]:
        server: Server = input.server
        if action(input) is None:
            return
        busy = msgspec.structs.replace(server, task_state=task(input))
        yield changed(server, busy, host=server.host, service="api")
        yield ServerEvent(f"{action(input)}.start", busy, host=server.host, service="api")

    def events(run: Run[Any, SagaContext], line: Line, written: Server | None) -> Iterator[ServerEvent]:
        input = run.input
        if action(input) is None:
            return
        if isinstance(line, Ended) and line.status == "done":
            done = after(run, written)
            yield changed(msgspec.structs.replace(input.server, task_state=task(input)), done, host=done.host)
            yield ServerEvent(f"{action(input)}.end", done, host=done.host)
        elif isinstance(line, Unwinding) and line.reason == "failed" and reports_error(input):
            host = input.server.host if line.cause.step in AT_HOSTS else None
            yield ServerEvent(f"{action(input)}.error", input.server, host=host, trouble=trouble_of(line.cause))

    return EventSource(kind, accepted, events)


# ------------------------------------------------------------------------------------------------------------- boot


def _boot_accepted(input: boot.Boot) -> Iterator[ServerEvent]:
    """Nova shows a server that changes from no state to BUILDING."""
    yield ServerEvent("update", input.server, update=StateUpdate())


def _boot_events(run: Run[boot.Boot, SagaContext], line: Line, written: Server | None) -> Iterator[ServerEvent]:
    match line:
        case StepResult(step=boot.claim_host.name):
            claim = boot.claim_host.decode(line.value)
            begun = _begun(run, claim)
            yield ServerEvent("create.start", begun, line.attempt, claim.name)
            order = claim.order or run.input.server
            spawning = msgspec.structs.replace(begun, task_state=TaskState.SPAWNING, host=claim.name, node=claim.node)
            yield changed(order, spawning, attempt=line.attempt, host=claim.name)
        case Failed():
            yield _create_error(run, line.cause.attempt, trouble_of(line.cause))
        case Unwinding():
            yield from _boot_turned(run, line)
        case Ended(status="done"):
            yield from _booted(run, written)
        case _:
            pass


def _booted(run: Run[boot.Boot, SagaContext], written: Server | None) -> Iterator[ServerEvent]:
    """Ports and power state may be lost with the executor that showed it ACTIVE; then the row was read."""
    claim, ports = run[boot.claim_host], run.get(boot.bind_ports)
    if written is not None:
        built = written
    else:
        spawning = boot.recorded(run, claim, ports or (), 0, now_us())
        made = run.get(boot.make_ports)
        networks = {**run.input.networks, **({} if made is None else made.networks)}
        built = boot.shown_active(run, spawning, run.get(boot.start_guest), now_us(), networks)
    building = msgspec.structs.replace(built, vm_state=VmState.BUILDING, task_state=TaskState.SPAWNING)
    yield changed(building, built, attempt=run.attempt, host=claim.name)
    yield ServerEvent("create.end", built, run.attempt, claim.name)


def _boot_turned(run: Run[boot.Boot, SagaContext], line: Unwinding) -> Iterator[ServerEvent]:
    """The current attempt ends with it; when no host was asked, the conductor failed."""
    cancelled = line.reason == "cancel"
    trouble = Trouble(CANCELLED, line.cause.public, line.cause.step) if cancelled else None
    trouble = trouble or trouble_of(line.cause)
    if line.attempt and line.attempt == run.attempt:
        yield _create_error(run, line.attempt, trouble)
    elif line.attempt == 0 and not cancelled:
        begun = _begun(run, None)
        yield ServerEvent("create.start", begun)
        yield ServerEvent("create.error", begun, trouble=trouble)
    if not cancelled:
        failed = msgspec.structs.replace(_begun(run, None), vm_state=VmState.ERROR)
        yield changed(run.input.server, failed, attempt=line.attempt)


def _create_error(run: Run[boot.Boot, SagaContext], attempt: int, trouble: Trouble) -> ServerEvent:
    claim = run[boot.claim_host]
    host = claim.name if trouble.step in AT_HOSTS else None
    return ServerEvent("create.error", _begun(run, claim), attempt, host, trouble=trouble)


def _begun(run: Run[boot.Boot, SagaContext], claim: boot.Claim | None) -> Server:
    """As Nova shows a server whose build begins: on no host yet, without addresses."""
    order = run.input.server if claim is None or claim.order is None else claim.order
    zone = order.availability_zone if claim is None else claim.availability_zone
    return msgspec.structs.replace(
        order, task_state=None, nics=(), host=None, node=None, availability_zone=zone, updated_at=None
    )


# ----------------------------------------------------------------------------------------------------------- delete


def _delete_accepted(input: delete.Delete) -> Iterator[ServerEvent]:
    deleting = msgspec.structs.replace(input.server, task_state=TaskState.DELETING)
    yield changed(input.server, deleting, host=deleting.host, service="api")
    yield ServerEvent("delete.start", deleting, host=deleting.host, service="api")


def _delete_events(run: Run[delete.Delete, SagaContext], line: Line, written: Server | None) -> Iterator[ServerEvent]:
    located = run.get(delete.find_server)
    server = None if located is None else located.server
    if located is None or (server is not None and server.deleted):
        return
    server = msgspec.structs.replace(server or run.input.server, task_state=TaskState.DELETING)
    match line:
        case StepResult(step=delete.destroy_guest.name) if server.host is not None and delete.destroy_guest.decode(
            line.value
        ):
            yield ServerEvent("shutdown.start", server, host=server.host)
            yield ServerEvent("shutdown.end", msgspec.structs.replace(server, nics=()), host=server.host)
        case Ended(status="done"):
            gone = msgspec.structs.replace(delete.deleted(server, now_us()), nics=())
            yield changed(server, gone, host=gone.host, service="api")
            yield ServerEvent("delete.end", gone, host=gone.host, service="api")
        case _:
            pass


# ------------------------------------------------------------------------------------------------------------ power

POWER_ACTIONS: dict[str, str] = {
    "start": "power_on",
    "stop": "power_off",
    "reboot": "reboot",
    "hard_reboot": "reboot",
    "pause": "pause",
    "unpause": "unpause",
    "suspend": "suspend",
    "resume": "resume",
}


def _powered(run: Run[power.Power, SagaContext], written: Server | None) -> Server:
    located, state = run.get(power.begin_action), run.get(power.switch_power)
    server = run.input.server if located is None or located.server is None else located.server
    return msgspec.structs.replace(
        server,
        vm_state=power.EFFECTS[run.input.verb].becomes,
        task_state=None,
        power_state=server.power_state if state is None else int(state),
        updated_at=now_us(),
    )


# ------------------------------------------------------------------------------------------------------ interfaces


def _attached(run: Run[attach_claim.AttachInterfaceInput, SagaContext], written: Server | None) -> Server:
    located, port = run.get(attach_claim.begin_action), run.get(attach_claim.bind_port)
    server = run.input.server if located is None or located.server is None else located.server
    if written is not None:
        return written
    return server if port is None else attach_interface.with_card(server, run, port, now_us())


def _detached(run: Run[detach_interface.DetachInterfaceInput, SagaContext], written: Server | None) -> Server:
    begun = run.get(detach_interface.begin_action)
    server = run.input.server if begun is None or begun.found.server is None else begun.found.server
    return detach_interface.without_card(server, run.input.nic, now_us())


# ------------------------------------------------------------------------------------------------------- snapshots


def _snapshot_accepted(input: snapshot.SnapshotInput) -> Iterator[ServerEvent]:
    busy = msgspec.structs.replace(input.server, task_state=snapshot.TASKS[input.kind])
    yield changed(input.server, busy, host=busy.host, service="api")


def _snapshot_events(
    run: Run[snapshot.SnapshotInput, SagaContext], line: Line, written: Server | None
) -> Iterator[ServerEvent]:
    """Nova notifies the copy itself, and no failure."""
    input = run.input
    located = run.get(snapshot.begin_action)
    server = input.server if located is None or located.server is None else located.server
    match line:
        case StepResult(step=snapshot.show_taking.name):
            taking = msgspec.structs.replace(server, task_state=snapshot.TAKING[input.kind])
            yield ServerEvent("snapshot.start", taking, host=server.host, image=input.image)
        case Ended(status="done"):
            done = msgspec.structs.replace(server, task_state=None)
            yield changed(msgspec.structs.replace(server, task_state=TaskState.IMAGE_UPLOADING), done, host=server.host)
            yield ServerEvent("snapshot.end", done, host=server.host, image=input.image)
        case _:
            pass


# ---------------------------------------------------------------------------------------------------------- rebuild


def _rebuild_server(input: rebuild.Rebuild) -> Server:
    return rebuild.with_new(input, input.server)


def _rebuild_accepted(input: rebuild.Rebuild) -> Iterator[ServerEvent]:
    """As Nova: the new image is in the record from the start; the scheduled event has the old record."""
    server = _rebuild_server(input)
    yield changed(input.server, server, host=server.host, service="api")
    yield ServerEvent("rebuild_scheduled", server, host=server.host, for_host="conductor")
    yield ServerEvent("rebuild.start", server, host=server.host)


def _rebuild_events(
    run: Run[rebuild.Rebuild, SagaContext], line: Line, written: Server | None
) -> Iterator[ServerEvent]:
    if isinstance(line, Ended) and line.status == "done":
        busy, state = _rebuild_server(run.input), run.get(rebuild.rebuild_guest)
        done = rebuild.rebuilt(run.input, busy, busy.power_state if state is None else int(state), now_us())
        yield changed(busy, done, host=done.host)
        yield ServerEvent("rebuild.end", done, host=done.host)
    elif isinstance(line, Unwinding) and line.reason == "failed":
        server = _rebuild_server(run.input)
        host = server.host if line.cause.step == rebuild.rebuild_guest.name else None
        yield ServerEvent("rebuild.error", server, host=host, trouble=trouble_of(line.cause))


# ----------------------------------------------------------------------------------------------------------- rescue


def _rescued(run: Run[rescue.Rescue, SagaContext], written: Server | None) -> Server:
    state = run.get(rescue.rescue_guest)
    server = written or run.input.server
    return rescue.rescued(run.input, server, server.power_state if state is None else int(state), now_us())


def _unrescued(run: Run[rescue.Unrescue, SagaContext], written: Server | None) -> Server:
    state = run.get(rescue.unrescue_guest)
    server = written or run.input.server
    return rescue.unrescued(server, server.power_state if state is None else int(state), now_us())


# ------------------------------------------------------------------------------------------------------ soft delete


def _soft_delete_accepted(input: soft_delete.SoftDelete) -> Iterator[ServerEvent]:
    """As Nova, it has the time of the deletion, though the server can be restored."""
    busy = msgspec.structs.replace(input.server, task_state=TaskState.SOFT_DELETING)
    yield changed(input.server, busy, host=busy.host, service="api")
    yield ServerEvent("soft_delete.start", msgspec.structs.replace(busy, deleted_at=now_us()), host=busy.host)


def _soft_delete_events(
    run: Run[soft_delete.SoftDelete, SagaContext], line: Line, written: Server | None
) -> Iterator[ServerEvent]:
    located, state = run.get(soft_delete.find_server), run.get(soft_delete.switch_off)
    if not isinstance(line, Ended) or line.status != "done" or located is None or located.server is None:
        return
    busy = msgspec.structs.replace(located.server, task_state=TaskState.SOFT_DELETING)
    done = soft_delete.soft_deleted(busy, busy.power_state if state is None else state, now_us())
    yield changed(busy, done, host=done.host)
    yield ServerEvent("soft_delete.end", msgspec.structs.replace(done, deleted_at=done.soft_deleted_at), host=done.host)


def _restored(run: Run[soft_delete.Restore, SagaContext], written: Server | None) -> Server:
    state = run.get(soft_delete.switch_on)
    server = written or run.input.server
    return soft_delete.restored(server, server.power_state if state is None else int(state), now_us())


EVENT_SOURCES: dict[str, EventSource] = {
    "boot": EventSource(boot.Boot, _boot_accepted, _boot_events),
    "delete": EventSource(delete.Delete, _delete_accepted, _delete_events),
    "power": start_and_end(
        power.Power,
        lambda input: POWER_ACTIONS[input.verb],
        _powered,
        task=lambda input: power.EFFECTS[input.verb].task,
        reports_error=lambda input: POWER_ACTIONS[input.verb] == "reboot",
    ),
    "crash_dump": start_and_end(
        crash_dump.CrashDump,
        lambda input: "trigger_crash_dump",
        lambda run, written: msgspec.structs.replace(written or run.input.server, updated_at=now_us()),
        reports_error=lambda input: False,
    ),
    "rebuild": EventSource(rebuild.Rebuild, _rebuild_accepted, _rebuild_events),
    "soft_delete": EventSource(soft_delete.SoftDelete, _soft_delete_accepted, _soft_delete_events),
    "restore": start_and_end(
        soft_delete.Restore,
        lambda input: "restore",
        _restored,
        task=lambda input: TaskState.RESTORING,
        reports_error=lambda input: False,
    ),
    "rescue": start_and_end(
        rescue.Rescue,
        lambda input: "rescue",
        _rescued,
        task=lambda input: TaskState.RESCUING,
        reports_error=lambda input: False,
    ),
    "unrescue": start_and_end(
        rescue.Unrescue,
        lambda input: "unrescue",
        _unrescued,
        task=lambda input: TaskState.UNRESCUING,
        reports_error=lambda input: False,
    ),
    "attach_interface": start_and_end(attach_claim.AttachInterfaceInput, lambda input: "interface_attach", _attached),
    "detach_interface": start_and_end(
        detach_interface.DetachInterfaceInput,
        lambda input: None if input.gone else "interface_detach",
        _detached,
        reports_error=lambda input: False,
    ),
    "snapshot": EventSource(snapshot.SnapshotInput, _snapshot_accepted, _snapshot_events),
    **VOLUME_STORIES,
    **STORIES_OF_SHELVING,
    **STORIES_OF_MOVES,
    **STORIES_OF_EVACUATION,
}
"""By the name of the saga, without its version."""

WITHOUT_NOTIFICATIONS: dict[str, str] = {
    "extend_volume": "Nova says nothing of it; the volume service tells of its volumes itself",
    "snapshot_volumes": "Nova's compute, which tells of snapshots, has no part in those of volumes",
    "repair_devices": "Nova has nothing like it; an audit lets a guest and its record say the same",
    "move_record": "it is on no host, and nothing of it changes but which database has its record",
    "settle_debt": "nobody asked for it, and the server's record does not change",
    "assisted_snapshot": "Nova says nothing of it; the volume service tells of its snapshots itself",
}
"""Sagas without notifications, and the reason."""
