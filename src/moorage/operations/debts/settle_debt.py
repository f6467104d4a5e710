"""Pays one debt of a host that is home (RULES §25): the host does what it owes, what it concerned is released, the debt
ends.

    find_server   where the server is, now that this operation holds it
    pay_at_host   the host unplugs or switches on; a guest that is not there, or is no longer the server's, owes nothing
    release_thing the volume's attachments or the port are released
    end_debt      the claim's part is released, and the debt removed, in one commit

Nobody asked for it, so no action shows it. A payment that fails leaves the debt, and is begun again later.
"""

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.debt import Debt, DebtKind
from moorage.model.ids import ImageId, OperationId, ServerId
from moorage.model.operation import Accepted
from moorage.model.server import Server, VmState
from moorage.model.verdict import InventoryState
from moorage.operations.accept import accepted, dispatch
from moorage.operations.context import SagaContext
from moorage.operations.debts import left_guest
from moorage.operations.steps import left_guests, server_lock
from moorage.operations.steps import servers as records
from moorage.operations.steps.debts import failed_payment
from moorage.operations.steps.hosts import COMMAND_ENDS, NO_GUEST, SILENT, command_context, until_given_up
from moorage.operations.steps.ports import with_our_credentials
from moorage.operations.steps.server_action import now_us
from moorage.operations.steps.servers import LocatedServer
from moorage.operations.steps.volumes import drop_attachments
from moorage.placement.claims import amounts_of
from moorage.saga import Run, Saga, no_result, step
from moorage.sql import Tx
from moorage.store.region import debts

ACTION = "settle_debt"
FORWARD_ONLY = "the host has paid: what it owed is not done again"
WHILE = {
    DebtKind.SWITCH_ON: (VmState.ACTIVE, VmState.RESIZED),
    DebtKind.SWITCH_OFF: (VmState.SHELVED, VmState.SOFT_DELETED, VmState.STOPPED),
}
"""The states of a server in which its guest's power is still owed; in others an operation, or an administrator, decided since."""
HOST_PATIENCE_S = 120.0
PATIENCE_S = 24 * 3600.0


class SettleDebt(msgspec.Struct, frozen=True):
    server: Server
    seq: int
    debt: Debt
    request_id: str = ""
    user: str = ""


SettleRun = Run[SettleDebt, SagaContext]


@step(no_undo="reads only")
async def find_server(run: SettleRun) -> LocatedServer:
    """Find where the server is."""
    return await records.sure(run.context, run.input.server.id)


@step(needs=(find_server,), no_undo=FORWARD_ONLY, patience_s=HOST_PATIENCE_S, point_of_no_return=True)
async def pay_at_host(run: SettleRun) -> None:
    """Let the host do what it owes. Raises HostFailed when it cannot: the debt stays."""
    debt, server = run.input.debt, run[find_server].server
    if not owes_still(debt, server):
        return
    to, mine, id = HostAddress(debt.cell, debt.host), command_context(run, "pay"), run.input.server.id
    hosts = run.context.hosts
    try:
        with until_given_up(run, to):
            match debt.kind:
                case DebtKind.UNPLUG_VOLUME:
                    await hosts.detach_volume(to, mine, id, debt.thing)
                case DebtKind.UNPLUG_INTERFACE:
                    await hosts.detach_interface(to, mine, id, debt.thing)
                case DebtKind.SWITCH_ON:
                    await hosts.power_on(to, mine, id)
                case DebtKind.SWITCH_OFF:
                    await hosts.power_off(to, mine, id)
                case DebtKind.DROP_COPY:
                    await hosts.drop_snapshot(to, mine, id, ImageId(debt.thing))
                case DebtKind.DESTROY:
                    if not await left_guests.is_off(run.context, to):
                        await hosts.destroy_guest(to, mine, id)
    except COMMAND_ENDS as failed:
        if failed.code != NO_GUEST:
            raise


def owes_still(debt: Debt, server: Server | None) -> bool:
    """Whether the host may still have what it is to undo. A guest elsewhere is another one: this host's was destroyed,
    or is proven to be off and destroyed when it returns (RULES §11).
    """
    if debt.kind is DebtKind.DESTROY:
        return server is None or server.host != debt.host
    if server is None or server.deleted or server.host != debt.host:
        return False
    return server.vm_state in WHILE.get(debt.kind, (server.vm_state,))


@step(needs=(find_server, pay_at_host), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S)
async def release_thing(run: SettleRun) -> None:
    """Release the volume or the port. A volume that the record lists by now is the server's. A boot that failed had not
    released anything while a host might have its guest.
    """
    located, debt = run[find_server], run.input.debt
    record = located.server
    if debt.kind is DebtKind.DESTROY:
        if located.cell is None and not await left_guest.is_elsewhere(run.context, debt):
            await left_guest.released(run.context, run.input.server.id, record, built=False)
    elif record is None or not any(each.volume == run.input.debt.thing for each in record.volumes):
        await released(run.context, run.input.server.id, run.input.debt)


async def released(context: SagaContext, server: ServerId, debt: Debt) -> None:
    """Release what a debt concerns at the service that has it; absent is success."""
    if debt.kind is DebtKind.UNPLUG_VOLUME:
        await drop_attachments(context, server, debt.thing)
    elif debt.nic is not None:
        await with_our_credentials(context, server, context.network.release_nic(server, debt.nic))


@step(needs=(release_thing,), no_undo=FORWARD_ONLY, patience_s=PATIENCE_S, region=True)
async def end_debt(run: SettleRun) -> None:
    """Release what the interface held of the claim, and remove the debt, in one commit."""
    run.context.placement.settle(
        await run.commit(lambda tx: ended(tx, run.context, run.input.server.id, run.input.debt), result=no_result)
    )


def ended(tx: Tx, context: SagaContext, server: ServerId, debt: Debt) -> tuple[InventoryState, ...]:
    """Remove the debt; what it held of the claim is released once, with it."""
    if not debts.end(tx, debt) or not (debt.held or debt.function_of):
        return ()
    return context.placement.shrink(tx, server, amounts_of(debt.held), debt.function_of)


def note_end(tx: Tx, run: SettleRun, status: str) -> None:
    """In the commit that ends the saga: a payment that failed is noted in the debt."""
    if status == "unwound":
        turned = run.turned
        answered = turned is not None and turned.step == pay_at_host.name and turned.code not in SILENT
        problem = "" if turned is None else turned.public
        debts.note_failed(tx, failed_payment(run.input.debt, problem, answered=answered, now=now_us()))
    records.release(tx, run)


SETTLE_DEBT = Saga("settle_debt/1", SettleDebt, find_server, pay_at_host, release_thing, end_debt, ended=note_end)


async def begin(context: SagaContext, debt: Debt) -> None:
    """Begin the payment. Raises Conflict when another operation holds the server, NotFound when the server is gone,
    Unavailable while no conductor knows this operation.
    """
    owner = await context.dispatcher.choose(SETTLE_DEBT.name)

    def make(now: Server, operation: OperationId, seq: int) -> Accepted:
        input = SettleDebt(now, seq, debt, user=now.user)
        return accepted(SETTLE_DEBT, operation, now, input, owner=owner, user=now.user, seq=seq, request_id="")

    await dispatch(context, await server_lock.accept(context, debt.server, ACTION, make, though_owed=True))
