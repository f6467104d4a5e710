"""A small region in which a host owes something; for proofs."""

from moorage.model.ids import OperationId
from moorage.operations.debts.settle_debt import SettleDebt
from moorage.operations.registry import SAGAS
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage.store.region import debts
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_states import Card, attaching, attaching_volume, booted
from moorage_testing.saga_proof import PROVED_OPERATION

FAILED = OperationId("failed")


async def owing(small: SmallRegion, card: Card | None = None) -> SmallRegion:
    """Its host has a volume, or an interface, that the record of the server does not list."""
    await booted(small, operation=FAILED)
    saga = SAGAS["attach_volume/1" if card is None else "attach_interface/2"]
    asked = attaching_volume(FAILED) if card is None else attaching(card, FAILED)
    small.hosts.loses = small.hosts.commands + 1
    journal = MemoryJournal(first_lines(saga), small.transact)
    try:
        await execute(saga, FAILED, asked, small.context, journal, clock=ManualClock())
    except Unwound:
        small.hosts.loses = 0
        small.hosts.silent.clear()
        small.hosts.fell_silent.clear()
        await small.hand_to(PROVED_OPERATION)
        return small
    raise AssertionError("its answer was not lost")


async def settling(small: SmallRegion, card: Card | None = None) -> SettleDebt:
    """What is asked of the payment."""
    await owing(small, card)
    (debt,) = await small.region.read(debts.page)
    server = (await records.find(small.context, SERVER)).server
    assert server is not None
    return SettleDebt(server, 3, debt)
