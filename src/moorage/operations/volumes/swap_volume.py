"""Swap a volume of a server for another one: the host copies its content, and the guest continues with the other
volume.

    reserve             the volume service reserves the new volume for the server
    begin_action        the action shows
    begin_detaching     the old volume's status excludes other operations
    connect             the new volume is exported to the server's host
    swap                the host copies, and the guest has the new volume
    let_old_volume_go   the export of the old volume is removed
    complete_migration  in a migration, the volume service is notified, and answers with the volume's id
    record_swapped      the record lists the new volume, and the action is finished

A host that cannot do it leaves everything as it was; from `swap` on it only goes forward. In a migration of the volume
service the new volume gets the id of the old one at the end, so the guest's disk has that id from the start.
Source: Nova's API reference, `PUT /servers/{id}/os-volume_attachments/{volume}`; Cinder's, `os-migrate_volume_completion`.
"""

from collections.abc import Callable

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.clients.volume import VolumeClient
from moorage.model.action import ActionEvent
from moorage.model.errors import Conflict, Invalid, NotFound, Refusal
from moorage.model.ids import OperationId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import BlockDevice, Server
from moorage.model.task_context import global_request_id
from moorage.model.volume import AVAILABLE, IN_USE, Volume
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.steps import server_action, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.failures import failed_event
from moorage.operations.steps.hosts import command_context, may_have_been_done, until_given_up
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.volumes import (
    VOLUME_PATIENCE_S,
    disk_of,
    drop_attachments,
    exported,
    held,
    or_left_to_delete,
    volumes_of,
    with_device,
)
from moorage.operations.volumes.attach_volume import check_zone
from moorage.operations.volumes.detach_volume import DETACHING, device_of
from moorage.saga import Run, Saga, step
from moorage.store.cell import actions

FORWARD_ONLY = "the guest writes to the new volume: a swap only goes forward"
HOST_PATIENCE_S = 120.0
PATIENCE_S = 24 * 3600.0
"""How long it waits, once the guest has the new volume, for a volume service that does not answer before it is stuck.
"""
ACTION = "swap_volume"
EVENT = "compute_swap_volume"
MIGRATING = "migrating"
TARGET = "target:"
"""The beginning of a migration status at the new volume; the old volume's id follows."""
SETTLED = frozenset({"none", "error", "success", "deleting"})
"""Migration statuses that mean no migration, or a finished one: only then a volume is marked as detaching."""
WRITERS = "Swapping multi-attach volumes with more than one read/write attachment is not supported."


class SwapVolumeInput(msgspec.Struct, frozen=True):
    """The two volumes, decided before step one."""

    server: Server
    seq: int
    device: BlockDevice
    """The device before the swap."""
    new_volume: str
    size_gib: int
    """Of the new volume."""
    migrating: bool = False
    """Whether the volume service moves the volume, and waits for the result."""
    multiattach: bool = False
    """Of the new volume."""
    volume_type: str | None = None
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""

    @property
    def volume(self) -> str:
        assert self.device.volume is not None
        return self.device.volume


SwapRun = Run[SwapVolumeInput, SagaContext]


@step(patience_s=VOLUME_PATIENCE_S, of_request=True)
async def reserve(run: SwapRun) -> str:
    """Reserve the new volume for the server: no other server may attach it."""
    return (await held(run.context, run.input.server.id, run.input.new_volume, unsure=run.unsure)).id


@reserve.undo
async def let_new_volume_go(run: SwapRun) -> None:
    """Release whatever this server has of it; a migrating volume service gets the failure, and the action shows it.

    When the guest may write to the new volume nothing is said of a failure: the volume service would delete that
    volume. It stays exported to the host then, unless the server is to be deleted: an operator decides, or an
    evacuation, after which the guest uses the old volume.
    """
    input = run.input
    server, unknown = input.server.id, may_have_been_done(run)
    if not unknown or run.cancelled is not None:
        await or_left_to_delete(run.context, server, drop_attachments(run.context, server, input.new_volume))
    if input.migrating and not unknown:
        await or_left_to_delete(run.context, server, _fail_migration(volumes_of(run.context), input))
    located = await records.sure(run.context, server)
    if located.cell is not None and located.server is not None:
        now = server_action.now_us()
        events = (failed_event(EVENT, now, located.server.host, run.turned),)
        failed = msgspec.structs.replace(
            server_action.action_of(run, ACTION), events=events, finished_at=now, message="Error"
        )
        await run.context.cells[located.cell].write(lambda tx: actions.write(tx, failed))


async def _fail_migration(client: VolumeClient, input: SwapVolumeInput) -> None:
    try:
        await client.complete_migration(input.volume, input.new_volume, failed=True)
    except Refusal:  # it was notified before, or has given up by itself
        return


@step(needs=(reserve,), no_undo="the action shows the failure when the new volume is let go")
async def begin_action(run: SwapRun) -> LocatedServer:
    """Show the action. This write is fenced, and no export begins before it. Raises NotFound when the server is on no
    host.
    """
    located = await records.sure(run.context, run.input.server.id)
    if located.server is None or located.cell is None or located.server.host is None:
        raise NotFound(f"server {run.input.server.id} is on no host")
    return await records.begun(run, located, records.as_it_is, lambda tx: server_action.begin(tx, run, ACTION, EVENT))


@step(needs=(begin_action,), patience_s=VOLUME_PATIENCE_S)
async def begin_detaching(run: SwapRun) -> None:
    """Set the old volume's status, and check that no other server writes to it. Raises Invalid."""
    client, old = volumes_of(run.context), run.input.volume
    if not (run.unsure and (await client.show(old)).status == DETACHING):
        await client.begin_detaching(old)
    if run.input.device.multiattach:  # no server attaches it from now on, so the count stays
        await check_writers(client, await client.show(old))


@begin_detaching.undo
async def roll_detaching(run: SwapRun) -> None:
    await or_left_to_delete(run.context, run.input.server.id, volumes_of(run.context).roll_detaching(run.input.volume))


@step(needs=(reserve, begin_detaching), no_undo="an export goes with its attachment", patience_s=VOLUME_PATIENCE_S)
async def connect(run: SwapRun) -> str:
    """Export the new volume to the host; return the attachment."""
    new = msgspec.structs.replace(run.input.device, volume=run.input.new_volume)
    return await exported(run.context, _host(run), run.input.server.id, new, run[reserve], again=run.unsure)


@step(
    needs=(begin_action, connect),
    no_undo=FORWARD_ONLY,
    patience_s=HOST_PATIENCE_S,
    point_of_no_return=True,
)
async def swap(run: SwapRun) -> None:
    """Let the host copy, for as long as the size needs; then the guest has the new volume. A host that cannot do it
    leaves the old one; one that does not answer is asked again until it does.
    """
    disk = await disk_of(run.context, _becomes(run, run[connect]), run[connect])
    wanted = msgspec.structs.replace(command_context(run, "swap"), patience_s=run.context.settings.image_deadline_s)
    with until_given_up(run, _host(run)):
        await run.context.hosts.swap_volume(_host(run), wanted, run.input.server.id, run.input.volume, disk)


@step(needs=(begin_action, connect, swap), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def let_old_volume_go(run: SwapRun) -> None:
    """Let the volume service end the old export."""
    client, kept = volumes_of(run.context), run[connect]
    if run.input.device.attachment is not None:
        return await client.drop_attachment(run.input.device.attachment)
    for each in await client.attachments_of(run.input.server.id, run.input.volume):
        if each.id != kept:
            await client.drop_attachment(each.id)
    return None


@step(needs=(let_old_volume_go,), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def complete_migration(run: SwapRun) -> str:
    """Return the volume's id after the migration."""
    input, client = run.input, volumes_of(run.context)
    if not input.migrating:
        return input.new_volume
    if (await client.show(input.volume)).migration_status != MIGRATING:
        return input.volume  # it was notified before
    return await client.complete_migration(input.volume, input.new_volume, failed=False)


@step(needs=(begin_action, connect, complete_migration), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def record_swapped(run: SwapRun) -> None:
    """Let the record list the new volume in place of the old one, and finish the action."""
    located, now = run[begin_action], server_action.now_us()
    assert located.cell is not None
    after = msgspec.structs.replace(
        _becomes(run, run[connect]), uuid=run[complete_migration], volume=run[complete_migration]
    )
    events = (ActionEvent(EVENT, now, now, "Success", None if located.server is None else located.server.host),)
    await records.change(
        run.context,
        located.cell,
        run.input.server.id,
        records.fence(run),
        lambda server: with_device(server, after, now),
        lambda tx: server_action.finish(tx, run, events, now),
    )


def _becomes(run: SwapRun, attachment: str) -> BlockDevice:
    input = run.input
    volume = input.volume if input.migrating else input.new_volume
    return msgspec.structs.replace(
        input.device,
        source="volume",
        uuid=volume,
        volume=volume,
        attachment=attachment,
        size_gib=input.size_gib,
        multiattach=input.multiattach,
        volume_type=input.volume_type,
        created=False,
    )


def swapped(server: Server, run: SwapRun, attachment: str) -> Server:
    """The record with the new volume."""
    return with_device(server, _becomes(run, attachment), server_action.now_us())


SWAP_VOLUME = Saga(
    "swap_volume/1",
    SwapVolumeInput,
    reserve,
    begin_action,
    begin_detaching,
    connect,
    swap,
    let_old_volume_go,
    complete_migration,
    record_swapped,
    ended=records.release_server,
)


# -------------------------------------------------------------------------------------------------- acceptance


class SwapWish(msgspec.Struct, frozen=True):
    """The old and the new volume."""

    old: str
    new: str


async def begin(
    context: SagaContext,
    principal: Principal,
    token: str,
    server: Server,
    wish: SwapWish,
    *,
    check: Callable[[Server], None],
    request_id: str = "",
) -> None:
    """Accept the swap.

    Raises NotFound when the old volume does not exist or is not the server's, Conflict when the volume service does not
    migrate it, Invalid when the new volume is unsuitable, and what `check` raises.
    """
    client, project, old, new = volumes_of(context), principal.project or "", wish.old, wish.new
    old_volume = await client.show(old, project, token)
    if not old_volume.migration_status:
        raise Conflict(f"volume {old} is not migrating; this API should only be called by Cinder")
    try:
        becomes = await client.show(new, project, token)
    except NotFound as missing:
        raise Invalid(missing.public) from missing
    check(server)
    _check_volumes(old_volume, becomes, server)
    check_zone(context, becomes, server.id, server.availability_zone)
    if old_volume.status != IN_USE and old_volume.migration_status in SETTLED:
        raise Invalid(
            "Invalid volume: Invalid input received: Invalid volume: Unable to detach volume. Volume status must be "
            "'in-use' and attach_status must be 'attached' to detach."
        )
    await check_writers(client, old_volume)
    device_of(server, old)
    if becomes.status != AVAILABLE:
        raise Invalid(
            f"Invalid volume: Volume {new} status must be available or downloading to reserve, but the current status is "
            f"{becomes.status}."
        )
    owner = await context.dispatcher.choose(SWAP_VOLUME.name)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        input = SwapVolumeInput(
            server=now,
            seq=seq,
            device=device_of(now, old),
            new_volume=new,
            size_gib=becomes.size_gib,
            migrating=old_volume.migration_status == MIGRATING,
            multiattach=becomes.multiattach,
            volume_type=becomes.volume_type,
            request_id=request_id,
            user=principal.user,
            global_request_id=global_request_id.get(),
            by_project=project,
        )
        return accepted(
            SWAP_VOLUME, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id
        )

    await dispatch(context, await server_lock.accept(context, server.id, ACTION, make))


def _check_volumes(old_volume: Volume, becomes: Volume, server: Server) -> None:
    """Check both volumes, in Nova's order."""
    if server.id not in [each for _, each in old_volume.attachments]:
        raise Invalid("Invalid volume: Old volume is attached to a different instance.")
    if becomes.attachments:
        raise Invalid("Invalid volume: New volume must be detached in order to swap.")
    if becomes.size_gib < old_volume.size_gib:
        raise Invalid("Invalid volume: New volume must be the same size or larger.")
    if old_volume.migration_status == MIGRATING and becomes.migration_status != TARGET + old_volume.id:
        raise Invalid(f"Invalid volume: Volume {becomes.id} is not what volume {old_volume.id} is being migrated to.")


async def check_writers(client: VolumeClient, volume: Volume) -> None:
    """Refuse a volume to which several servers write: writes of one while another's is copied would be lost. Raises
    Invalid.
    """
    if len(volume.attachments) < 2:
        return
    writers = 0
    for attachment, _ in volume.attachments:
        try:
            writers += (await client.attachment(attachment)).mode == "rw"
        except NotFound:
            continue
    if writers > 1:
        raise Invalid(WRITERS)


def _host(run: SwapRun) -> HostAddress:
    server = run[begin_action].server
    assert server is not None
    assert server.cell is not None
    assert server.host is not None
    return HostAddress(server.cell, server.host)
