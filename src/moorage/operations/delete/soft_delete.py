"""Soft delete and restore: a deleted server is switched off and kept for a time, in which it can be restored.

Until it is reclaimed it uses no quota, as in Nova, and keeps its host, claim, ports and addresses. A soft delete goes
only forward, as a delete does, because its request was answered. A restore that fails leaves the server soft-deleted.
"""

import msgspec

from moorage.model.debt import DebtKind
from moorage.model.errors import Conflict, NotFound, Unavailable
from moorage.model.flavor_classes import charged_of
from moorage.model.guest import PowerState as GuestState
from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.quota import DEFAULT_LIMITS, Shortfall
from moorage.model.server import ApiPowerState, Server, TaskState, VmState
from moorage.model.task_context import global_request_id
from moorage.model.unified_limits import UnifiedLimits
from moorage.operations.accept import accepted, dispatch, persist
from moorage.operations.context import SagaContext
from moorage.operations.steps import server_action, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.debts import done_or_owed
from moorage.operations.steps.hosts import COMMAND_ENDS, NO_GUEST, SILENT, command_context, was_never_sent
from moorage.operations.steps.servers import LocatedServer, StateCheck
from moorage.operations.steps.sleepers import waker_of
from moorage.saga import Run, Saga, step
from moorage.sql import Tx
from moorage.store.cell import actions
from moorage.store.doubts import seq_of
from moorage.store.region import operations as region_operations
from moorage.store.region import quotas
from moorage.store.region import servers as region_servers

SOFT_EVENT = "compute_soft_delete_instance"
RESTORE_EVENT = "compute_restore_instance"
FORWARD_ONLY = "a delete that was answered only goes forward; the server is restored by another operation"
PATIENCE_S = 24 * 3600.0
HOST_PATIENCE_S = 300.0
AT_ONCE = frozenset({VmState.BUILDING, VmState.RESIZED, VmState.SHELVED, VmState.SHELVED_OFFLOADED})
"""A server in one of these states is deleted at once: its host does not have what a restore needs."""


class SoftDelete(msgspec.Struct, frozen=True):
    server: Server
    """The record when the delete was accepted; the saga reads it again."""
    seq: int
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""
    """The project of the token with which the user asked."""


class Restore(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    limits: dict[str, int] = {}
    """Default limits of quota when the restore was accepted."""
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""
    unified: UnifiedLimits | None = None
    """The limits of the identity service when the restore was accepted, if they hold."""


SoftDeleteRun = Run[SoftDelete, SagaContext]
RestoreRun = Run[Restore, SagaContext]


def weight_of(server: Server) -> dict[str, int]:
    return charged_of(server)


# -------------------------------------------------------------------------------------------------- soft delete


@step(no_undo="reads only", patience_s=PATIENCE_S)
async def find_server(run: SoftDeleteRun) -> LocatedServer:
    """Find where the server is, now that no other operation holds it."""
    return await records.sure(run.context, run.input.server.id)


def _is_present(located: LocatedServer) -> bool:
    """Whether there is work to do: the server is neither deleted nor soft-deleted."""
    server = located.server
    return (
        server is not None
        and located.cell is not None
        and not server.deleted
        and server.vm_state is not VmState.SOFT_DELETED
    )


@step(no_undo=FORWARD_ONLY, needs=(find_server,), patience_s=PATIENCE_S, point_of_no_return=True)
async def switch_off(run: SoftDeleteRun) -> int:
    """Switch it off at once, as Nova does. A silent host is not waited for; a host that fails is asked again.

    Raises Unavailable when the host fails.
    """
    located = run[find_server]
    if not _is_present(located) or located.server is None or located.server.host is None:
        return ApiPowerState.NOSTATE  # it was shelved, and left its host, between the request and now
    try:
        return int(
            await run.context.hosts.power_off(
                server_action.host_of(located), command_context(run, "switch_off"), run.input.server.id
            )
        )
    except COMMAND_ENDS as failed:
        if failed.code in {*SILENT, NO_GUEST}:
            return ApiPowerState.NOSTATE
        why = f"the host could not switch the guest off: {failed.public}"
        raise Unavailable(why, private=failed.private) from failed


@step(no_undo=FORWARD_ONLY, needs=(find_server, switch_off), patience_s=PATIENCE_S)
async def mark_soft_deleted(run: SoftDeleteRun) -> None:
    """Let the record say SOFT_DELETED, and finish the action."""
    located = run[find_server]
    if not _is_present(located):
        return
    assert located.cell is not None
    assert located.server is not None
    state, now = run.get(switch_off), server_action.now_us()
    event = server_action.ended_event(SOFT_EVENT, now, located.server.host)
    action = msgspec.structs.replace(server_action.action_of(run, "delete"), finished_at=now, events=(event,))
    await records.change(
        run.context,
        located.cell,
        located.server.id,
        records.fence(run),
        lambda server: soft_deleted(server, server.power_state if state is None else state, now),
        lambda tx: actions.write(tx, action),
        last=True,
    )


def may_be_restored(server: Server) -> bool:
    """Whether its host has what a restore needs. A server that was being shelved or moved when it was deleted is
    reclaimed at once.
    """
    return server.host is not None and server.shelved is None and server.moved is None


def soft_deleted(server: Server, power: int, now: int) -> Server:
    """The record of a server that may be restored."""
    return msgspec.structs.replace(
        server,
        vm_state=VmState.SOFT_DELETED,
        task_state=None,
        power_state=power,
        soft_deleted_at=server.soft_deleted_at or now,
        updated_at=now,
        progress=0,
    )


@step(no_undo=FORWARD_ONLY, needs=(find_server, mark_soft_deleted), region=True)
async def release_quota(run: SoftDeleteRun) -> None:
    """Release its quota; its claim stays."""
    located = run[find_server]

    def work(tx: Tx) -> None:
        if _is_present(located) and located.server is not None:
            quotas.release(tx, located.server.project, weight_of(located.server), located.server.user)

    await run.commit(work)


def _ended(tx: Tx, run: SoftDeleteRun, status: str) -> None:
    """A server that was gone or soft-deleted by then has kept its record."""
    located = run.get(find_server)
    records.release(tx, run, recorded=status == "done" and located is not None and _is_present(located))


SOFT_DELETE = Saga(
    "soft_delete/1",
    SoftDelete,
    find_server,
    switch_off,
    mark_soft_deleted,
    release_quota,
    ended=_ended,
    forward_only=True,
)


# ------------------------------------------------------------------------------------------------------ restore


@step
async def begin_restore(run: RestoreRun) -> LocatedServer:
    return await server_action.begun(run, "restore", RESTORE_EVENT)


@begin_restore.undo
async def fail_restore(run: RestoreRun) -> None:
    """Leave it soft-deleted; another restore is possible until it is reclaimed."""
    await server_action.failed(run, RESTORE_EVENT)


@step(region=True, needs=(begin_restore,))
async def charge_quota(run: RestoreRun) -> bool:
    """Charge its quota again. Raises OverQuota when other servers took the room since the restore was accepted."""
    server = run.input.server
    limits = run.input.unified or {**DEFAULT_LIMITS, **run.input.limits}

    def work(tx: Tx) -> bool | Shortfall:
        short = quotas.reserve(tx, server.project, weight_of(server), limits, server.user)
        return True if short is None else tx.refuse(short)

    answer = await run.commit(work)
    if isinstance(answer, Shortfall):
        raise answer.problem()
    return True


@charge_quota.undo
async def release_again(run: RestoreRun) -> None:
    server = run.input.server
    if run.get(charge_quota):
        await run.commit(lambda tx: quotas.release(tx, server.project, weight_of(server), server.user))


@step(needs=(begin_restore, charge_quota), patience_s=HOST_PATIENCE_S)
async def switch_on(run: RestoreRun) -> GuestState:
    to = server_action.host_of(run[begin_restore])
    return await run.context.hosts.power_on(to, command_context(run, "switch_on"), run.input.server.id)


@switch_on.undo
async def off_again(run: RestoreRun) -> None:
    """Switch it off; a silent host that may have switched it on owes that."""
    located = run.get(begin_restore)
    if located is None or was_never_sent(run, switch_on.name):
        return
    host = server_action.host_of(located)
    call = run.context.hosts.power_off(host, command_context(run, "off_again"), run.input.server.id)
    await done_or_owed(run, DebtKind.SWITCH_OFF, host, call)


@step(needs=(begin_restore, switch_on), no_undo="a server that was shown ACTIVE stays so", point_of_no_return=True)
async def record_restored(run: RestoreRun) -> None:
    state = int(run[switch_on])
    await server_action.done(
        run, run[begin_restore], RESTORE_EVENT, lambda server: restored(server, state, server_action.now_us())
    )


def restored(server: Server, power: int, now: int) -> Server:
    """The record of a restored server."""
    return msgspec.structs.replace(
        server, vm_state=VmState.ACTIVE, task_state=None, power_state=power, soft_deleted_at=None, updated_at=now
    )


RESTORE = Saga(
    "restore/1", Restore, begin_restore, charge_quota, switch_on, record_restored, ended=records.release_server
)


# --------------------------------------------------------------------------------------------------- acceptance


def is_for_later(context: SagaContext, server: Server) -> bool:
    """Whether a delete of this server is a soft delete: only for a server that was launched, as in Nova."""
    return (
        context.settings.reclaim_instance_interval_s > 0
        and server.launched_at is not None
        and server.vm_state not in AT_ONCE
    )


async def begin(context: SagaContext, principal: Principal, server: Server, *, request_id: str = "") -> None:
    """Accept a soft delete: at once if no operation holds the server; otherwise behind the holder, which is asked to
    stop (RULES §9).

    A repeated delete has no further effect. Raises NotFound, and Doubtful when its record may not be acted on.
    """
    if server.vm_state is VmState.SOFT_DELETED:
        return
    owner, waker = await context.dispatcher.choose(SOFT_DELETE.name), await waker_of(context)
    operation = region_operations.new_id()

    def work(tx: Tx) -> tuple[Accepted | None, OperationId | None, ConductorId | None] | None:
        held = region_servers.queue(tx, server.id, operation, TaskState.SOFT_DELETING)
        if held is None or held.seq == 0:
            tx.refuse((None, None, None))
        if held.holder is None and server.cell is not None and held.doubt(seq_of(server)) is not None:
            return tx.refuse(None)
        if held.holder is not None:
            holder = region_operations.get(tx, held.holder)
            if holder is not None and holder.name in {"delete", "soft_delete"}:
                tx.refuse((None, None, None))
            region_operations.ask_to_cancel(tx, held.holder, "soft deleted", waker)
        input = SoftDelete(
            server, held.seq, request_id, principal.user, global_request_id.get(), principal.project or ""
        )
        new = accepted(
            SOFT_DELETE,
            operation,
            server,
            input,
            owner=owner,
            user=principal.user,
            seq=held.seq,
            after=held.holder,
            request_id=request_id,
        )
        persist(context, tx, [new])
        holder_owner = None if held.holder is None else region_operations.owner_of(tx, held.holder)
        return new, held.holder, holder_owner

    answer = await context.region.write(work)
    if answer is None:  # the record was read before the last operation ended, or is doubtful
        now = (await records.sure(context, server.id)).server
        if now is None or now.deleted:
            raise NotFound(f"Instance {server.id} could not be found.")
        await begin(context, principal, now, request_id=request_id)
        return
    new, holder, holder_owner = answer
    await dispatch(context, new, holder, holder_owner)


async def begin_restoring(
    context: SagaContext, principal: Principal, server: Server, *, check: StateCheck, request_id: str = ""
) -> None:
    """Accept a restore. Raises OverQuota; Conflict for a server whose host no longer has what a restore needs."""
    check(server)
    defaults = await context.limits_of(server.project)
    unified = defaults if isinstance(defaults, UnifiedLimits) else None
    short = await context.region.read(lambda tx: quotas.would_break(tx, server.project, weight_of(server), defaults))
    if short is not None:
        raise short.problem()
    owner = await context.dispatcher.choose(RESTORE.name)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        check(now)
        if not may_be_restored(now):
            raise Conflict(f"Instance {now.id} was shelved or moved when it was deleted, and cannot be restored.")
        input = Restore(
            server=now,
            seq=seq,
            limits=dict(context.settings.quota or {}),
            request_id=request_id,
            user=principal.user,
            global_request_id=global_request_id.get(),
            by_project=principal.project or "",
            unified=unified,
        )
        return accepted(
            RESTORE, operation, now, input, owner=owner, user=principal.user, seq=seq, request_id=request_id
        )

    await dispatch(context, await server_lock.accept(context, server.id, "restore", make, task=TaskState.RESTORING))
