"""A change that was answered to an administrator holds for every claim that commits after it, in every process (RULES §21).

Two engines on one database: the change is made through the one, or by neither; the other decides on a picture that was never told.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
import sqlalchemy as sa

from moorage.model.aggregate import Aggregate
from moorage.model.ids import CellId, ProviderId, SegmentId
from moorage.model.request_groups import RequestGroup
from moorage.model.resources import Inventory
from moorage.model.verdict import Claimed, Shortage
from moorage.model.world import Ask, Choice, NicRequirement
from moorage.operations.records import aggregates as aggregate_writes
from moorage.placement.engine import Engine
from moorage.placement.inventory import DeviceReport, HostInventory, SegmentReport, host_id, report_segment, set_enabled
from moorage.placement.service import provider_changes as service_providers
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database, Tx
from moorage.store.region import aggregates
from moorage.store.region.placement import cells, placement_metadata, provider_statements
from moorage.store.region.placement.cells import CellStatus
from moorage.store.region.placement.claim_statements import Owner, drift
from moorage.store.region.placement.tables import stamp
from moorage.store.region.tables import region_metadata

CELL = CellId("c")
TOOK, STAYED = host_id("took"), host_id("stayed")
SEGMENT, OTHER = (SegmentId(str(uuid.UUID(int=500 + n))) for n in range(2))
ASK = Ask(
    resources={"VCPU": 1},
    required=("CUSTOM_FAST",),
    project="p",
    availability_zone="west",
    nics=(NicRequirement("nic", (ProviderId(SEGMENT), ProviderId(OTHER))),),
    host=None,
)


@pytest.fixture
async def engines(database: Database) -> AsyncIterator[tuple[Engine, Engine]]:
    """One that hears of the change, and one that does not; both start with the same picture, in which `took` is the better host."""
    await database.create(region_metadata)
    await database.create(placement_metadata)
    pair = tuple(
        Engine(database, partial(rank, profile=Profile()), aggregates=aggregates.for_placement, every_s=3600)
        for _ in range(2)
    )
    for engine in pair:
        await engine.start()
    for host, cell, total in (("took", CELL, 9), ("stayed", CellId("another"), 4)):
        report = HostInventory(host=host, cell=cell, inventories={"VCPU": Inventory(total)}, traits=("CUSTOM_FAST",))
        await pair[0].report_host(report)
    await pair[0].report_segments(
        [
            SegmentReport(segment=SEGMENT, name="s", total=10, hosts=("took",)),
            SegmentReport(segment=OTHER, name="o", total=10, hosts=("stayed",)),
        ]
    )
    zone = Aggregate(0, "a", "zone", {"availability_zone": "west"}, ("took", "stayed"))
    await database.write(lambda tx: aggregates.add(tx, zone))
    await database.write(lambda tx: aggregates.add(tx, Aggregate(0, "b", "closed", {"filter_tenant_id": "x"}, ())))
    await database.write(lambda tx: aggregates.add(tx, Aggregate(0, "c", "open", {}, ("took",))))
    for engine in pair:
        await engine.read_aggregates()
    yield pair[0], pair[1]
    for engine in pair:
        await engine.close()


def disable(tx: Tx) -> None:
    set_enabled(tx, TOOK, False)


def force_down(tx: Tx) -> None:
    provider_statements.force_down(tx, TOOK, True, stamp(tx))


def disable_the_cell(tx: Tx) -> None:
    cells.set_status(tx, CellStatus(CELL, disabled=True), stamp(tx))


def take_a_trait(tx: Tx) -> None:
    service_providers.set_traits(tx, TOOK, [], None)


def take_an_inventory(tx: Tx) -> None:
    service_providers.drop_inventory(tx, TOOK, "VCPU")


def reserve_all(tx: Tx) -> None:
    generation = service_providers.need(tx, TOOK)
    service_providers.update_inventory(tx, TOOK, "VCPU", Inventory(total=9, reserved=9), generation, full_reserve=True)


def larger_portions(tx: Tx) -> None:
    generation = service_providers.need(tx, TOOK)
    service_providers.set_inventories(tx, TOOK, {"VCPU": Inventory(total=9, min_unit=2)}, generation)


def lower_the_ratio(tx: Tx) -> None:
    generation = service_providers.need(tx, TOOK)
    service_providers.set_inventories(tx, TOOK, {"VCPU": Inventory(total=9, ratio=0.1)}, generation)


def unwire(tx: Tx) -> None:
    service_providers.set_aggregates(tx, TOOK, [], None)


def unwire_the_segment(tx: Tx) -> None:
    service_providers.set_aggregates(tx, SEGMENT, [], None)


def report_the_segment_elsewhere(tx: Tx) -> None:
    report_segment(tx, SegmentReport(segment=SEGMENT, name="s", total=10))


def delete_the_host(tx: Tx) -> None:
    provider_statements.delete_all(tx, provider_statements.tree_of(tx, TOOK), stamp(tx))


async def close_by_metadata(region: Database) -> None:
    await aggregate_writes.update(region, {}, 3, 1, metadata={"filter_tenant_id": "x"})


async def into_a_closed_one(region: Database) -> None:
    await aggregate_writes.add_host(region, {}, 2, "took", 1)


async def out_of_the_zone(region: Database) -> None:
    await aggregate_writes.remove_host(region, {}, 1, "took", 1)


async def another_zone(region: Database) -> None:
    await aggregate_writes.remove_host(region, {}, 1, "stayed", 1)
    await aggregate_writes.update(region, {}, 1, 1, metadata={"availability_zone": "east"})
    await aggregate_writes.create(region, Aggregate(0, "d", "west again", {"availability_zone": "west"}, ()))
    await aggregate_writes.add_host(region, {}, 4, "stayed", 1)


IN_ONE_TRANSACTION: tuple[Callable[[Tx], None], ...] = (
    disable,
    force_down,
    disable_the_cell,
    take_a_trait,
    take_an_inventory,
    reserve_all,
    larger_portions,
    lower_the_ratio,
    unwire,
    unwire_the_segment,
    report_the_segment_elsewhere,
    delete_the_host,
)
CHANGES = (*IN_ONE_TRANSACTION, close_by_metadata, into_a_closed_one, out_of_the_zone, another_zone)


async def make_change(database: Database, change: Callable[..., object]) -> None:
    """The change, until it is answered."""
    if asyncio.iscoroutinefunction(change):
        await change(database)
    else:
        await database.write(change)


async def try_claim(
    database: Database, engine: Engine, choice: Choice, consumer: str, ask: Ask = ASK
) -> Claimed | Shortage:
    def work(tx: Tx) -> Claimed | Shortage:
        answer = engine.claim(tx, Owner(consumer, "p", "u", operation="o", attempt=1), choice, ask, replace=False)
        if isinstance(answer, Shortage):
            tx.refuse(answer)
        return answer

    return await database.write(work)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_a_claim_decided_before_the_change_is_refused(
    database: Database, engines: tuple[Engine, Engine], change: Callable[..., object]
) -> None:
    _, stale = engines
    before = stale.rank(ASK)
    assert [choice.host for choice in before.best] == [TOOK, STAYED]
    await make_change(database, change)
    assert stale.rank(ASK).best[0].host == TOOK, "it was never told"
    lost = await try_claim(database, stale, before.best[0], "consumer")
    assert isinstance(lost, Shortage)
    stale.lost(lost)
    now = await stale.rank_fresh(ASK)
    assert [choice.host for choice in now.best] == [STAYED]
    assert isinstance(await try_claim(database, stale, now.best[0], "consumer"), Claimed)
    assert await database.read(drift) == []


async def test_unrelated_changes_refuse_no_claim(database: Database, engines: tuple[Engine, Engine]) -> None:
    hears, stale = engines
    best = stale.rank(ASK).best
    await database.write(lambda tx: set_enabled(tx, STAYED, False))
    assert isinstance(await try_claim(database, hears, best[0], "rival"), Claimed)
    assert isinstance(await try_claim(database, stale, best[0], "consumer"), Claimed), "claims do not change a host"


async def test_versions_of_devices_are_checked_too(database: Database, engines: tuple[Engine, Engine]) -> None:
    hears, stale = engines
    bridge = ProviderId(str(uuid.UUID(int=77)))
    device = DeviceReport(
        hypervisor="took",
        id=bridge,
        name="bridge",
        inventories={"NET_BW_EGR_KILOBIT_PER_SEC": Inventory(1000)},
        traits=("CUSTOM_PHYSNET_1",),
    )
    await hears.report_devices([device])
    await stale.catch_up()
    group = RequestGroup("g", {"NET_BW_EGR_KILOBIT_PER_SEC": 10}, ("CUSTOM_PHYSNET_1",))
    ask = Ask(resources={}, groups=(group,))
    (choice,) = stale.rank(ask).best
    await database.write(lambda tx: service_providers.set_traits(tx, bridge, [], None))
    lost = await try_claim(database, stale, choice, "consumer", ask)
    assert isinstance(lost, Shortage)
    assert lost.stale == (bridge,)
    assert (await stale.rank_fresh(ask)).best == ()


async def test_a_replacing_claim_is_checked_too(database: Database, engines: tuple[Engine, Engine]) -> None:
    """Nothing of it moves a counter, so no counter's statement could judge it."""
    _, stale = engines
    (choice, *_) = stale.rank(ASK).best
    assert isinstance(await try_claim(database, stale, choice, "consumer"), Claimed)
    await database.write(disable)

    def again(tx: Tx) -> Claimed | Shortage:
        owner = Owner("consumer", "p", "u", operation="o", attempt=2)
        answer = stale.claim(tx, owner, choice, ASK, replace=True)
        if isinstance(answer, Shortage):
            tx.refuse(answer)
        return answer

    assert isinstance(await database.write(again), Shortage)


@pytest.mark.postgres
async def test_a_change_waits_for_earlier_claims_and_refuses_later_ones(
    database: Database, engines: tuple[Engine, Engine]
) -> None:
    """On PostgreSQL claims and changes run at the same time: in whatever order they meet, no claim commits after the answer."""
    if database.dialect != "postgresql":
        pytest.skip("one writer: there are no rivals")
    _, stale = engines
    for turn in range(20):
        await stale.catch_up()
        choice = next(each for each in stale.rank(ASK).best if each.host == TOOK)
        answered = asyncio.Event()
        late: list[str] = []

        async def change(answered: asyncio.Event = answered) -> None:
            await database.write(disable)
            answered.set()

        async def claim(n: int, turn: int = turn, choice: Choice = choice, answered: asyncio.Event = answered) -> None:
            begun_after = answered.is_set()
            answer = await try_claim(database, stale, choice, f"t{turn}c{n}")
            if isinstance(answer, Claimed):
                assert not begun_after
                await database.write(lambda tx: stale.release(tx, f"t{turn}c{n}"))

        await asyncio.gather(*(claim(n) for n in range(3)), change(), *(claim(n) for n in range(3, 6)))
        late += (
            [f"t{turn}late"] if isinstance(await try_claim(database, stale, choice, f"t{turn}late"), Claimed) else []
        )
        assert late == []
        await database.write(lambda tx: set_enabled(tx, TOOK, True))
    assert await database.read(drift) == []


async def test_a_claim_under_way_delays_the_change(database: Database, engines: tuple[Engine, Engine]) -> None:
    """The change is answered only after the claim that locked the host first has committed."""
    if database.dialect != "postgresql":
        pytest.skip("one writer: there are no rivals")
    _, stale = engines
    choice = stale.rank(ASK).best[0]
    loop = asyncio.get_running_loop()
    locked = asyncio.Event()
    order: list[str] = []

    def work(tx: Tx) -> None:
        owner = Owner("consumer", "p", "u", operation="o", attempt=1)
        answer = stale.claim(tx, owner, choice, ASK, replace=False)
        assert isinstance(answer, Claimed)
        loop.call_soon(locked.set)
        for _ in range(50):  # as long as the other has had time to be at the lock
            tx.scalar(sa.text("SELECT pg_sleep(0.01)"))
        order.append("claimed")

    async def change() -> None:
        await locked.wait()
        await database.write(disable)
        order.append("answered")

    await asyncio.gather(database.write(work), change())
    assert order == ["claimed", "answered"]


async def test_a_changed_host_keeps_the_zone_of_its_aggregates(
    database: Database, engines: tuple[Engine, Engine]
) -> None:
    """What is read of one host again does not undo what its aggregates say."""
    hears, _ = engines
    await database.write(disable)
    await hears.catch_up()
    await database.write(lambda tx: set_enabled(tx, TOOK, True))
    assert [each.host for each in (await hears.rank_fresh(ASK)).best] == [TOOK, STAYED]


async def test_a_zone_is_known_after_the_first_load(database: Database, engines: tuple[Engine, Engine]) -> None:
    fresh = Engine(database, partial(rank, profile=Profile()), aggregates=aggregates.for_placement, every_s=3600)
    await fresh.start()
    assert [each.host for each in fresh.rank(ASK).best] == [TOOK, STAYED]
    await fresh.close()


async def test_forced_down_is_kept_when_the_host_reports(database: Database, engines: tuple[Engine, Engine]) -> None:
    """A host that speaks is not for that up again, in any process, after a whole reading too."""
    hears, _ = engines
    await database.write(force_down)
    await hears.catch_up()
    hears.set_alive("took", True)
    assert [each.host for each in hears.rank(ASK).best] == [STAYED]
    fresh = Engine(database, partial(rank, profile=Profile()), aggregates=aggregates.for_placement, every_s=3600)
    await fresh.start()
    fresh.set_alive("took", True)
    assert [each.host for each in fresh.rank(ASK).best] == [STAYED]
    assert fresh.forced_down("c") == {"took"}
    await database.write(lambda tx: provider_statements.force_down(tx, TOOK, False, stamp(tx)))
    assert [each.host for each in (await fresh.rank_fresh(ASK)).best] == [TOOK, STAYED]
    await fresh.close()
