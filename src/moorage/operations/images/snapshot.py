"""Snapshot and backup: the host copies the guest's disk and sends the copy into an image that was created with the
request.

The image exists, queued, before the request is answered; this saga completes it or deletes it. The guest is quiesced
only while its disk is copied, if that is possible; the copy is sent while the guest runs. A backup is a snapshot after
which the oldest backups of its type are deleted, down to `rotation`.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.action import ActionEvent
from moorage.model.errors import Conflict, NotFound, Problem
from moorage.model.ids import ImageId, OperationId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Server, TaskState
from moorage.model.task_context import global_request_id
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.steps import disk_copy, server_action, server_lock, snapshot_image
from moorage.operations.steps import servers as records
from moorage.operations.steps.failures import failed_event
from moorage.operations.steps.servers import LocatedServer
from moorage.saga import Run, Saga, step
from moorage.store.region import servers as region_servers

HOST_PATIENCE_S = 300.0
IMAGE_PATIENCE_S = 24 * 3600.0
"""How long the rotation waits for an image service that does not answer before the operation is stuck; the image is
complete by then.
"""
BACKUPS_SEEN_MAX = 1000
"""How many backups of one server and type are read; a later backup deletes the rest."""
ACTIONS = {"snapshot": "createImage", "backup": "createBackup"}
EVENTS = {"snapshot": "compute_snapshot_instance", "backup": "compute_backup_instance"}
TASKS = {"snapshot": TaskState.IMAGE_SNAPSHOT_PENDING, "backup": TaskState.IMAGE_BACKUP}
"""The task state while the operation waits to begin."""
TAKING = {"snapshot": TaskState.IMAGE_SNAPSHOT, "backup": TaskState.IMAGE_PENDING_UPLOAD}


class SnapshotInput(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    image: ImageId
    kind: Literal["snapshot", "backup"] = "snapshot"
    backup_type: str = ""
    rotation: int = 0
    """How many backups of the type remain afterwards; unused for a snapshot."""
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""


SnapshotRun = Run[SnapshotInput, SagaContext]


@step(of_request=True)
async def hold_image(run: SnapshotRun) -> ImageId:
    """From here on this saga owns the image, which was created, empty, before the request was accepted."""
    return run.input.image


@hold_image.undo
async def delete_image(run: SnapshotRun) -> None:
    """Delete the incomplete image. An absent or protected image counts as success."""
    await run.context.images.delete(run.input.image)


@step(needs=(hold_image,))
async def begin_action(run: SnapshotRun) -> LocatedServer:
    """Show the action from the start, and find where the server is. Raises NotFound when it is on no host."""
    located = await records.sure(run.context, run.input.server.id)
    if located.server is None or located.cell is None or located.server.host is None:
        raise NotFound(f"server {run.input.server.id} is on no host")
    await run.context.cells[located.cell].write(
        lambda tx: server_action.begin(tx, run, ACTIONS[run.input.kind], EVENTS[run.input.kind])
    )
    return located


@begin_action.undo
async def fail_action(run: SnapshotRun) -> None:
    """End the action with Error; the server is unchanged."""
    located = await records.sure(run.context, run.input.server.id)
    if located.cell is not None:
        now = server_action.now_us()
        host = None if located.server is None else located.server.host
        events = (failed_event(EVENTS[run.input.kind], now, host, run.turned),)
        await run.context.cells[located.cell].write(lambda tx: server_action.finish(tx, run, events, now, "Error"))


@step(region=True, needs=(begin_action,), no_undo="what is being done goes with the operation")
async def show_taking(run: SnapshotRun) -> None:
    task = TAKING[run.input.kind]
    await run.commit(lambda tx: region_servers.show_task(tx, run.input.server.id, run.operation, task))


@step(needs=(begin_action, show_taking), patience_s=HOST_PATIENCE_S)
async def take_snapshot(run: SnapshotRun) -> None:
    """Let the host copy the disk, with the guest's file systems quiesced where that is possible."""
    server = _server(run)
    quiesce = snapshot_image.quiesce_of(server)
    await disk_copy.take(run, "take_snapshot", _host_of(server), run.input.image, quiesce)


@take_snapshot.undo
async def drop_snapshot(run: SnapshotRun) -> None:
    """Delete the copy on the host."""
    located = run.get(begin_action)
    if located is not None and located.server is not None:
        await disk_copy.drop(run, "drop_snapshot", _host_of(located.server), run.input.image)


@step(region=True, needs=(take_snapshot,), no_undo="what is being done goes with the operation")
async def show_uploading(run: SnapshotRun) -> None:
    task = TaskState.IMAGE_UPLOADING
    await run.commit(lambda tx: region_servers.show_task(tx, run.input.server.id, run.operation, task))


@step(
    needs=(begin_action, take_snapshot, show_uploading),
    patience_s=HOST_PATIENCE_S,
    no_undo="the image is deleted by the first step's undo, and the host is told to stop by that of the copy",
)
async def upload_image(run: SnapshotRun) -> None:
    """Let the host send the copy to the image service; the data pass through no conductor."""
    await disk_copy.send(run, "upload_image", _host_of(_server(run)), run.input.image)


@step(
    needs=(begin_action, upload_image),
    no_undo="an image that is whole is its owner's",
    point_of_no_return=True,
)
async def record_snapshot(run: SnapshotRun) -> None:
    """Finish the action; the record does not change otherwise."""
    located, now = run[begin_action], server_action.now_us()
    assert located.cell is not None
    events = (ActionEvent(EVENTS[run.input.kind], now, now, "Success", _server(run).host),)
    await run.context.cells[located.cell].write(lambda tx: server_action.finish(tx, run, events, now))


@step(needs=(record_snapshot,), no_undo="it only goes forward", patience_s=IMAGE_PATIENCE_S)
async def rotate_backups(run: SnapshotRun) -> tuple[str, ...]:
    """Delete the oldest backups of this type; protected or used ones stay, as in Nova. Returns the ids of the deleted
    images.
    """
    input = run.input
    if input.kind != "backup":
        return ()
    kind = {"image_type": "backup", "backup_type": input.backup_type, "instance_uuid": input.server.id}
    backups = await run.context.images.every(kind, at_most=BACKUPS_SEEN_MAX)
    went = [each.id for each in backups[input.rotation :] if await run.context.images.delete(each.id)]
    return tuple(went)


SNAPSHOT = Saga(
    "snapshot/1",
    SnapshotInput,
    hold_image,
    begin_action,
    show_taking,
    take_snapshot,
    show_uploading,
    upload_image,
    record_snapshot,
    rotate_backups,
    ended=records.release_unrecorded,
)


# -------------------------------------------------------------------------------------------------- acceptance


class SnapshotRequest(msgspec.Struct, frozen=True):
    """What the request says about the new image."""

    name: str
    metadata: dict[str, str] = {}
    backup_type: str | None = None
    """None: a snapshot, which no rotation deletes."""
    rotation: int = 0


async def begin(
    context: SagaContext,
    principal: Principal,
    token: str,
    server: Server,
    wish: SnapshotRequest,
    *,
    check: Callable[[Server], None],
    request_id: str = "",
) -> ImageId:
    """Create the image, accept the operation, and return the image's id. Raises what the image service refuses, and
    Conflict.

    `check` refuses a server in a state that forbids it; it is called again when the operation gets its turn.
    """
    kind: Literal["snapshot", "backup"] = "snapshot" if wish.backup_type is None else "backup"
    also = wish.metadata if wish.backup_type is None else {**wish.metadata, "backup_type": wish.backup_type}
    owner = await context.dispatcher.choose(SNAPSHOT.name)
    image = await snapshot_image.make(context, principal, token, server, wish.name, kind, also)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        input = SnapshotInput(
            server=now,
            seq=seq,
            image=image,
            kind=kind,
            backup_type=wish.backup_type or "",
            rotation=wish.rotation,
            request_id=request_id,
            user=principal.user,
            global_request_id=global_request_id.get(),
            by_project=principal.project or "",
        )
        return accepted(
            SNAPSHOT, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id
        )

    try:
        new = await server_lock.accept(context, server.id, ACTIONS[kind], make, task=TASKS[kind])
    except Problem as refused:
        if isinstance(refused, Conflict | NotFound):  # certain: nothing was accepted
            await snapshot_image.drop(context, image)
        raise
    await dispatch(context, new)
    return image


def _host_of(server: Server) -> HostAddress:
    assert server.cell is not None
    assert server.host is not None
    return HostAddress(server.cell, server.host)


def _server(run: SnapshotRun) -> Server:
    server = run[begin_action].server
    assert server is not None
    return server
