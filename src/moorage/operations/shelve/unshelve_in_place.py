"""Unshelve of a SHELVED server that was not offloaded: its guest is still on its host, and is switched on there."""

import msgspec

from moorage.model.errors import HostFailed, Unavailable
from moorage.model.guest import PowerState
from moorage.model.ids import OperationId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Server, TaskState, VmState
from moorage.model.task_context import global_request_id
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.steps import server_action, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.hosts import command_context
from moorage.operations.steps.servers import LocatedServer, StateCheck
from moorage.saga import Run, Saga, step

HOST_PATIENCE_S = 300.0
PATIENCE_S = 24 * 3600.0
ACTION, EVENT = "unshelve", "compute_unshelve_instance"


class UnshelveInPlace(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""


InPlaceRun = Run[UnshelveInPlace, SagaContext]


@step
async def begin_in_place(run: InPlaceRun) -> LocatedServer:
    return await server_action.begun(run, ACTION, EVENT)


@begin_in_place.undo
async def fail_in_place(run: InPlaceRun) -> None:
    await server_action.failed(run, EVENT)


@step(needs=(begin_in_place,), patience_s=HOST_PATIENCE_S)
async def power_on(run: InPlaceRun) -> PowerState:
    return await run.context.hosts.power_on(
        server_action.host_of(run[begin_in_place]), command_context(run, "power_on"), run.input.server.id
    )


@power_on.undo
async def power_off(run: InPlaceRun) -> None:
    located = run.get(begin_in_place)
    if located is None or located.server is None:
        return
    try:
        await run.context.hosts.power_off(
            server_action.host_of(located), command_context(run, "power_off"), located.server.id
        )
    except HostFailed as failed:
        if failed.code not in {"host_silent", "guest_not_found"}:
            raise


@step(needs=(begin_in_place, power_on), no_undo="a server that was shown ACTIVE stays so", point_of_no_return=True)
async def record_active(run: InPlaceRun) -> None:
    state = run[power_on]
    await server_action.done(run, run[begin_in_place], EVENT, lambda server: started(server, state))


def started(server: Server, state: PowerState) -> Server:
    """The record of a SHELVED server that runs again on its host."""
    return msgspec.structs.replace(
        server,
        vm_state=VmState.ACTIVE,
        task_state=None,
        power_state=int(state),
        shelved=None,
        updated_at=server_action.now_us(),
    )


@step(needs=(begin_in_place, record_active), no_undo="it only goes forward", patience_s=PATIENCE_S)
async def drop_image(run: InPlaceRun) -> None:
    """Delete the image: the disk never left the host."""
    shelved = run.input.server.shelved
    if shelved is not None and shelved.image is not None:
        await run.context.images.delete(shelved.image)


UNSHELVE_IN_PLACE = Saga(
    "unshelve_in_place/1",
    UnshelveInPlace,
    begin_in_place,
    power_on,
    record_active,
    drop_image,
    ended=records.release_server,
)


async def begin(
    context: SagaContext, principal: Principal, server: Server, *, check: StateCheck, request_id: str
) -> None:
    """Accept the unshelve. Raises Conflict, NotFound, and Unavailable while the server is being changed."""
    owner = await context.dispatcher.choose(UNSHELVE_IN_PLACE.name)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        if now.vm_state is not VmState.SHELVED:
            raise Unavailable("The instance is being changed; try again.")
        input = UnshelveInPlace(now, seq, request_id, principal.user, global_request_id.get(), principal.project or "")
        return accepted(
            UNSHELVE_IN_PLACE, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id
        )

    new = await server_lock.accept(context, server.id, ACTION, make, task=TaskState.POWERING_ON)
    await dispatch(context, new)
