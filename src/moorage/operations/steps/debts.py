"""Goes on without a silent host, and owes it what is still to be done there (RULES §25, docs/decisions/0032)."""

import logging
from collections.abc import Awaitable

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.model.debt import Debt, DebtKind
from moorage.model.fencing_token import FencingToken
from moorage.model.ids import CellId, ServerId
from moorage.operations.context import SagaContext
from moorage.operations.steps.hosts import COMMAND_ENDS, NO_GUEST, SILENT
from moorage.operations.steps.server_action import now_us
from moorage.operations.steps.servers import AboutServer
from moorage.saga import Run, no_result
from moorage.store.region import debts

logger = logging.getLogger(__name__)

PAUSE_FIRST_S, PAUSE_MOST_S = 5.0, 600.0
"""Between two payments of one debt, when they fail."""
REASONS = {
    DebtKind.UNPLUG_VOLUME: "the host may have plugged the volume in, or not have taken it out",
    DebtKind.UNPLUG_INTERFACE: "the host may have plugged the interface in, or not have taken it out",
    DebtKind.SWITCH_ON: "the host may have switched the guest off for an operation that was undone",
    DebtKind.SWITCH_OFF: "the host may have switched the guest on for an operation that was undone",
    DebtKind.DROP_COPY: "the host may have a copy of the guest's disk that nobody sends",
    DebtKind.DESTROY: "the host may have a guest that is to be destroyed",
}


def debt_of(run: Run[AboutServer, SagaContext], kind: DebtKind, cell: CellId, host: str, thing: str = "") -> Debt:
    """What this step goes on without."""
    return Debt(
        server=run.input.server.id,
        operation=run.operation,
        kind=kind,
        thing=thing,
        cell=cell,
        host=host,
        turn=FencingToken(run.input.seq, run.attempt).undo(),
        reason=REASONS[kind],
        since=now_us(),
    )


async def owe(run: Run[AboutServer, SagaContext], debt: Debt) -> None:
    """Write the debt in the commit that ends this undo: nothing later begins without it."""
    await run.commit(lambda tx: debts.owe(tx, debt), result=no_result)
    _log(debt)


async def done_or_owed(
    run: Run[AboutServer, SagaContext], kind: DebtKind, host: HostAddress, call: Awaitable[object], thing: str = ""
) -> None:
    """For an undo: await a command to the host; a silent one owes it, and one without the guest need not do it."""
    try:
        await call
    except COMMAND_ENDS as failed:
        if failed.code in SILENT:
            await owe(run, debt_of(run, kind, host.cell, host.host, thing))
        elif failed.code != NO_GUEST:
            raise


async def owe_and_go_on(run: Run[AboutServer, SagaContext], debt: Debt, *, keeps: bool = True) -> bool:
    """Write the debt in the commit that ends this do, with the step's result: `keeps`, whether what the debt concerns
    stays the server's until it is paid. Returns it.
    """
    await run.commit(lambda tx: debts.owe(tx, debt), result=lambda _: keeps)
    _log(debt)
    return keeps


def _log(debt: Debt) -> None:
    logger.warning(
        "%s: host %s owes server %s %s %s: %s",
        debt.operation,
        debt.host,
        debt.server,
        debt.kind.value,
        debt.thing,
        debt.reason,
    )


async def is_owed(context: SagaContext, server: ServerId, kind: DebtKind, thing: str) -> bool:
    """Whether a host still owes this: then nothing that it concerns is released."""
    return await context.region.read(lambda tx: debts.is_owed(tx, server, kind, thing))


async def is_owed_by(run: Run[AboutServer, SagaContext], kind: DebtKind) -> bool:
    """Whether this operation went on without something of that kind."""
    open_ones = await run.context.region.read(lambda tx: debts.of_server(tx, run.input.server.id))
    return any(each.kind is kind and each.operation == run.operation for each in open_ones)


def failed_payment(debt: Debt, problem: str, *, answered: bool, now: int) -> Debt:
    """The debt after a payment that failed; each pause is twice as long, up to `PAUSE_MOST_S`."""
    pause_s = min(PAUSE_FIRST_S * 2.0 ** min(debt.tries, 20), PAUSE_MOST_S)
    return msgspec.structs.replace(
        debt,
        tries=debt.tries + 1,
        next_at=now + int(pause_s * 1_000_000),
        answered_at=now if answered else debt.answered_at,
        problem=problem[: debts.PROBLEM_CHARACTERS_MAX],
    )


__all__ = ["debt_of", "done_or_owed", "failed_payment", "is_owed", "is_owed_by", "owe", "owe_and_go_on"]
