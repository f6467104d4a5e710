"""Power: stop, start, reboot, pause, unpause, suspend, resume. One saga for all; its input names the verb."""

import time
from typing import Literal, TypeAlias

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.action import ActionEvent
from moorage.model.errors import Conflict, Internal, NotFound
from moorage.model.guest import PowerState
from moorage.model.ids import OperationId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Server, TaskState, VmState
from moorage.model.task_context import global_request_id
from moorage.operations.accept import accepted, dispatch, persist
from moorage.operations.context import SagaContext
from moorage.operations.steps import dangling_volumes, server_action, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.failures import failed_event
from moorage.operations.steps.hosts import command_context
from moorage.operations.steps.servers import LocatedServer
from moorage.saga import Run, Saga, step
from moorage.sql import Tx
from moorage.store.doubts import seq_of
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers

PowerVerb: TypeAlias = Literal["start", "stop", "reboot", "hard_reboot", "pause", "unpause", "suspend", "resume"]
HOST_PATIENCE_S = 300.0
REBOOTED_AFTER = frozenset(
    {
        TaskState.REBOOTING,
        TaskState.REBOOTING_HARD,
        TaskState.RESUMING,
        TaskState.UNPAUSING,
        TaskState.PAUSING,
        TaskState.SUSPENDING,
    }
)
"""While one of these operations holds the server, a hard reboot waits for it, as in Nova."""


class _Effect(msgspec.Struct, frozen=True):
    action: str
    task: TaskState
    becomes: VmState
    event: str


EFFECTS: dict[PowerVerb, _Effect] = {
    "start": _Effect("start", TaskState.POWERING_ON, VmState.ACTIVE, "compute_start_instance"),
    "stop": _Effect("stop", TaskState.POWERING_OFF, VmState.STOPPED, "compute_stop_instance"),
    "reboot": _Effect("reboot", TaskState.REBOOTING, VmState.ACTIVE, "compute_reboot_instance"),
    "hard_reboot": _Effect("reboot", TaskState.REBOOTING_HARD, VmState.ACTIVE, "compute_reboot_instance"),
    "pause": _Effect("pause", TaskState.PAUSING, VmState.PAUSED, "compute_pause_instance"),
    "unpause": _Effect("unpause", TaskState.UNPAUSING, VmState.ACTIVE, "compute_unpause_instance"),
    "suspend": _Effect("suspend", TaskState.SUSPENDING, VmState.SUSPENDED, "compute_suspend_instance"),
    "resume": _Effect("resume", TaskState.RESUMING, VmState.ACTIVE, "compute_resume_instance"),
}


class Power(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    verb: PowerVerb
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""
    """The project of the token with which the user asked."""


PowerRun = Run[Power, SagaContext]


@step
async def begin_action(run: PowerRun) -> LocatedServer:
    """Show the action from the start, and find where the server is.

    Raises NotFound when the server is on no host.
    """
    located = await records.sure(run.context, run.input.server.id)
    if located.server is None or located.cell is None or located.server.host is None:
        raise NotFound(f"server {run.input.server.id} is on no host")
    await run.context.cells[located.cell].write(
        lambda tx: server_action.begin(tx, run, EFFECTS[run.input.verb].action, EFFECTS[run.input.verb].event)
    )
    return located


@begin_action.undo
async def fail_action(run: PowerRun) -> None:
    """End the action with Error; the guest is as its host last saw it, so nothing else is changed."""
    located = await records.sure(run.context, run.input.server.id)
    if located.cell is not None:
        now = server_action.now_us()
        events = (failed_event(EFFECTS[run.input.verb].event, now, None, run.turned),)
        await run.context.cells[located.cell].write(lambda tx: server_action.finish(tx, run, events, now, "Error"))


@step(
    name="tell_host",
    needs=(begin_action,),
    patience_s=HOST_PATIENCE_S,
    no_undo="a guest's power cannot be given back; it is observed",
)
async def switch_power(run: PowerRun) -> PowerState:
    """Let the host do it; a repeat is answered with the stored result (RULES §10).

    Raises Internal for an unknown verb.
    """
    server = run[begin_action].server
    assert server is not None
    assert server.cell is not None
    assert server.host is not None
    hosts, to, mine = run.context.hosts, HostAddress(server.cell, server.host), command_context(run, "tell_host")
    match run.input.verb:
        case "start":
            return await hosts.power_on(to, mine, server.id)
        case "stop":
            return await hosts.power_off(to, mine, server.id)
        case "reboot":
            return await hosts.reboot(to, mine, server.id, hard=False)
        case "hard_reboot":
            await dangling_volumes.drop(run, "drop_volume", server.cell, server)
            return await hosts.reboot(to, mine, server.id, hard=True)
        case "pause":
            return await hosts.pause(to, mine, server.id)
        case "unpause":
            return await hosts.unpause(to, mine, server.id)
        case "suspend":
            return await hosts.suspend(to, mine, server.id)
        case "resume":
            return await hosts.resume(to, mine, server.id)
        case _:
            raise Internal(f"there is no power verb {run.input.verb}")


@step(needs=(begin_action, switch_power), no_undo="it records what happened", point_of_no_return=True)
async def record_power(run: PowerRun) -> None:
    """Record the guest's power state, and finish the action."""
    located = run[begin_action]
    assert located.cell is not None
    now, effect, state = server_action.now_us(), EFFECTS[run.input.verb], int(run[switch_power])
    host = None if located.server is None else located.server.host
    events = (ActionEvent(effect.event, now, now, "Success", host),)
    await records.change(
        run.context,
        located.cell,
        run.input.server.id,
        records.fence(run),
        lambda server: msgspec.structs.replace(
            server, vm_state=effect.becomes, task_state=None, power_state=state, updated_at=now
        ),
        lambda tx: server_action.finish(tx, run, events, now),
        last=True,
    )


POWER = Saga("power/1", Power, begin_action, switch_power, record_power, ended=records.release_server)


async def begin(
    context: SagaContext,
    principal: Principal,
    server: Server,
    verb: PowerVerb,
    request_id: str = "",
    *,
    only_after: int | None = None,
) -> None:
    """Accept a power action. Raises Conflict when another operation holds the server, NotFound when the server is gone.

    `only_after`: the last operation of the server that is known; Conflict when another one has begun since.

    It waits for an attach or detach of an interface, and for a boot that has shown its server ACTIVE: users see no task
    then that forbids the action. For a while it also waits for operations that a hard reboot may follow.
    """
    owner = await context.dispatcher.choose(POWER.name)
    operation = region_operations.new_id()

    def work(tx: Tx) -> Accepted | OperationId | Conflict | Server | None:
        held = region_servers.take(tx, server.id, operation, EFFECTS[verb].task)
        if held is None:
            return tx.refuse(None)
        if (why_not := _not_to_be_had(held, server, only_after)) is not None:
            return tx.refuse(why_not)
        input = Power(
            server, held.seq, verb, request_id, principal.user, global_request_id.get(), principal.project or ""
        )
        new = accepted(
            POWER, operation, server, input, owner=owner, user=principal.user, seq=held.seq, request_id=request_id
        )
        persist(context, tx, [new])
        return new

    answer, deadline = await context.region.write(work), time.monotonic() + server_lock.TURN_COMES_WITHIN_S
    while isinstance(answer, str | Server):
        if isinstance(answer, Server):  # it was read before the last operation ended, or is doubtful
            now = (await records.sure(context, server.id)).server
            if now is None or now.deleted:
                raise NotFound(f"Instance {server.id} could not be found.")
            server, answer = now, await context.region.write(work)
            continue
        if time.monotonic() > deadline or not await _gives_way(context, server, verb, answer):
            word = EFFECTS[verb].action
            raise Conflict(f"Cannot '{word}' instance {server.id} while another action is in progress.")
        answer = await context.region.write(work)
    if answer is None:
        raise NotFound(f"Instance {server.id} could not be found.")
    if isinstance(answer, Conflict):
        raise answer
    await dispatch(context, answer)


def _not_to_be_had(
    held: region_servers.SlotTaken, server: Server, only_after: int | None
) -> Conflict | OperationId | Server | None:
    """Why the operation cannot hold the server: a refusal, who holds it, or the server when it is to be read again."""
    if held.owed:
        return server_lock.owed(server.id)
    if only_after is not None and (held.holder is not None or held.seq != only_after + 1):
        return Conflict(f"instance {server.id} is changed by another operation")
    if held.holder is not None:
        return held.holder
    return server if server.cell is not None and held.doubt(seq_of(server)) is not None else None


async def _gives_way(context: SagaContext, server: Server, verb: PowerVerb, holder: OperationId) -> bool:
    if verb == "hard_reboot" and not context.preview:
        where = await context.region.read(lambda tx: region_servers.find(tx, server.id))
        if where is not None and where.operation == holder and where.task in REBOOTED_AFTER:
            return await server_lock.over(context, holder)
    return await server_lock.soon_released(context, server.id, holder)
