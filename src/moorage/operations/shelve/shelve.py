"""Shelve: the guest is switched off and its disk becomes an image; with `shelved_offload_time` 0 it leaves its host at
once.

    shelve           stop, copy, send, SHELVED; then the same as shelve_offload if it is not to stay
    shelve_offload   the image is checked once more; then guest, bindings and claim are removed: SHELVED_OFFLOADED

A server that boots from a volume has no image: it leaves its host at once, as in Nova. Volumes of a server that leaves
its host stay reserved for it: a new attachment is made before the exported one is removed.

Until the record says SHELVED everything can be undone; nothing of an offload can. A paused or suspended guest is copied
as it is and switched off only when the image is complete, so a failed shelve does not lose the guest's memory.
"""

import msgspec

from moorage.model.errors import Conflict, NotFound, Problem
from moorage.model.guest import Quiesce
from moorage.model.ids import ImageId, OperationId, ServerId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import ApiPowerState, Server, Shelved, TaskState, VmState
from moorage.model.task_context import global_request_id
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.steps import disk_copy, moving, offload, server_action, server_lock, snapshot_image
from moorage.operations.steps import servers as records
from moorage.operations.steps.boot_volumes import with_attachments
from moorage.operations.steps.hosts import command_context
from moorage.operations.steps.ports import refuse_without_credentials
from moorage.operations.steps.servers import LocatedServer, StateCheck
from moorage.operations.steps.volumes import all_held_only
from moorage.saga import Run, Saga, step
from moorage.store.region import servers as region_servers

HOST_PATIENCE_S = 300.0
PATIENCE_S = 24 * 3600.0
"""How long, past the point of no return, a service that does not answer is waited for before the operation is stuck."""
FORWARD_ONLY = "its disk is an image by now: an offload only goes forward"
SHELVE, OFFLOAD = "shelve", "shelveOffload"
SHELVE_EVENT, OFFLOAD_EVENT = "compute_shelve_instance", "compute_shelve_offload_instance"
IMAGE_GONE = "shelved_image_gone"
STANDS_STILL = frozenset({VmState.PAUSED, VmState.SUSPENDED})


class Shelve(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    image: ImageId | None
    """None: it boots from a volume."""
    offload: bool = False
    """Whether it leaves the host at once."""
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""


ShelveRun = Run[Shelve, SagaContext]


@step(of_request=True)
async def hold_image(run: ShelveRun) -> ImageId | None:
    """From here on this saga owns the image, which was created, empty, before the request was accepted."""
    return run.input.image


@hold_image.undo
async def delete_image(run: ShelveRun) -> None:
    """Delete the image; absent counts as success."""
    if run.input.image is not None:
        await run.context.images.delete(run.input.image)


@step(needs=(hold_image,))
async def begin_action(run: ShelveRun) -> LocatedServer:
    """Show the action from the start, and find where the server is."""
    return await server_action.begun(run, SHELVE, SHELVE_EVENT)


@begin_action.undo
async def fail_action(run: ShelveRun) -> None:
    """End the action with Error; the server is unchanged."""
    await server_action.failed(run, SHELVE_EVENT)


@step(needs=(begin_action,), patience_s=HOST_PATIENCE_S)
async def stop_guest(run: ShelveRun) -> None:
    """Switch a running guest off, so that its disk is consistent; a paused or suspended guest is copied as it is."""
    server = _server(run)
    if server.vm_state is VmState.ACTIVE:
        await run.context.hosts.power_off(
            server_action.host_of(run[begin_action]), command_context(run, "stop_guest"), server.id
        )


@stop_guest.undo
async def start_guest(run: ShelveRun) -> None:
    """Switch the guest on again if it ran; a silent host that may have switched it off is waited for."""
    located = run.get(begin_action)
    if located is not None and located.server is not None and located.server.vm_state is VmState.ACTIVE:
        await moving.switch_on_again(run, command_context(run, "start_guest"))


@step(region=True, needs=(stop_guest,), no_undo="what is being done goes with the operation")
async def show_copying(run: ShelveRun) -> None:
    await _show(run, TaskState.SHELVING_IMAGE_PENDING_UPLOAD)


@step(needs=(begin_action, stop_guest, show_copying), patience_s=HOST_PATIENCE_S)
async def take_snapshot(run: ShelveRun) -> None:
    """Let the host copy the disk."""
    if run.input.image is not None:
        await disk_copy.take(
            run, "take_snapshot", server_action.host_of(run[begin_action]), run.input.image, Quiesce.NO
        )


@take_snapshot.undo
async def drop_snapshot(run: ShelveRun) -> None:
    located = run.get(begin_action)
    if located is not None and located.server is not None and run.input.image is not None:
        await disk_copy.drop(run, "drop_snapshot", server_action.host_of(located), run.input.image)


@step(region=True, needs=(take_snapshot,), no_undo="what is being done goes with the operation")
async def show_uploading(run: ShelveRun) -> None:
    await _show(run, TaskState.SHELVING_IMAGE_UPLOADING)


@step(
    needs=(begin_action, take_snapshot, show_uploading),
    patience_s=HOST_PATIENCE_S,
    no_undo="the image is deleted by the first step's undo, and the host is told to stop by that of the copy",
)
async def upload_image(run: ShelveRun) -> None:
    """Let the host send the copy to the image service."""
    if run.input.image is not None:
        await disk_copy.send(run, "upload_image", server_action.host_of(run[begin_action]), run.input.image)


@step(needs=(begin_action, upload_image), no_undo="its disk is an image by now", point_of_no_return=True)
async def record_shelved(run: ShelveRun) -> None:
    """Show SHELVED with the image, and finish the action."""
    await server_action.done(run, run[begin_action], SHELVE_EVENT, lambda server: shelved(run.input, server))


def shelved(input: Shelve, server: Server) -> Server:
    """The record of a server whose disk is in an image, and whose guest is off or will be in a moment."""
    now = server_action.now_us()
    return msgspec.structs.replace(
        server,
        vm_state=VmState.SHELVED,
        task_state=TaskState.SHELVING_OFFLOADING if input.offload else None,
        power_state=ApiPowerState.SHUTDOWN,
        shelved=Shelved(now, input.image, server.host),
        updated_at=now,
    )


@step(needs=(begin_action, record_shelved), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def clear_host(run: ShelveRun) -> None:
    """Remove the guest if it is not to stay; a paused or suspended one that stays is switched off."""
    server = _server(run)
    if run.input.offload:
        await offload.destroy(run, "clear_host", server)
    elif server.vm_state in STANDS_STILL:
        await run.context.hosts.power_off(
            server_action.host_of(run[begin_action]), command_context(run, "clear_host"), server.id, 0.0
        )


@step(needs=(begin_action, clear_host), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def keep_volumes(run: ShelveRun) -> dict[str, str]:
    """Reserve the volumes for the server without a host. Returns mapping → attachment."""
    return await all_held_only(run.context, _server(run)) if run.input.offload else {}


@step(needs=(begin_action, keep_volumes), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def take_ports_off(run: ShelveRun) -> None:
    if run.input.offload:
        await offload.take_ports_off(run.context, _server(run))


@step(region=True, needs=(begin_action, take_ports_off), no_undo=FORWARD_ONLY)
async def give_back_host(run: ShelveRun) -> None:
    if run.input.offload:
        await offload.give_back_host(run)
    else:
        await run.commit(lambda tx: None)


@step(needs=(begin_action, keep_volumes, give_back_host), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def record_offloaded(run: ShelveRun) -> None:
    located = run[begin_action]
    assert located.cell is not None
    if run.input.offload:
        attachments = run[keep_volumes]
        await records.change(
            run.context,
            located.cell,
            run.input.server.id,
            records.fence(run),
            lambda server: with_attachments(offload.offloaded(server), attachments),
        )


SHELVE_SAGA = Saga(
    "shelve/1",
    Shelve,
    hold_image,
    begin_action,
    stop_guest,
    show_copying,
    take_snapshot,
    show_uploading,
    upload_image,
    record_shelved,
    clear_host,
    keep_volumes,
    take_ports_off,
    give_back_host,
    record_offloaded,
    ended=records.release_server,
)


async def _show(run: ShelveRun, task: TaskState) -> None:
    """A server without an image has no copying to show."""
    if run.input.image is None:
        await run.commit(lambda tx: None)
        return
    await run.commit(lambda tx: region_servers.show_task(tx, run.input.server.id, run.operation, task))


def _server(run: ShelveRun) -> Server:
    server = run[begin_action].server
    assert server is not None
    return server


# ------------------------------------------------------------------------------------------------------- offload


class ShelveOffload(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""


OffloadRun = Run[ShelveOffload, SagaContext]


@step
async def begin_offload(run: OffloadRun) -> LocatedServer:
    return await server_action.begun(run, OFFLOAD, OFFLOAD_EVENT)


@begin_offload.undo
async def fail_offload(run: OffloadRun) -> None:
    await server_action.failed(run, OFFLOAD_EVENT)


@step(needs=(begin_offload,), no_undo="reads only")
async def check_image(run: OffloadRun) -> None:
    """Check that the image is complete before anything is destroyed. Raises Conflict when it no longer exists."""
    server = _offloading(run)
    image = None if server.shelved is None else server.shelved.image
    if image is not None and not await snapshot_image.is_usable(run.context, image):
        raise Conflict(
            f"The image {image} of the shelved instance {server.id} cannot be found: it stays on its host.",
            code=IMAGE_GONE,
        )


@step(needs=(begin_offload, check_image), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S, point_of_no_return=True)
async def destroy_guest(run: OffloadRun) -> bool:
    """Destroy the guest. Returns False when its host is silent; the host destroys it when it returns."""
    return await offload.destroy(run, "destroy_guest", _offloading(run))


@step(needs=(begin_offload, destroy_guest), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def reserve_volumes(run: OffloadRun) -> dict[str, str]:
    """The same as `keep_volumes`."""
    return await all_held_only(run.context, _offloading(run))


@step(needs=(begin_offload, reserve_volumes), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def unbind_ports(run: OffloadRun) -> None:
    await offload.take_ports_off(run.context, _offloading(run))


@step(region=True, needs=(begin_offload, unbind_ports), no_undo=FORWARD_ONLY)
async def release_host(run: OffloadRun) -> None:
    await offload.give_back_host(run)


@step(needs=(begin_offload, reserve_volumes, release_host), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def end_offload(run: OffloadRun) -> None:
    held = run[reserve_volumes]
    after = lambda server: with_attachments(offload.offloaded(server), held)  # noqa: E731
    await server_action.done(run, run[begin_offload], OFFLOAD_EVENT, after)


SHELVE_OFFLOAD = Saga(
    "shelve_offload/1",
    ShelveOffload,
    begin_offload,
    check_image,
    destroy_guest,
    reserve_volumes,
    unbind_ports,
    release_host,
    end_offload,
    ended=records.release_server,
)


def _offloading(run: OffloadRun) -> Server:
    server = run[begin_offload].server
    assert server is not None
    return server


# -------------------------------------------------------------------------------------------------- acceptance


async def begin(
    context: SagaContext, principal: Principal, token: str, server: Server, *, check: StateCheck, request_id: str = ""
) -> None:
    """Accept a shelve. Raises what the image service refuses, and Conflict."""
    at_once = server.volume_backed or context.settings.shelved_offload_time_s == 0
    if at_once:
        refuse_without_credentials(context)
    owner = await context.dispatcher.choose(SHELVE_SAGA.name)
    image: ImageId | None = None
    if not server.volume_backed:
        image = await snapshot_image.make(
            context, principal, token, server, snapshot_image.name_of(server, "shelved"), "shelve", {}
        )

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        input = Shelve(
            now, seq, image, at_once, request_id, principal.user, global_request_id.get(), principal.project or ""
        )
        return accepted(
            SHELVE_SAGA, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id
        )

    try:
        new = await server_lock.accept(context, server.id, SHELVE, make, task=TaskState.SHELVING)
    except Problem as refused:
        if image is not None and isinstance(refused, Conflict | NotFound):  # certain: nothing was accepted
            await snapshot_image.drop(context, image)
        raise
    await dispatch(context, new)


async def begin_offloading(
    context: SagaContext, server: ServerId, user: str, project: str, *, check: StateCheck, request_id: str = ""
) -> None:
    """Accept the offload of a SHELVED server. Raises Conflict and NotFound."""
    refuse_without_credentials(context)
    owner = await context.dispatcher.choose(SHELVE_OFFLOAD.name)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        input = ShelveOffload(now, seq, request_id, user, global_request_id.get(), project)
        return accepted(SHELVE_OFFLOAD, operation, now, input, owner=owner, user=user, seq=seq, request_id=request_id)

    new = await server_lock.accept(context, server, OFFLOAD, make, task=TaskState.SHELVING_OFFLOADING)
    await dispatch(context, new)
