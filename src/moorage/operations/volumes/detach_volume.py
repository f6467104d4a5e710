"""Detach a volume: other operations on it are excluded, the host removes it from the guest, the volume service releases
it, the record drops it.

Once it is out of the guest, it only goes forward. A host that cannot remove it (the device is busy) leaves everything
as it was. A missing guest does not stop the detach, but a silent host does: its guest may still write to the volume.
"""

import logging
from collections.abc import Callable

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.action import ActionEvent
from moorage.model.debt import DebtKind
from moorage.model.errors import Invalid, NotFound, Problem, Refusal, Unavailable
from moorage.model.ids import OperationId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import BlockDevice, Server
from moorage.model.task_context import global_request_id
from moorage.model.volume import IN_USE, Volume
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.steps import server_action, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.debts import debt_of, owe_and_go_on
from moorage.operations.steps.failures import failed_event
from moorage.operations.steps.hosts import COMMAND_ENDS, NO_GUEST, command_context, is_given_up
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.volumes import (
    VOLUME_PATIENCE_S,
    drop_attachments,
    is_gone,
    or_left_to_delete,
    volumes_of,
    without_device,
)
from moorage.saga import Run, Saga, step

logger = logging.getLogger(__name__)

FORWARD_ONLY = "what is out of the guest is not put back: a detach only goes forward"
HOST_PATIENCE_S = 120.0
SHOWN_WITHIN_S = 10.0
PATIENCE_S = 24 * 3600.0
"""How long it waits, once the volume is out of the guest, for a volume service that does not answer before it is stuck.
"""
ACTION = "detach_volume"
EVENT = "compute_detach_volume"
DETACHING = "detaching"


class DetachVolumeInput(msgspec.Struct, frozen=True):
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


DetachRun = Run[DetachVolumeInput, SagaContext]


@step
async def begin_action(run: DetachRun) -> LocatedServer:
    """Show the action from the start, and find where the server is. Raises NotFound when it is in no cell."""
    located = await records.sure(run.context, run.input.server.id)
    if located.server is None or located.cell is None:
        raise NotFound(f"server {run.input.server.id} is in no cell")
    await run.context.cells[located.cell].write(lambda tx: server_action.begin(tx, run, ACTION, EVENT))
    return located


@begin_action.undo
async def fail_action(run: DetachRun) -> None:
    """End the action with Error; the volume stays attached."""
    located = await records.sure(run.context, run.input.server.id)
    if located.cell is not None:
        now = server_action.now_us()
        host = None if located.server is None else located.server.host
        events = (failed_event(EVENT, now, host, run.turned),)
        await run.context.cells[located.cell].write(lambda tx: server_action.finish(tx, run, events, now, "Error"))


@step(needs=(begin_action,), patience_s=VOLUME_PATIENCE_S)
async def begin_detaching(run: DetachRun) -> None:
    """Set the volume's status, so that no other operation begins. Raises Invalid when it is in another state."""
    server = run[begin_action].server
    if server is None or server.host is None:
        return  # reserved for a server that is on no host
    client = volumes_of(run.context)
    try:
        if run.unsure and (await client.show(run.input.volume)).status == DETACHING:
            return
        await client.begin_detaching(run.input.volume)
    except NotFound:  # it was deleted at the volume service, and the record is to drop it
        logger.warning("%s: volume %s no longer exists", run.operation, run.input.volume)


@begin_detaching.undo
async def roll_detaching(run: DetachRun) -> None:
    call = volumes_of(run.context).roll_detaching(run.input.volume)
    await or_left_to_delete(run.context, run.input.server.id, call)


@step(needs=(begin_action, begin_detaching), no_undo=FORWARD_ONLY, patience_s=HOST_PATIENCE_S, point_of_no_return=True)
async def unplug(run: DetachRun) -> bool | None:
    """Let the host remove it from the guest; no guest counts as success. A host that cannot do it leaves everything as
    it was; one that was told and does not answer is asked again until it does.

    Returns True when the host is forced down meanwhile: it owes the removal, and the volume stays attached until then.
    """
    server = run[begin_action].server
    if server is None or server.host is None or server.cell is None:
        return None
    to = HostAddress(server.cell, server.host)
    try:
        await run.context.hosts.detach_volume(to, command_context(run, "unplug"), server.id, run.input.volume)
    except COMMAND_ENDS as failed:
        if is_given_up(run, to, failed):
            debt = debt_of(run, DebtKind.UNPLUG_VOLUME, to.cell, to.host, run.input.volume)
            return await owe_and_go_on(run, debt)
        if failed.code != NO_GUEST:
            raise
        logger.info("%s: there is no guest to take %s out of: %s", run.operation, run.input.volume, failed)
    return None


@step(needs=(begin_action, unplug), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def let_volume_go(run: DetachRun) -> None:
    """Let the volume service end the export, unless the guest may still have the volume."""
    if run.get(unplug):
        return None
    attachment = run.input.device.attachment
    if attachment is None or run.unsure:
        return await drop_attachments(run.context, run.input.server.id, run.input.volume)
    return await volumes_of(run.context).drop_attachment(attachment)


@step(needs=(begin_action, let_volume_go), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def forget_volume(run: DetachRun) -> None:
    """Remove the device from the record, and finish the action."""
    located, now = run[begin_action], server_action.now_us()
    assert located.cell is not None
    host = None if located.server is None else located.server.host
    events = (ActionEvent(EVENT, now, now, "Success", host),)
    await records.change(
        run.context,
        located.cell,
        run.input.server.id,
        records.fence(run),
        lambda server: without_device(server, run.input.device.bdm, now),
        lambda tx: server_action.finish(tx, run, events, now),
    )


DETACH_VOLUME = Saga(
    "detach_volume/1",
    DetachVolumeInput,
    begin_action,
    begin_detaching,
    unplug,
    let_volume_go,
    forget_volume,
    ended=records.release_server,
)


# -------------------------------------------------------------------------------------------------- acceptance


def device_of(server: Server, volume: str) -> BlockDevice:
    """The server's device with this volume. Raises NotFound, with Nova's message."""
    device = next((each for each in server.volumes if each.volume == volume), None)
    if device is None:
        raise NotFound(f"Instance {server.id} is not attached to volume {volume}", code="not_attached")
    return device


async def begin(
    context: SagaContext,
    principal: Principal,
    token: str,
    server: Server,
    volume: str,
    *,
    check: Callable[[Server], None],
    request_id: str = "",
) -> None:
    """Accept the detach, also of a volume that no longer exists; the volume's status shows it when this returns. Raises NotFound, Invalid (the root, a volume
    that is not in use), Conflict.

    A client that waits for the volume's next status would otherwise see the status from before the detach.
    """
    shown = await _shown(context, principal, token, server, volume)
    if device_of(server, volume).boot_index == 0:
        raise Invalid("Cannot detach a root device volume")
    owner = await context.dispatcher.choose(DETACH_VOLUME.name)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        device = device_of(now, volume)
        if shown is not None and now.host is not None and shown.status != IN_USE and not shown.migration_status:
            raise Invalid(
                "Invalid volume: Invalid input received: Invalid volume: Unable to detach volume. Volume status must be "
                "'in-use' and attach_status must be 'attached' to detach."
            )
        input = DetachVolumeInput(
            now, seq, device, request_id, principal.user, global_request_id.get(), principal.project or ""
        )
        return accepted(
            DETACH_VOLUME, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id
        )

    new = await server_lock.accept(context, server.id, ACTION, make)
    await dispatch(context, new)
    if server.host is None or shown is None or shown.status != IN_USE or shown.migration_status:
        return  # its status stays: the volume is only reserved, or on its way elsewhere
    try:
        await server_lock.ended_or(context, new.id, lambda: _going(context, volume), SHOWN_WITHIN_S)
    except Refusal:
        raise
    except Problem as failed:  # at the host, later: the action shows it
        logger.info("%s: %s", new.id, failed)


async def _shown(context: SagaContext, principal: Principal, token: str, server: Server, volume: str) -> Volume | None:
    """The volume as the user sees it. None: it is the server's, and no longer exists; then the record is to drop it.

    Raises NotFound when the user does not see it, or when the server does not have it.
    """
    try:
        return await volumes_of(context).show(volume, principal.project or "", token)
    except NotFound:
        device_of(server, volume)
        if not await is_gone(context, volume):
            raise
        return None


async def _going(context: SagaContext, volume: str) -> bool:
    """Whether the volume service shows the status `detaching`, or cannot show it any more."""
    try:
        return (await volumes_of(context).show(volume)).status != IN_USE
    except (NotFound, Unavailable):
        return True
