"""Rebuild: the guest is made again on its host, from the same image or another one; its ports, addresses and claim
stay.

For a server that boots from a volume (2.93) the image is written over that volume, which no host has meanwhile; other
volumes stay unchanged.

`begin` checks everything that can refuse a rebuild before anything is destroyed. From the moment when the host may have
begun, the old disk counts as lost: a failure then leaves the server in ERROR, and it may be rebuilt again.
"""

import msgspec

from moorage.bus.guest_payloads import RebuildGuest
from moorage.bus.verbs import Verb
from moorage.model.action import ActionEvent
from moorage.model.errors import HostFailed, NotFound
from moorage.model.guest import InjectedFile, PowerState
from moorage.model.ids import OperationId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Server, TaskState, VmState
from moorage.model.task_context import global_request_id
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.guest.rebuild_checks import RebuildRequest, image_of, image_of_volume, rebuilt_record
from moorage.operations.request_secrets import encrypted
from moorage.operations.steps import reimage, server_action, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.boot_volumes import with_attachments, with_disks
from moorage.operations.steps.config_drives import with_drive
from moorage.operations.steps.failures import as_it_was, failed_event
from moorage.operations.steps.guest_respawn import Cards, cards_of
from moorage.operations.steps.guests import guest_of
from moorage.operations.steps.hosts import HOST_SILENT, NO_GUEST, command_context
from moorage.operations.steps.servers import LocatedServer, StateCheck
from moorage.operations.steps.volumes import (
    VOLUME_PATIENCE_S,
    exported,
    held_only,
    in_use,
    or_left_to_delete,
    volumes_of,
)
from moorage.saga import Run, Saga, step
from moorage.sql import Tx

ACTION = "rebuild"
EVENTS = ("rebuild_server", "compute_rebuild_instance")
NETWORK_PATIENCE_S = 300.0
HOST_PATIENCE_S = 600.0
UNTOUCHED = frozenset({"not_supported", "too_late", "guest_in_the_way", "turn_is_past", "garbled", HOST_SILENT})
"""With one of these codes a host says that it has not begun; the last is of a host to which nothing was sent."""


class Rebuild(msgspec.Struct, frozen=True):
    """Everything that the rebuild needs; nothing is looked up by name after this."""

    server: Server
    """The record before."""
    seq: int
    becomes: Server
    """The record after, in the fields named."""
    fields: tuple[str, ...] = ()
    preserve_ephemeral: bool = False
    files: tuple[InjectedFile, ...] = ()
    sealed_password: str = ""
    """For its config drive; empty: there is none, or it is not returned."""
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""
    """The project of the token with which the user asked."""
    reimage: str = ""
    """The image to write over the root volume; empty: volumes stay unchanged."""


RebuildRun = Run[Rebuild, SagaContext]


@step
async def begin_action(run: RebuildRun) -> LocatedServer:
    """Show the new image and the other changes from here on, as Nova does, and the action. Raises NotFound when the
    server is on no host.
    """
    located = await records.sure(run.context, run.input.server.id)
    if located.server is None or located.cell is None or located.server.host is None:
        raise NotFound(f"server {run.input.server.id} is on no host")
    return await records.begun(
        run,
        located,
        lambda server: with_new(run.input, server),
        lambda tx: server_action.begin(tx, run, ACTION, *EVENTS),
    )


def with_new(input: Rebuild, server: Server) -> Server:
    """The record with the requested changes."""
    new = {name: getattr(input.becomes, name) for name in input.fields}
    return msgspec.structs.replace(
        server, **new, task_state=TaskState.REBUILDING, progress=0, updated_at=server_action.now_us()
    )


@begin_action.undo
async def fail_action(run: RebuildRun) -> None:
    """Restore the record when the host has not begun; otherwise the state of the disk is unknown, and the server is in
    ERROR.
    """
    located = await records.sure(run.context, run.input.server.id)
    if located.cell is None or located.server is None:
        return
    now, host = server_action.now_us(), located.server.host
    events = tuple(failed_event(each, now, host, run.turned) for each in EVENTS)

    def after(server: Server) -> Server:
        if _begun_at_host(run):
            return _broken(server, run)
        old = {name: getattr(run.input.server, name) for name in run.input.fields}
        return msgspec.structs.replace(server, **old, task_state=None, progress=0)

    def finish(tx: Tx) -> None:
        server_action.finish(tx, run, events, now, "Error")

    await records.change(run.context, located.cell, located.server.id, records.fence(run), after, finish, last=True)


def _begun_at_host(run: RebuildRun) -> bool:
    if run.input.reimage and run.turned is not None and run.turned.step in _REIMAGING:
        return not (run.turned.step == hold_root.name and run.turned.code in UNTOUCHED)
    return run.turned is not None and run.turned.step == rebuild_guest.name and run.turned.code not in UNTOUCHED


def _broken(server: Server, run: RebuildRun) -> Server:
    assert run.turned is not None
    return msgspec.structs.replace(as_it_was(server, run.turned, server_action.now_us()), vm_state=VmState.ERROR)


@step(needs=(begin_action,), patience_s=NETWORK_PATIENCE_S, no_undo="reads only")
async def read_ports(run: RebuildRun) -> Cards:
    """Read the ports as they are bound; the new guest gets the same."""
    located = run[begin_action]
    assert located.server is not None
    return await cards_of(run.context, located.server)


@step(needs=(begin_action, read_ports), patience_s=VOLUME_PATIENCE_S)
async def hold_root(run: RebuildRun) -> str:
    """Switch the guest off, and reserve its root volume for the server without a host: only the volume service writes
    on it now.
    """
    if not run.input.reimage:
        return ""
    located = run[begin_action]
    assert located.server is not None
    root = reimage.root_of(located.server)
    assert root.volume is not None
    await _not_overtaken(run, located)
    try:
        await run.context.hosts.power_off(
            server_action.host_of(located), command_context(run, "hold_root"), located.server.id
        )
    except HostFailed as failed:
        if failed.code != NO_GUEST:
            raise
    return await held_only(run.context, located.server.id, root.volume)


async def _not_overtaken(run: RebuildRun, located: LocatedServer) -> None:
    """Check the fence before the volume is changed: an executor that was overtaken writes no image. Raises Stale."""
    assert located.cell is not None
    await records.not_overtaken(run, located.cell)


@hold_root.undo
async def export_root_again(run: RebuildRun) -> None:
    """Export the root volume to the host again. The server is in ERROR, its guest off, and another rebuild is possible."""
    located = run.get(begin_action)
    if run.input.reimage and located is not None and located.server is not None:
        await or_left_to_delete(run.context, located.server.id, _export_again(run, located))


async def _export_again(run: RebuildRun, located: LocatedServer) -> None:
    assert located.server is not None
    assert located.cell is not None
    attachment = await reimage.exported_again(run.context, server_action.host_of(located), located.server)
    if attachment is not None:
        now = {reimage.root_of(located.server).bdm: attachment}
        await records.change(
            run.context,
            located.cell,
            located.server.id,
            records.fence(run),
            lambda server: with_attachments(server, now),
        )


@step(
    needs=(begin_action, hold_root),
    patience_s=VOLUME_PATIENCE_S,
    no_undo="the old disk is gone: a rebuild that failed leaves an ERROR, and may be asked again",
)
async def write_root(run: RebuildRun) -> None:
    """Let the volume service write the image over the volume."""
    located = run[begin_action]
    assert located.server is not None
    if run.input.reimage:
        await _not_overtaken(run, located)
        await reimage.reimaged(run.context, located.server, run.input.reimage)


@step(
    needs=(begin_action, write_root),
    patience_s=VOLUME_PATIENCE_S,
    no_undo="by the undo of hold_root it is exported anyway",
)
async def connect_volumes(run: RebuildRun) -> dict[str, str]:
    """Export the root volume to the host again, and read the connections of the other volumes. Returns mapping →
    attachment.
    """
    located = run[begin_action]
    assert located.server is not None
    server, held = located.server, dict[str, str]()
    if run.input.reimage:
        await _not_overtaken(run, located)
        root, to = reimage.root_of(server), server_action.host_of(located)
        held[root.bdm] = await exported(run.context, to, server.id, root, run[hold_root], again=run.unsure)
    for device in server.volumes:
        if device.bdm not in held and device.attachment is not None:
            held[device.bdm] = (await volumes_of(run.context).connected(device.attachment)).id
    return held


@step(
    needs=(begin_action, read_ports, connect_volumes),
    patience_s=HOST_PATIENCE_S,
    no_undo="the old disk is gone: a rebuild that failed leaves an ERROR, and may be asked again",
)
async def rebuild_guest(run: RebuildRun) -> PowerState:
    """Let the host make the guest again in one command; a repeat is answered with the stored result (RULES §10)."""
    located, cards, attachments = run[begin_action], run[read_ports], run[connect_volumes]
    assert located.server is not None
    assert located.cell is not None
    server = await records.change(
        run.context,
        located.cell,
        located.server.id,
        records.fence(run),
        lambda row: with_attachments(msgspec.structs.replace(row, task_state=TaskState.REBUILD_SPAWNING), attachments),
    )
    zone = server.availability_zone or run.context.settings.default_availability_zone
    guest = guest_of(server, cards.networks, cards.ports, zone, run.input.files)
    guest = msgspec.structs.replace(guest, power_on=run.input.server.vm_state is not VmState.STOPPED)
    guest = await with_drive(
        run.context, server, guest, cards.networks, cards.ports, sealed_password=run.input.sealed_password
    )
    guest = await with_disks(run.context, server, guest, attachments)
    order = RebuildGuest(guest, run.input.preserve_ephemeral)
    to, mine = server_action.host_of(located), command_context(run, "rebuild_guest")
    return await run.context.hosts.change_guest(to, mine, server.id, Verb.REBUILD_GUEST, order)


@step(needs=(begin_action, rebuild_guest), no_undo="it records what happened", point_of_no_return=True)
async def record_rebuilt(run: RebuildRun) -> None:
    """Show ACTIVE, or STOPPED as before, and finish the action."""
    located, state, now = run[begin_action], int(run[rebuild_guest]), server_action.now_us()
    assert located.cell is not None
    host = None if located.server is None else located.server.host
    events = tuple(ActionEvent(each, now, now, "Success", host) for each in EVENTS)
    await records.change(
        run.context,
        located.cell,
        run.input.server.id,
        records.fence(run),
        lambda server: rebuilt(run.input, server, state, now),
        lambda tx: server_action.finish(tx, run, events, now),
        last=True,
    )


def rebuilt(input: Rebuild, server: Server, power: int, now: int) -> Server:
    """The record when the rebuild is done."""
    stays_off = input.server.vm_state is VmState.STOPPED
    return msgspec.structs.replace(
        server,
        vm_state=VmState.STOPPED if stays_off else VmState.ACTIVE,
        task_state=None,
        power_state=power,
        launched_at=now,
        updated_at=now,
        progress=0,
        fault=None,
    )


_REIMAGING = frozenset({hold_root.name, write_root.name, connect_volumes.name})
REBUILD = Saga(
    "rebuild/1",
    Rebuild,
    begin_action,
    read_ports,
    hold_root,
    write_root,
    connect_volumes,
    rebuild_guest,
    record_rebuilt,
    ended=records.release_server,
)


# -------------------------------------------------------------------------------------------------- acceptance


async def begin(
    context: SagaContext,
    principal: Principal,
    token: str,
    server: Server,
    request: RebuildRequest,
    *,
    check: StateCheck,
    request_id: str = "",
) -> Server:
    """Accept a rebuild, and return the record as it will be.

    Raises Invalid (an unknown image, one that does not fit flavor or host, an unknown key), Conflict, and Unavailable when
    the image service does not answer.
    """
    check(server)
    volumes = await in_use(context, principal, token, server)
    if server.volume_backed:
        image = await image_of_volume(context, token, server, request, volumes)
    else:
        image = await image_of(context, token, server, request)
    user_data, files = await encrypted(context, request.user_data, request.files)
    request = msgspec.structs.replace(request, user_data=user_data, files=files)
    becomes, fields = await rebuilt_record(context, principal, server, request, image)
    owner = await context.dispatcher.choose(REBUILD.name)
    sealed = ""
    if server.config_drive and context.seals is not None and request.admin_password:
        sealed = context.seals.seal(request.admin_password)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        input = Rebuild(
            now,
            seq,
            becomes,
            fields,
            request.preserve_ephemeral,
            request.files,
            sealed,
            request_id,
            principal.user,
            global_request_id.get(),
            principal.project or "",
            image.id if server.volume_backed and request.reimage else "",
        )
        return accepted(
            REBUILD, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id
        )

    new = await server_lock.accept(context, server.id, ACTION, make, task=TaskState.REBUILDING)
    await dispatch(context, new)
    return msgspec.structs.replace(becomes, task_state=TaskState.REBUILDING, progress=0)
