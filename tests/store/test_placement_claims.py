"""Claims: everything or nothing, never more than the inventory, on both databases and with concurrent claims."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import msgspec
import pytest
import sqlalchemy as sa

from moorage.model.ids import CellId, HostId, ProviderId, SegmentId
from moorage.model.resources import Inventory
from moorage.model.verdict import Claimed, Shortage
from moorage.model.world import Ask, Choice, GroupAsk, NicRequirement
from moorage.placement.engine import Engine
from moorage.placement.inventory import HostInventory, SegmentReport
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database, Tx
from moorage.store.region.placement import claim_statements, placement_metadata
from moorage.store.region.placement.claim_statements import Owner
from moorage.store.region.placement.tables import allocations, consumers, inventories

CELL = CellId("cell-1")
SMALL = {"VCPU": 1, "MEMORY_MB": 256, "DISK_GB": 1}


async def holder(database: Database, consumer: str) -> tuple[str | None, str | None, int]:
    owner = await database.read(lambda tx: claim_statements.owner(tx, consumer))
    assert owner is not None
    return owner.host, owner.operation, owner.attempt


def report(name: str, *, vcpus: int = 4) -> HostInventory:
    return HostInventory(
        host=name,
        cell=CELL,
        inventories={
            "VCPU": Inventory(vcpus, ratio=2.0, max_unit=vcpus),
            "MEMORY_MB": Inventory(8192, reserved=512),
            "DISK_GB": Inventory(100),
        },
        traits=("COMPUTE_NODE",),
    )


def segment(name: str, total: int, *hosts: str) -> SegmentReport:
    return SegmentReport(segment=SegmentId(name), name=f"segment {name}", total=total, hosts=hosts)


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[Engine]:
    await database.create(placement_metadata)
    engine = Engine(database, partial(rank, profile=Profile()))
    await engine.start()
    yield engine
    await engine.close()


async def claim(
    engine: Engine,
    database: Database,
    consumer: str,
    choice: Choice,
    ask: Ask,
    *,
    attempt: int = 1,
    replace: bool = False,
) -> Claimed | Shortage:
    def work(tx: Tx) -> Claimed | Shortage:
        owner = Owner(consumer, "p", "u", operation="op", attempt=attempt)
        answer = engine.claim(tx, owner, choice, ask, replace=replace)
        if isinstance(answer, Shortage):
            tx.refuse(answer)
        return answer

    with engine.holding(choice, ask):
        answer = await database.write(work)
    if isinstance(answer, Claimed):
        engine.claimed(answer)
    else:
        engine.lost(answer)
    return answer


def mover(attempt: int, server: str = "server") -> Owner:
    return Owner(server, "p", "u", operation="mv", attempt=attempt)


async def used(database: Database, provider: str) -> dict[str, int]:
    i = inventories.c
    rows = await database.read(lambda tx: tx.rows(sa.select(i["class"], i.used).where(i.provider == provider)))
    return {name: n for name, n in rows if n}


async def test_a_claim_takes_host_and_address_together(engine: Engine, database: Database) -> None:
    host = await engine.report_host(report("h1"))
    await engine.report_segments([segment("s1", 2, "h1")])
    ask = Ask(
        resources=SMALL, nics=(NicRequirement("net", (SegmentId("s1"),)), NicRequirement("net", (SegmentId("s1"),)))
    )
    verdict = engine.rank(ask)
    assert [(c.name, c.segments) for c in verdict.best] == [("h1", ("s1", "s1"))]
    database.meter.reset()
    assert isinstance(await claim(engine, database, "c1", verdict.best[0], ask), Claimed)
    mine = [n for (_, label), n in database.meter.statements.items() if label != "picture"]
    assert sum(mine) <= (2 if database.dialect == "postgresql" else 4)
    assert await used(database, host) == SMALL
    assert await used(database, "s1") == {"IPV4_ADDRESS": 2}
    assert await holder(database, "c1") == (host, "op", 1)
    world = engine.world()
    slot = world.slots[host]
    assert (int(world.free["VCPU"][slot]), world.segments[SegmentId("s1")].free) == (7, 0)
    refused = engine.rank(ask)
    assert refused.best == ()
    assert "segment s1 has 0 of 2 addresses free" in refused.explain()
    assert refused.fault() == "No valid host was found. 1 host: no free address on the network's segment"


async def test_a_shortage_rolls_everything_back_and_names_the_row(engine: Engine, database: Database) -> None:
    host = await engine.report_host(report("h1"))
    await engine.report_segments([segment("s1", 1, "h1")])
    ask = Ask(resources=SMALL, nics=(NicRequirement("net", (SegmentId("s1"),)),))
    choice = engine.rank(ask).best[0]
    assert isinstance(await claim(engine, database, "c1", choice, ask), Claimed)
    answer = await claim(engine, database, "c2", choice, ask)
    assert isinstance(answer, Shortage)
    assert [(r.provider, r.resource, r.amount, r.used, r.capacity) for r in answer.rows] == [
        ("s1", "IPV4_ADDRESS", 1, 1, 1)
    ]
    assert "IPV4_ADDRESS: 1 asked, 0 of 1 free" in answer.why()
    assert await used(database, host) == SMALL
    assert await database.read(lambda tx: claim_statements.owner(tx, "c2")) is None


async def test_replacing_a_claim_is_one_transaction(engine: Engine, database: Database) -> None:
    h1 = await engine.report_host(report("h1"))
    h2 = await engine.report_host(report("h2"))
    await engine.report_segments([segment("s1", 1, "h1", "h2")])
    ask = Ask(resources=SMALL, nics=(NicRequirement("net", (SegmentId("s1"),)),))
    first, second = (Choice(h, n, CELL, (SegmentId("s1"),)) for h, n in ((h1, "h1"), (h2, "h2")))
    assert isinstance(await claim(engine, database, "c1", first, ask), Claimed)
    again = await claim(engine, database, "c1", second, ask, attempt=2, replace=True)
    assert isinstance(again, Claimed)
    assert (await used(database, h1), await used(database, h2)) == ({}, SMALL)
    assert await used(database, "s1") == {"IPV4_ADDRESS": 1}  # the only address was its own already
    assert await holder(database, "c1") == (h2, "op", 2)
    for _ in range(2):
        engine.settle(await database.write(lambda tx: engine.release(tx, "c1")))
    assert await used(database, h2) == {}
    assert await database.read(claim_statements.drift) == []
    assert await database.read(lambda tx: tx.rows(sa.select(consumers.c.uuid))) == []


async def test_portions_are_checked_and_a_missing_inventory_is_named(engine: Engine, database: Database) -> None:
    host = await engine.report_host(report("h1", vcpus=4))
    choice = Choice(host, "h1", CELL)
    too_many = await claim(engine, database, "c1", choice, Ask(resources={"VCPU": 5}))
    assert isinstance(too_many, Shortage)
    assert too_many.gone == ((host, "VCPU"),)
    absent = await claim(engine, database, "c1", choice, Ask(resources={"VGPU": 1}))
    assert isinstance(absent, Shortage)
    assert absent.gone == ((host, "VGPU"),)


async def test_anti_affinity_and_affinity_are_counted_in_the_claim(engine: Engine, database: Database) -> None:
    hosts = {name: await engine.report_host(report(name)) for name in ("h1", "h2")}
    apart = Ask(resources=SMALL, group=GroupAsk("apart", "anti-affinity"))
    here, there = (Choice(h, n, CELL) for n, h in hosts.items())
    assert isinstance(await claim(engine, database, "a", here, apart), Claimed)
    second = await claim(engine, database, "b", here, apart)
    assert isinstance(second, Shortage)
    assert second.group == "apart"
    assert [c.name for c in engine.rank(apart).best] == ["h2"]
    together = Ask(resources=SMALL, group=GroupAsk("together", "affinity"))
    assert isinstance(await claim(engine, database, "d", there, together), Claimed)
    away = await claim(engine, database, "e", here, together)
    assert isinstance(away, Shortage)
    assert away.group_home == hosts["h2"]
    await database.write(lambda tx: engine.release(tx, "d"))
    await engine.catch_up()
    assert isinstance(await claim(engine, database, "e", here, together), Claimed)
    await database.write(lambda tx: engine.release(tx, "a"))
    assert isinstance(await claim(engine, database, "b", here, apart), Claimed)


async def test_a_move_shifts_the_source_and_its_undo_brings_it_back(engine: Engine, database: Database) -> None:
    h1 = await engine.report_host(report("h1"))
    h2 = await engine.report_host(report("h2"))
    await engine.report_segments([segment("s1", 1, "h1", "h2")])
    ask = Ask(resources=SMALL, nics=(NicRequirement("net", (SegmentId("s1"),)),))
    before = Choice(h1, "h1", CELL, (SegmentId("s1"),))
    after = Choice(h2, "h2", CELL, (SegmentId("s1"),))
    assert isinstance(await claim(engine, database, "server", before, ask), Claimed)
    move = partial(engine.move, migration="m", host=after, ask=ask)
    for attempt in (1, 2):
        moved = await database.write(partial(move, owner=mover(attempt)))
        assert isinstance(moved, Claimed)
        assert (await used(database, h1), await used(database, h2)) == (SMALL, SMALL)
        assert await used(database, "s1") == {"IPV4_ADDRESS": 1}
    for _ in range(2):
        await database.write(lambda tx: engine.move_back(tx, "server", "m"))
        assert (await used(database, h1), await used(database, h2)) == (SMALL, {})
    assert await database.read(lambda tx: claim_statements.held(tx, "server")) == {
        **{(h1, name): n for name, n in SMALL.items()},
        ("s1", "IPV4_ADDRESS"): 1,
    }
    assert await database.read(claim_statements.drift) == []


async def test_a_single_member_of_an_affinity_group_moves_the_groups_home(engine: Engine, database: Database) -> None:
    hosts = {name: await engine.report_host(report(name)) for name in ("h1", "h2", "h3")}
    at = {name: Choice(host, name, CELL) for name, host in hosts.items()}
    ask = Ask(resources=SMALL, group=GroupAsk("together", "affinity"))

    def moving(attempt: int) -> Ask:
        return msgspec.structs.replace(ask, group=GroupAsk("together", "affinity", own=min(attempt, 2)))

    async def moved(server: str, to: str, attempt: int) -> Claimed | Shortage:
        await engine.catch_up()
        owner, ask = mover(attempt, server), moving(attempt)
        return await database.write(lambda tx: engine.move(tx, owner, f"m-{server}", at[to], ask))

    def willing(asked: Ask) -> set[str]:
        return {each.name for each in engine.rank(asked).best}

    assert isinstance(await claim(engine, database, "a", at["h1"], ask), Claimed)
    await engine.catch_up()
    assert (willing(ask), willing(moving(1))) == ({"h1"}, {"h1", "h2", "h3"})
    assert isinstance(await moved("a", "h2", 1), Claimed)
    await engine.catch_up()
    assert willing(moving(2)) == {"h1", "h2", "h3"}
    assert isinstance(await moved("a", "h3", 2), Claimed)
    await database.write(lambda tx: engine.move_back(tx, "a", "m-a"))
    await engine.catch_up()
    assert willing(ask) == {"h1"}
    assert isinstance(await moved("a", "h2", 1), Claimed)
    await database.write(lambda tx: engine.release(tx, "m-a"))
    assert isinstance(await claim(engine, database, "b", at["h1"], ask), Shortage)
    assert isinstance(await claim(engine, database, "b", at["h2"], ask), Claimed)
    assert isinstance(await moved("a", "h3", 1), Shortage)
    await engine.catch_up()
    assert willing(moving(1)) == {"h2"}


async def test_a_move_keeps_addresses_outside_its_request(engine: Engine, database: Database) -> None:
    """A server that has its address asks for none, so a full segment is no reason not to move it."""
    h1, h2 = await engine.report_host(report("h1")), await engine.report_host(report("h2"))
    await engine.report_segments([segment("s1", 2, "h1", "h2")])
    two = Ask(resources=SMALL, nics=tuple(NicRequirement("net", (SegmentId("s1"),)) for _ in range(2)))
    here, there = Choice(h1, "h1", CELL, (SegmentId("s1"),) * 2), Choice(h2, "h2", CELL, (SegmentId("s1"),) * 2)
    assert isinstance(await claim(engine, database, "server", here, two), Claimed)
    none = Ask(resources=SMALL, nics=tuple(NicRequirement("net", (SegmentId("s1"),), addresses=0) for _ in range(2)))
    stays = {(ProviderId("s1"), "IPV4_ADDRESS"): 2}
    move = partial(engine.move, migration="m", host=there, ask=none)
    for attempt in (1, 2):
        assert isinstance(await database.write(partial(move, owner=mover(attempt), stays=stays)), Claimed)
        assert await used(database, "s1") == {"IPV4_ADDRESS": 2}
        assert await database.read(lambda tx: claim_statements.held(tx, "server")) == {
            **{(h2, name): n for name, n in SMALL.items()},
            **stays,
        }
    await database.write(lambda tx: engine.move_back(tx, "server", "m"))
    assert await database.read(lambda tx: claim_statements.held(tx, "server")) == {
        **{(h1, name): n for name, n in SMALL.items()},
        **stays,
    }
    assert await database.read(claim_statements.drift) == []


async def test_a_report_never_writes_used_and_repeats_cost_nothing(engine: Engine, database: Database) -> None:
    host = await engine.report_host(report("h1"))
    assert isinstance(await claim(engine, database, "c", Choice(host, "h1", CELL), Ask(resources=SMALL)), Claimed)
    database.meter.reset()
    await engine.report_host(report("h1"))
    assert sum(database.meter.commits.values()) == 0
    await engine.report_host(report("h1", vcpus=0))
    assert await used(database, host) == SMALL
    assert engine.rank(Ask(resources=SMALL)).best == ()
    await engine.set_host_enabled(host, False)
    assert engine.rank(Ask(resources={})).counts() == {"disabled": 1}
    await engine.report_host(report("h1"))
    assert engine.rank(Ask(resources={})).counts() == {"disabled": 1}


async def test_concurrent_claims_never_exceed_the_capacity(engine: Engine, database: Database) -> None:
    names = [f"h{n}" for n in range(8)]
    hosts = [await engine.report_host(report(name)) for name in names]
    await engine.report_segments([segment("s1", 5, *names)])
    ask = Ask(resources=SMALL, nics=(NicRequirement("net", (SegmentId("s1"),)),))

    async def rival(number: int) -> int:
        choice = Choice(hosts[number % 8], names[number % 8], CELL, (SegmentId("s1"),))
        held = 0
        for turn in range(4):
            consumer = f"c{number}-{turn}"
            if isinstance(await claim(engine, database, consumer, choice, ask), Claimed):
                held += 1
                if turn % 2:
                    await database.write(lambda tx, consumer=consumer: engine.release(tx, consumer))
                    held -= 1
        return held

    held = sum(await asyncio.gather(*(rival(number) for number in range(24))))
    total = await database.read(lambda tx: tx.scalar(sa.select(sa.func.count(sa.distinct(allocations.c.consumer)))))
    assert held == total <= 5
    assert (await used(database, "s1")).get("IPV4_ADDRESS", 0) == total
    assert await database.read(claim_statements.drift) == []


async def test_another_process_sees_claims(engine: Engine, database: Database) -> None:
    other = Engine(database, partial(rank, profile=Profile()))
    await other.start()
    host = HostId(await engine.report_host(report("h1")))
    await other.catch_up()
    assert isinstance(await claim(engine, database, "c", Choice(host, "h1", CELL), Ask(resources=SMALL)), Claimed)
    await other.catch_up()
    assert other.world().free["VCPU"][other.world().slots[host]] == 7
    await other.close()


async def test_adjusting_a_part_of_a_claim_never_exceeds_the_capacity(engine: Engine, database: Database) -> None:
    """A port's guarantee changed: the rest of what the consumer holds of the same row is not touched."""
    host = ProviderId(await engine.report_host(report("host-a")))
    asks = {"one": Ask(resources=SMALL | {"VCPU": 4}), "two": Ask(resources=SMALL | {"VCPU": 2})}
    for consumer, ask in asks.items():
        assert isinstance(await claim(engine, database, consumer, engine.rank(ask).best[0], ask), Claimed)

    async def adjust(was: int, now: int, *, force: bool = False, consumer: str = "one") -> bool:
        def work(tx: Tx) -> bool:
            rows = engine.adjust(tx, consumer, {(host, "VCPU"): (was, now)}, force=force)
            return tx.refuse(False) if rows is None else True

        return await database.write(work)

    async def held(consumer: str = "one") -> int:
        found = await database.read(lambda tx: claim_statements.held(tx, consumer))
        return found.get((host, "VCPU"), 0)

    for was, now, left in ((1, 3, 6), (3, 1, 4), (1, 0, 3), (0, 1, 4)):
        assert await adjust(was, now)
        assert await held() == left
    assert not await adjust(1, 5), "no portion is larger than the max_unit"
    assert not await adjust(1, 4), "there are 8, and 9 would be taken"
    assert await held() == 4
    assert await adjust(1, 3)
    assert not await adjust(1, 2), "all are taken"
    assert await adjust(1, 2, force=True), "what is put back as it was is counted all the same"
    assert (await held(), await held("two")) == (7, 2)
    assert (await used(database, host))["VCPU"] == 9
    assert not await adjust(1, 2, consumer="nobody")
    assert await database.read(claim_statements.drift) == []


async def test_a_move_across_segments_leaves_its_old_address_with_the_move(engine: Engine, database: Database) -> None:
    """Nobody else may have it before the move is over: the segment it left stays full, whichever attempt comes after."""
    hosts = {name: await engine.report_host(report(name)) for name in ("h1", "h2", "h3")}
    await engine.report_segments([segment("s1", 1, "h1", "h3"), segment("s2", 1, "h2")])
    old, new = (ProviderId("s1"), "IPV4_ADDRESS"), (ProviderId("s2"), "IPV4_ADDRESS")

    def choice(host: str, on: str) -> Choice:
        return Choice(hosts[host], host, CELL, (SegmentId(on),))

    def ask(on: str, addresses: int = 1) -> Ask:
        return Ask(resources=SMALL, nics=(NicRequirement("net", (SegmentId(on),), addresses=addresses),))

    async def addresses() -> list[dict[tuple[ProviderId, str], int]]:
        rows = [await database.read(partial(claim_statements.held, consumer=each)) for each in ("server", "m")]
        return [{key: n for key, n in held.items() if key[1] == "IPV4_ADDRESS"} for held in rows]

    across = partial(
        engine.move, migration="m", host=choice("h2", "s2"), ask=ask("s2"), stays={old: 1}, leaves={old: 1}
    )
    beside = partial(engine.move, migration="m", host=choice("h3", "s1"), ask=ask("s1", 0), stays={old: 1}, leaves={})
    assert isinstance(await claim(engine, database, "server", choice("h1", "s1"), ask("s1")), Claimed)
    for attempt, attempted in enumerate((across, across, beside, across), start=1):
        assert isinstance(await database.write(partial(attempted, owner=mover(attempt))), Claimed)
        assert await addresses() == ([{old: 1}, {}] if attempted is beside else [{new: 1}, {old: 1}])
        assert await used(database, "s2") == ({} if attempted is beside else {"IPV4_ADDRESS": 1})
        assert isinstance(await claim(engine, database, "other", choice("h1", "s1"), ask("s1")), Shortage)
    for _ in range(2):
        await database.write(partial(engine.move_back, server="server", migration="m", before={old: 1}))
        assert await addresses() == [{old: 1}, {}]
        assert (await used(database, "s1"), await used(database, "s2")) == ({"IPV4_ADDRESS": 1}, {})
    assert isinstance(await database.write(partial(across, owner=mover(5))), Claimed)
    await database.write(partial(engine.release, consumer="m"))
    assert await addresses() == [{new: 1}, {}]
    assert await used(database, "s1") == {}
    assert await database.read(claim_statements.drift) == []
