"""Guests that operations leave on silent hosts (RULES §25): the host owes their destruction.

Until it has destroyed such a guest, or somebody proves that the host's guests are off, volumes, ports and claim of a
deleted server, or of one that was never built, stay its own: the guest may still use them. `debts/left_guest.py` ends it.
"""

import logging

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.bus.guest_payloads import DestroyGuest
from moorage.model.debt import Debt, DebtKind
from moorage.model.errors import Unavailable
from moorage.model.ids import ServerId
from moorage.operations.context import SagaContext
from moorage.operations.steps import fencing
from moorage.operations.steps.debts import debt_of, owe, owe_and_go_on
from moorage.operations.steps.hosts import HOST_SILENT, destroy_or_leave
from moorage.operations.steps.servers import AboutServer
from moorage.saga import Run
from moorage.store.region import debts

logger = logging.getLogger(__name__)


async def destroyed_or_owed(
    run: Run[AboutServer, SagaContext], step: str, to: HostAddress, release: DestroyGuest | None
) -> bool:
    """Destroy the guest of a server that is being deleted. Returns False when the host is silent: it owes that, unless an
    administrator has said that its guests are off.
    """
    if await destroy_or_leave(run, step, to.cell, to.host, run.input.server.id, release):
        return True
    if await _is_declared_down(run.context, to):
        return False
    return await owe_and_go_on(run, _debt(run, to), keeps=False)


async def undone_or_owed(
    run: Run[AboutServer, SagaContext], step: str, to: HostAddress, start: str, *, owes: bool = True
) -> None:
    """For the undo of `start`: destroy the guest. A silent host that was told to start it `owes` that."""
    gone = await destroy_or_leave(run, step, to.cell, to.host, run.input.server.id)
    if owes and not (gone or _was_never_sent(run, start)):
        await owe_unless_off(run, to)


async def owe_unless_off(run: Run[AboutServer, SagaContext], to: HostAddress) -> None:
    """For an undo that goes on without a silent host.

    It does not bar the server from anything: a host keeps a guest off whose start does not count (RULES §23).
    """
    if not await _is_declared_down(run.context, to):
        debt = _debt(run, to)
        await owe(run, msgspec.structs.replace(debt, answered_at=debt.since))


def _debt(run: Run[AboutServer, SagaContext], to: HostAddress) -> Debt:
    return debt_of(run, DebtKind.DESTROY, to.cell, to.host, to.host)


async def _is_declared_down(context: SagaContext, at: HostAddress) -> bool:
    """While its cell does not answer: no."""
    try:
        return await fencing.declared_down(context, at.cell, at.host) is not None
    except Unavailable as out:
        logger.info("whether host %s is said to be off is not known: %s", at.host, out)
        return False


def _was_never_sent(run: Run[AboutServer, SagaContext], step: str) -> bool:
    """Whether this attempt ended because the host was silent before it was told."""
    cause = run.turned or (run.causes[-1] if run.causes else None)
    return cause is not None and cause.step == step and cause.code == HOST_SILENT


async def may_run(context: SagaContext, server: ServerId) -> bool:
    """Whether a host still owes the destruction of a guest of the server."""
    return await context.region.read(lambda tx: debts.is_any_owed(tx, server, DebtKind.DESTROY))


async def is_off(context: SagaContext, at: HostAddress) -> bool:
    """Whether the host is silent, and it is proved that its guests are off. A host that is heard is asked itself. Raises
    Unavailable while its cell does not answer.
    """
    return context.hosts.is_silent(at.host) and await fencing.known_off(context, at.cell, at.host) is not None
