"""The round that has hosts pay what they owe."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from moorage.conductor.reconcilers.host_debts import HostDebts, HostDebtsDone
from moorage.conductor.reconcilers.orphan_attachments import OrphanAttachments
from moorage.model.clock import SystemClock
from moorage.model.debt import Debt, DebtKind
from moorage.model.fencing_token import FencingToken
from moorage.model.ids import CellId, OperationId
from moorage.operations.registry import SAGAS
from moorage.operations.steps.debts import PAUSE_MOST_S, failed_payment
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.region import audit_reads, debts
from moorage.store.region import servers as region_servers
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_owing import owing, settling
from moorage_testing.region_states import booted
from moorage_testing.region_volumes import VOLUME
from moorage_testing.saga_proof import PROVED_OPERATION

OTHER = OperationId("other")


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


def a_debt(**changes: object) -> Debt:
    debt = Debt(
        SERVER,
        OTHER,
        DebtKind.UNPLUG_VOLUME,
        VOLUME,
        CellId("cell1"),
        "host1",
        FencingToken(2),
        "it was silent",
        since=1,
    )
    return msgspec.structs.replace(debt, **changes)


async def owed(small: SmallRegion, debt: Debt) -> None:
    await small.region.write(lambda tx: debts.owe(tx, debt))


async def freed(small: SmallRegion) -> None:
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))


async def test_host_debts_already_fine(small: SmallRegion) -> None:
    await booted(small)
    assert await HostDebts(small.context, SystemClock()).run() == HostDebtsDone()


async def test_a_server_that_is_owed_something_is_taken_by_nothing_new(small: SmallRegion) -> None:
    await booted(small)
    await freed(small)
    await owed(small, a_debt())
    await owed(small, a_debt())
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    assert where.debts == 1

    async def take(operation: str, *, though_owed: bool = False) -> region_servers.SlotTaken | None:
        return await small.region.write(
            lambda tx: region_servers.take(tx, SERVER, OperationId(operation), None, though_owed=though_owed)
        )

    refused = await take("new")
    assert refused is not None
    assert refused.owed
    paying = await take("pays", though_owed=True)
    assert paying is not None
    assert not paying.owed
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, OperationId("pays")))
    answered = failed_payment(a_debt(), "the device is busy", answered=True, now=10)
    await small.region.write(lambda tx: debts.note_failed(tx, answered))
    taken = await take("new")
    assert taken is not None
    assert not taken.owed, "its host has answered: what it cannot do does not bar the server for good"


async def test_a_host_that_is_away_is_waited_for(small: SmallRegion) -> None:
    await booted(small)
    await freed(small)
    await owed(small, a_debt())
    small.hosts.silent.add("host1")
    done = await HostDebts(small.context, SystemClock()).run()
    assert (done.begun, done.ended, done.waiting) == ((), 0, 1)
    assert (await HostDebts(small.context, SystemClock()).run()).waiting == 0, "it is looked at again a little later"
    assert [each.thing for each in await small.region.read(debts.page)] == [VOLUME]


async def test_the_debt_of_a_deleted_server_ends_and_its_volume_is_free(small: SmallRegion) -> None:
    await booted(small)
    await freed(small)
    attachment = await small.volumes.reserve(VOLUME, SERVER)
    await owed(small, a_debt())
    await small.region.write(lambda tx: region_servers.mark_deleted(tx, SERVER, 5))
    done = await HostDebts(small.context, SystemClock()).run()
    assert (done.begun, done.ended) == ((), 1)
    assert attachment.id not in small.volumes.attachments
    assert await small.region.read(debts.page) == []


async def test_pauses_grow_to_their_limit() -> None:
    debt, now = a_debt(), 0
    pauses = []
    for _ in range(12):
        after = failed_payment(debt, "busy", answered=True, now=now)
        pauses.append((after.next_at - now) / 1e6)
        debt = after
    assert pauses[:3] == [5.0, 10.0, 20.0]
    assert pauses[-1] == PAUSE_MOST_S


async def test_all_open_debts_are_counted_by_host(small: SmallRegion) -> None:
    await booted(small)
    await owed(small, a_debt())
    await owed(small, a_debt(thing="volume-2", host="host2", since=0))
    await owed(small, a_debt(kind=DebtKind.SWITCH_ON, thing=""))
    counts = await small.region.read(debts.by_host)
    assert [(each.host, each.debts, each.oldest_at) for each in counts] == [("host2", 1, 0), ("host1", 2, 1)]
    assert (await small.region.read(debts.counted)).debts == 3
    first = await small.region.read(lambda tx: debts.page(tx, limit=1))
    behind = (first[0].server, first[0].kind.value, first[0].thing)
    assert len(await small.region.read(lambda tx: debts.page(tx, after=behind))) == 2


async def test_what_is_owed_is_no_stray(small: SmallRegion) -> None:
    await owing(small)
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    done = await OrphanAttachments(small.context).run()
    assert (done.dropped, done.amiss) == ((), ())
    mapped = await small.region.read(lambda tx: audit_reads.mapped_among(tx, [SERVER]))
    assert [each.debts for each in mapped] == [1]


async def test_what_an_interface_owes_is_paid_with_its_port_and_claim(small: SmallRegion) -> None:
    before = await clean(small)
    asked = await settling(small, "routed")
    await owing(small, "routed")
    held = await small.held()
    assert (held["used"], len(held["ports"])) == (before["used"] + 1, len(before["ports"]) + 1), "address and port"
    saga = SAGAS["settle_debt/1"]
    journal = MemoryJournal(first_lines(saga), small.transact)
    await execute(saga, PROVED_OPERATION, asked, small.context, journal, clock=ManualClock())
    after = await small.held()
    assert (after["used"], after["ports"], after["vifs"]) == (before["used"], before["ports"], [])


async def clean(small: SmallRegion) -> dict[str, Any]:
    """What the server holds without it."""
    await booted(small)
    return await small.held()
