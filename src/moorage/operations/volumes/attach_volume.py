"""Attach a volume to a server.

    reserve        the volume service reserves the volume for the server
    begin_action   the record lists the device and its attachment, and the action shows
    connect        the volume service exports it to the server's host, and marks it as in use
    plug           the host adds it to the guest
    record_volume  the action is finished

For a server that is on no host (shelved and offloaded) the volume is reserved and marked as in use; it is exported when
the server is placed. The user's token decided at acceptance whether the user sees the volume; everything else is done
with our own credentials.
"""

import logging
from collections.abc import Callable

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.action import ActionEvent
from moorage.model.debt import DebtKind
from moorage.model.errors import Conflict, Forbidden, Invalid, NotFound, Problem, Refusal
from moorage.model.ids import OperationId, ServerId, new_uuid
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import BlockDevice, Server, VmState
from moorage.model.task_context import global_request_id
from moorage.model.volume import Volume
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.steps import server_action, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.debts import debt_of, is_owed, owe
from moorage.operations.steps.failures import failed_event
from moorage.operations.steps.hosts import command_context, was_never_sent
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.volumes import (
    VOLUME_PATIENCE_S,
    disk_of,
    drop_attachments,
    exported,
    held,
    next_device,
    or_left_to_delete,
    unplug_volume_or_leave,
    volumes_of,
    with_device,
    without_device,
)
from moorage.saga import Run, Saga, step
from moorage.sql import Tx
from moorage.store.cell import actions
from moorage.store.cell import servers as cell_servers

logger = logging.getLogger(__name__)

HOST_PATIENCE_S = 120.0
ACTION = "attach_volume"
EVENT = "compute_attach_volume"
SHOWN_WITHIN_S = 10.0
"""How long the answer waits until the record lists the device."""
VOLUMES_MAX = 64
"""The largest number of devices of a server."""


class AttachVolumeInput(msgspec.Struct, frozen=True):
    """One volume, decided before step one."""

    server: Server
    seq: int
    device: BlockDevice
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""

    @property
    def volume(self) -> str:
        assert self.device.volume is not None
        return self.device.volume


AttachRun = Run[AttachVolumeInput, SagaContext]


@step(patience_s=VOLUME_PATIENCE_S)
async def reserve(run: AttachRun) -> str:
    """Reserve the volume for the server: no other server may attach it, and its status shows that."""
    return (await held(run.context, run.input.server.id, run.input.volume, unsure=run.unsure)).id


@reserve.undo
async def let_volume_go(run: AttachRun) -> None:
    """Release whatever this server has of it, so that a lost answer does no harm; the action shows the failure.

    A volume that the guest may have, because its host is silent, stays attached until the host has paid (RULES §25).
    """
    server = run.input.server.id
    if not await is_owed(run.context, server, DebtKind.UNPLUG_VOLUME, run.input.volume):
        await or_left_to_delete(run.context, server, drop_attachments(run.context, server, run.input.volume))
    located = await records.sure(run.context, server)
    if located.cell is not None and located.server is not None:
        now = server_action.now_us()
        events = (failed_event(EVENT, now, located.server.host, run.turned),)
        failed = msgspec.structs.replace(
            server_action.action_of(run, ACTION), events=events, finished_at=now, message="Error"
        )
        await run.context.cells[located.cell].write(lambda tx: actions.write(tx, failed))


@step(needs=(reserve,))
async def begin_action(run: AttachRun) -> LocatedServer:
    """Show the action, and let the record list the device with its attachment.

    This write is fenced, and no export begins before it: an executor that was overtaken leaves at most a reservation.
    Raises NotFound when the server is in no cell.
    """
    located = await records.sure(run.context, run.input.server.id)
    if located.server is None or located.cell is None:
        raise NotFound(f"server {run.input.server.id} is in no cell")
    now, device = server_action.now_us(), msgspec.structs.replace(run.input.device, attachment=run[reserve])
    return await records.begun(
        run,
        located,
        lambda server: with_device(server, device, now),
        lambda tx: server_action.begin(tx, run, ACTION, EVENT),
    )


@begin_action.undo
async def forget_device(run: AttachRun) -> None:
    """Remove the device from the record. A volume that is to go with the server stays in it for the delete that waits: it goes
    with the server whichever of the two came first.
    """
    if run.input.device.delete_on_termination and await records.is_deleting(run.context, run.input.server.id):
        return
    located = await records.sure(run.context, run.input.server.id)
    if located.cell is None or located.server is None:
        return
    bdm, now = run.input.device.bdm, server_action.now_us()
    await records.change(
        run.context,
        located.cell,
        run.input.server.id,
        records.fence(run),
        lambda server: without_device(server, bdm, now),
    )


@step(needs=(reserve, begin_action), no_undo="an export goes with its attachment", patience_s=VOLUME_PATIENCE_S)
async def connect(run: AttachRun) -> str:
    """Let the volume service export it to the host; return the attachment."""
    server, attachment = _server(run), run[reserve]
    if server.host is None or server.cell is None:
        await volumes_of(run.context).complete(attachment)
        return attachment
    to = HostAddress(server.cell, server.host)
    return await exported(run.context, to, server.id, run.input.device, attachment, again=run.unsure)


@step(needs=(begin_action, connect), patience_s=HOST_PATIENCE_S)
async def plug(run: AttachRun) -> None:
    """Let the host add it to the guest."""
    server = _server(run)
    if server.host is None or server.cell is None:
        return
    disk = await disk_of(run.context, run.input.device, run[connect])
    await run.context.hosts.attach_volume(
        HostAddress(server.cell, server.host), command_context(run, "plug"), server.id, disk
    )


@plug.undo
async def unplug(run: AttachRun) -> None:
    """Take it out of the guest again; a silent host owes that."""
    if was_never_sent(run, plug.name):
        return
    server = (await records.sure(run.context, run.input.server.id)).server
    if server is None or server.cell is None or server.host is None:
        return
    if not await unplug_volume_or_leave(run, "unplug", server, run.input.volume):
        await owe(run, debt_of(run, DebtKind.UNPLUG_VOLUME, server.cell, server.host, run.input.volume))


@step(
    needs=(begin_action, connect, plug),
    no_undo="a volume that was shown as attached stays until it is detached",
    point_of_no_return=True,
)
async def record_volume(run: AttachRun) -> None:
    """Write the final attachment into the record, and finish the action. Raises NotFound when the server is in no cell."""
    located, attachment, now = (
        await records.sure(run.context, run.input.server.id),
        run.get(connect),
        server_action.now_us(),
    )
    if located.cell is None:
        raise NotFound(f"server {run.input.server.id} is in no cell")
    host = None if located.server is None else located.server.host
    events = (ActionEvent(EVENT, now, now, "Success", host),)
    await records.change(
        run.context,
        located.cell,
        run.input.server.id,
        records.fence(run),
        lambda server: server if attachment is None else attached(server, run, attachment, now),
        lambda tx: server_action.finish(tx, run, events, now),
    )


def attached(server: Server, run: AttachRun, attachment: str, now: int) -> Server:
    """The record with the volume attached."""
    return with_device(server, msgspec.structs.replace(run.input.device, attachment=attachment), now)


@record_volume.passed
async def was_recorded(run: AttachRun) -> bool:
    """Whether the action has ended with success. An adopter asks this; the earlier executor can write no more by then."""
    located = await records.sure(run.context, run.input.server.id)
    if located.cell is None:
        return False
    by, request = records.fence(run), server_action.request_of(run)

    def finished(tx: Tx) -> Server | None:
        row = cell_servers.take_over(tx, run.input.server.id, by)
        action = actions.get(tx, run.input.server.id, request)
        return row if action is not None and action.finished_at is not None and action.message is None else None

    row = await run.context.cells[located.cell].write(finished)
    if row is not None and run.context.notification_writer is not None:
        run.context.notification_writer.seen(run.operation, row)
    return row is not None


ATTACH_VOLUME = Saga(
    "attach_volume/1",
    AttachVolumeInput,
    reserve,
    begin_action,
    connect,
    plug,
    record_volume,
    ended=records.release_server,
)


# -------------------------------------------------------------------------------------------------- acceptance


class VolumeWish(msgspec.Struct, frozen=True):
    """What the request asks for."""

    volume: str
    device: str | None = None
    tag: str | None = None
    delete_on_termination: bool = False
    multiattach_allowed: bool = True
    """False below 2.60."""


async def begin(
    context: SagaContext,
    principal: Principal,
    token: str,
    server: Server,
    wish: VolumeWish,
    *,
    check: Callable[[Server], None],
    request_id: str = "",
) -> BlockDevice:
    """Accept the attach; return the device once the record lists it. Raises NotFound, Invalid, Forbidden, Conflict, and
    what `check` raises.
    """
    volume = await volumes_of(context).show(wish.volume, principal.project or "", token)
    _check_volume(context, volume, server, wish)
    owner = await context.dispatcher.choose(ATTACH_VOLUME.name)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        _check_devices(now, volume, wish)
        device = BlockDevice(
            source="volume",
            destination="volume",
            uuid=volume.id,
            volume=volume.id,
            size_gib=volume.size_gib,
            device=_device_of(now, wish),
            delete_on_termination=wish.delete_on_termination,
            volume_type=volume.volume_type,
            tag=wish.tag,
            bdm=new_uuid(),
            multiattach=volume.multiattach,
        )
        input = AttachVolumeInput(
            now, seq, device, request_id, principal.user, global_request_id.get(), principal.project or ""
        )
        return accepted(
            ATTACH_VOLUME, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id
        )

    new = await server_lock.accept(context, server.id, ACTION, make)
    await dispatch(context, new)
    made = msgspec.json.decode(new.asked, type=AttachVolumeInput).device
    try:
        await server_lock.ended_or(context, new.id, lambda: _listed(context, server.id, made.bdm), SHOWN_WITHIN_S)
    except Refusal:
        raise
    except Problem as failed:  # at the host, later: the action shows it, whether or not the caller still waits
        logger.info("%s: %s", new.id, failed)
    return made


async def _listed(context: SagaContext, server: ServerId, bdm: str) -> bool:
    """Whether the record lists the device: the volume is reserved then."""
    record = (await records.find(context, server)).server
    return record is not None and any(each.bdm == bdm for each in record.block_devices)


def _check_volume(context: SagaContext, volume: Volume, server: Server, wish: VolumeWish) -> None:
    """Check what can be refused before anything is done, in Nova's order."""
    attached_to = [each for _, each in volume.attachments]
    if attached_to and not volume.multiattach:
        raise Invalid(f"Invalid volume: volume {volume.id} is already attached to instances: {' '.join(attached_to)}")
    if server.id in attached_to:
        raise Invalid(f"Invalid volume: volume {volume.id} already attached")
    if server.vm_state is VmState.SHELVED_OFFLOADED:
        if wish.tag:
            raise Invalid("Tagged volume attachment is not supported for shelved-offloaded instances.")
        if volume.multiattach:
            raise Invalid("Attaching multiattach volumes is not supported for shelved-offloaded instances.")
    check_zone(context, volume, server.id, server.availability_zone)
    if volume.multiattach and not wish.multiattach_allowed:
        raise Invalid("Multiattach volumes are only supported starting with compute API version 2.60.")
    if not volume.may_be_attached:
        raise Invalid(
            f"Invalid volume: Volume {volume.id} status must be available or downloading to reserve, but the current status "
            f"is {volume.status}."
        )


def check_zone(context: SagaContext, volume: Volume, server: str, zone: str | None) -> None:
    """Check that volume and server are in one zone, when `volume.cross_az_attach` is off. Raises Invalid."""
    if context.settings.cross_az_attach or zone is None or volume.availability_zone == zone:
        return
    raise Invalid(
        f"Invalid volume: Instance {server} and volume {volume.id} are not in the same availability_zone. Instance is in "
        f"{zone}. Volume is in {volume.availability_zone}"
    )


def _check_devices(server: Server, volume: Volume, wish: VolumeWish) -> None:
    if any(each.volume == volume.id for each in server.volumes):
        raise Invalid(f"Invalid volume: volume {volume.id} already attached")
    if len(server.block_devices) >= VOLUMES_MAX:
        raise Forbidden(
            f"The maximum allowed number of disk devices ({VOLUMES_MAX}) to attach to a single instance has been exceeded."
        )
    if wish.device and wish.device in {server.root_device, *(each.device for each in server.block_devices)}:
        raise Conflict(f"The supplied device path ({wish.device}) is in use.")


def _device_of(server: Server, wish: VolumeWish) -> str:
    return wish.device or next_device(server)


def _server(run: AttachRun) -> Server:
    server = run[begin_action].server
    assert server is not None
    return server
