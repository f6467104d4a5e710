"""Crash dump: the host sends the guest a non-maskable interrupt; the guest's system decides what it does then."""

import msgspec

from moorage.bus.verbs import Verb
from moorage.model.guest import PowerState
from moorage.model.ids import OperationId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Server
from moorage.model.task_context import global_request_id
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.steps import server_action, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.hosts import command_context
from moorage.operations.steps.servers import LocatedServer, StateCheck
from moorage.saga import Run, Saga, step

ACTION = "trigger_crash_dump"
EVENT = "compute_trigger_crash_dump"
HOST_PATIENCE_S = 300.0


class CrashDump(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""
    """The project of the token with which the user asked."""


CrashDumpRun = Run[CrashDump, SagaContext]


@step
async def begin_action(run: CrashDumpRun) -> LocatedServer:
    return await server_action.begun(run, ACTION, EVENT)


@begin_action.undo
async def fail_action(run: CrashDumpRun) -> None:
    await server_action.failed(run, EVENT)


@step(needs=(begin_action,), patience_s=HOST_PATIENCE_S, no_undo="a guest that crashed cannot be taken back")
async def interrupt_guest(run: CrashDumpRun) -> PowerState:
    """Send the interrupt. The host answers a repeat with the stored result, so one request makes one dump."""
    to = server_action.host_of(run[begin_action])
    return await run.context.hosts.change_guest(
        to, command_context(run, "interrupt_guest"), run.input.server.id, Verb.CRASH_DUMP
    )


@step(needs=(begin_action, interrupt_guest), no_undo="it records what happened", point_of_no_return=True)
async def end_action(run: CrashDumpRun) -> None:
    """Finish the action. The guest's power state may change; its host reports that."""
    await server_action.done(run, run[begin_action], EVENT, lambda server: server)


CRASH_DUMP = Saga("crash_dump/1", CrashDump, begin_action, interrupt_guest, end_action, ended=records.release_server)


async def begin(
    context: SagaContext, principal: Principal, server: Server, *, check: StateCheck, request_id: str = ""
) -> None:
    """Accept a crash dump. Raises Conflict when another operation holds the server, or what `check` raises."""
    owner = await context.dispatcher.choose(CRASH_DUMP.name)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        input = CrashDump(now, seq, request_id, principal.user, global_request_id.get(), principal.project or "")
        return accepted(
            CRASH_DUMP, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id
        )

    await dispatch(context, await server_lock.accept(context, server.id, ACTION, make))
