"""Extends an attached volume: the host lets the guest see the new size, and the volume service gets the result.

The volume service sends the event `volume-extended` after it has extended the volume. For a server that is on no host
nothing is done; its guest sees the new size when it starts.
"""

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.action import ActionEvent
from moorage.model.errors import NotFound
from moorage.model.ids import OperationId, ServerId, new_uuid
from moorage.model.operation import Accepted
from moorage.model.server import BlockDevice, Server
from moorage.model.task_context import global_request_id
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.steps import server_action, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.failures import failed_event
from moorage.operations.steps.hosts import COMMAND_ENDS, NO_GUEST, command_context, is_given_up
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.volumes import VOLUME_PATIENCE_S, or_left_to_delete, volumes_of, with_device
from moorage.saga import Run, Saga, step

EXTENDED = "volume-extended"
ACTION = "extend_volume"
EVENT = "compute_extend_volume"
HOST_PATIENCE_S = 120.0


class ExtendVolumeInput(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    device: BlockDevice
    size_gib: int
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""

    @property
    def volume(self) -> str:
        assert self.device.volume is not None
        return self.device.volume


ExtendRun = Run[ExtendVolumeInput, SagaContext]


@step(of_request=True)
async def begin_action(run: ExtendRun) -> LocatedServer:
    """Show the action from the start. Raises NotFound when the server is in no cell."""
    located = await records.sure(run.context, run.input.server.id)
    if located.server is None or located.cell is None:
        raise NotFound(f"server {run.input.server.id} is in no cell")
    await run.context.cells[located.cell].write(lambda tx: server_action.begin(tx, run, ACTION, EVENT))
    return located


@begin_action.undo
async def fail_action(run: ExtendRun) -> None:
    """End the action with Error, and tell the volume service that the guest does not see the new size."""
    failing = volumes_of(run.context).complete_extend(run.input.volume, failed=True)
    await or_left_to_delete(run.context, run.input.server.id, failing)
    located = await records.sure(run.context, run.input.server.id)
    if located.cell is not None:
        now = server_action.now_us()
        host = None if located.server is None else located.server.host
        events = (failed_event(EVENT, now, host, run.turned),)
        await run.context.cells[located.cell].write(lambda tx: server_action.finish(tx, run, events, now, "Error"))


@step(
    name="tell_host",
    needs=(begin_action,),
    no_undo="a disk that has grown does not shrink",
    patience_s=HOST_PATIENCE_S,
    point_of_no_return=True,
)
async def extend_on_host(run: ExtendRun) -> None:
    """Let the guest see the new size; no guest counts as success. A host that was told and does not answer is asked
    again until it does, or is forced down: the guest sees the size when it starts elsewhere.
    """
    server = run[begin_action].server
    if server is None or server.host is None or server.cell is None:
        return
    to, input = HostAddress(server.cell, server.host), run.input
    try:
        await run.context.hosts.extend_volume(
            to, command_context(run, "extend"), server.id, input.volume, input.size_gib
        )
    except COMMAND_ENDS as failed:
        if failed.code != NO_GUEST and not is_given_up(run, to, failed):
            raise


@step(
    name="tell_volume_service",
    needs=(begin_action, extend_on_host),
    no_undo="the volume service goes on by itself",
    patience_s=VOLUME_PATIENCE_S,
)
async def complete_extend(run: ExtendRun) -> None:
    await volumes_of(run.context).complete_extend(run.input.volume, failed=False)


@step(needs=(begin_action, complete_extend), no_undo="the guest has it")
async def record_size(run: ExtendRun) -> None:
    """Write the size into the record, and finish the action. Raises NotFound when the server is in no cell."""
    located, now = await records.sure(run.context, run.input.server.id), server_action.now_us()
    if located.cell is None:
        raise NotFound(f"server {run.input.server.id} is in no cell")
    events = (ActionEvent(EVENT, now, now, "Success", None if located.server is None else located.server.host),)

    def grown(server: Server) -> Server:
        for each in server.block_devices:
            if each.bdm == run.input.device.bdm:
                return with_device(server, msgspec.structs.replace(each, size_gib=run.input.size_gib), now)
        return server

    await records.change(
        run.context,
        located.cell,
        run.input.server.id,
        records.fence(run),
        grown,
        lambda tx: server_action.finish(tx, run, events, now),
    )


EXTEND_VOLUME = Saga(
    "extend_volume/1",
    ExtendVolumeInput,
    begin_action,
    extend_on_host,
    complete_extend,
    record_size,
    ended=records.release_server,
)


async def begin(context: SagaContext, server: ServerId, volume: str) -> None:
    """Accept an event; one about a volume that the server does not have is ignored. Raises Conflict when another
    operation holds the server: try again.
    """
    record = (await records.find(context, server)).server
    if record is None or record.deleted or not any(each.volume == volume for each in record.volumes):
        return
    size = (await volumes_of(context).show(volume)).size_gib
    owner = await context.dispatcher.choose(EXTEND_VOLUME.name)
    request = f"req-{new_uuid()}"

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        device = next((each for each in now.volumes if each.volume == volume), None)
        if device is None:
            raise NotFound(f"Instance {server} is not attached to volume {volume}")
        input = ExtendVolumeInput(now, seq, device, size, request, now.user, global_request_id.get())
        return accepted(EXTEND_VOLUME, operation, now, input, owner=owner, user=now.user, seq=seq, request_id=request)

    try:
        await dispatch(context, await server_lock.accept(context, server, ACTION, make))
    except NotFound:
        return
