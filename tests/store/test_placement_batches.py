"""Batches of claims: what one claim after the other would have brought, on both databases, and never more than there is."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from moorage.model.errors import Internal
from moorage.model.ids import CellId, HostId, ProviderId, SegmentId
from moorage.model.resources import Inventory
from moorage.model.verdict import Claimed, Shortage, Verdict
from moorage.model.world import Ask, Choice, GroupAsk, NicAsk
from moorage.placement import batched_claims, claims
from moorage.placement.batched_claims import ClaimRequest
from moorage.placement.claim_batcher import Claimer
from moorage.placement.engine import Engine
from moorage.placement.inventory import HostReport, SegmentReport
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database, Tx
from moorage.store.region.placement import claims as sql
from moorage.store.region.placement import placement_metadata
from moorage.store.region.placement.claims import Owner
from moorage.store.region.placement.tables import allocations, consumers, group_homes, group_hosts, inventories

CELL = CellId("c")
SEGMENTS = [SegmentId(str(uuid.UUID(int=70 + n))) for n in range(2)]


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[Engine]:
    await database.create(placement_metadata)
    engine = Engine(database, partial(rank, profile=Profile()), every_s=3600)
    await engine.start()
    yield engine
    await engine.close()


async def stock(engine: Engine, hosts: int = 4, vcpus: int = 5, addresses: int = 6) -> list[HostId]:
    found = [
        await engine.report_host(
            HostReport(
                host=f"h{n}",
                cell=CELL,
                inventories={"VCPU": Inventory(vcpus, max_unit=3), "MEMORY_MB": Inventory(64, step=4)},
            )
        )
        for n in range(hosts)
    ]
    await engine.report_segments(
        [
            SegmentReport(segment=s, name=f"s{n}", total=addresses, hosts=tuple(f"h{h}" for h in range(hosts)))
            for n, s in enumerate(SEGMENTS)
        ]
    )
    return found


def bid(dice: random.Random, hosts: list[HostId], consumer: str) -> ClaimRequest:
    """Small and large, possible and impossible, on few rows."""
    resources = {"VCPU": dice.choice([1, 1, 2, 3, 4]), "MEMORY_MB": dice.choice([4, 8, 8, 16, 6])}
    if dice.random() < 0.05:
        resources["VGPU"] = 1
    nics = tuple(NicAsk("n", SEGMENTS) for _ in range(dice.randrange(3)))  # type: ignore[arg-type]
    group = None
    if dice.random() < 0.4:
        policy = dice.choice(["affinity", "anti-affinity", "soft-affinity"])
        group = GroupAsk(f"g-{policy}", policy, max_per_host=dice.choice([1, 2]))  # type: ignore[arg-type]
    segments = tuple(ProviderId(dice.choice(SEGMENTS)) for _ in nics)
    choice = Choice(dice.choice(hosts), "h", CELL, segments)
    return ClaimRequest(
        Owner(consumer, "p", "u", operation="o", attempt=1), choice, Ask(resources=resources, nics=nics, group=group)
    )


async def one_by_one(database: Database, bids: list[ClaimRequest]) -> list[Claimed | Shortage]:
    def work(tx: Tx, each: ClaimRequest) -> Claimed | Shortage:
        answer = claims.claim(tx, each.owner, each.choice, each.ask, replace=False)
        if isinstance(answer, Shortage):
            tx.refuse(answer)
        return answer

    return [await database.write(partial(work, each=each)) for each in bids]


def said(answer: Claimed | Shortage) -> Any:
    """What an answer tells, but for numbers that others of the batch may have moved since."""
    if isinstance(answer, Claimed):
        return sorted((r.provider, r.resource, r.amount) for r in answer.rows), answer.group
    short = sorted((r.provider, r.resource, r.amount) for r in answer.rows)
    return "short", short, sorted(answer.gone), answer.group, answer.group_home


def state(tx: Tx) -> list[Any]:
    """Everything that a claim writes, without stamps and times."""
    a, c, i, g = allocations.c, consumers.c, inventories.c, group_hosts.c
    return [
        sorted(map(tuple, tx.rows(sa.select(a.consumer, a.provider, a["class"], a.used)))),
        sorted(
            map(
                str,
                tx.rows(sa.select(*(col for col in c if col.name != "updated_at"))),
            )
        ),
        sorted(map(tuple, tx.rows(sa.select(i.provider, i["class"], i.used)))),
        sorted(map(tuple, tx.rows(sa.select(g.server_group, g.host, g.n).where(g.n > 0)))),
    ]


def empty(tx: Tx) -> None:
    for row in tx.rows(sa.select(consumers.c.uuid)):
        claims.release(tx, row[0])
    tx.run(sa.delete(group_hosts))  # a consumer that claimed twice may be counted twice
    tx.run(sa.delete(group_homes))


@pytest.mark.parametrize("seed", range(5))
async def test_a_batch_brings_what_one_by_one_brings(engine: Engine, database: Database, seed: int) -> None:
    dice = random.Random(seed)
    hosts = await stock(engine)
    refused = taken = 0
    for _ in range(3):
        await database.write(empty)
        names = [str(uuid.UUID(int=dice.getrandbits(128))) for _ in range(dice.randrange(1, 40))]
        first = [bid(dice, hosts, name) for name in names]
        again = [bid(dice, hosts, name) for name in dice.sample(names, len(names) // 3)]  # they hold something already
        expected = await one_by_one(database, first) + await one_by_one(database, again)
        after = await database.read(state)
        await database.write(empty)
        assert await database.read(sql.drift) == []
        found = await database.write(partial(batched_claims.claim, bids=first))
        found += await database.write(partial(batched_claims.claim, bids=again))
        assert [said(each) for each in found] == [said(each) for each in expected]
        assert await database.read(state) == after
        assert await database.read(sql.drift) == []
        refused += sum(isinstance(each, Shortage) for each in found)
        taken += sum(isinstance(each, Claimed) for each in found)
    assert refused > 5
    assert taken > 5


async def test_the_numbers_are_those_after_the_batch(engine: Engine, database: Database) -> None:
    host = (await stock(engine, hosts=1))[0]
    ask = Ask(resources={"VCPU": 2})
    bids = [ClaimRequest(Owner(str(uuid.UUID(int=n)), "p", "u"), Choice(host, "h0", CELL), ask) for n in range(3)]
    first, second, third = await database.write(partial(batched_claims.claim, bids=bids))
    assert isinstance(first, Claimed)
    assert isinstance(second, Claimed)
    assert isinstance(third, Shortage)
    assert [(r.used, r.capacity) for r in (*first.rows, *second.rows, *third.rows)] == [(4, 5)] * 3
    assert len({r.version for r in (*first.rows, *second.rows, *third.rows)}) == 1
    for answer in (first, second):
        engine.claimed(answer)
    engine.lost(third)
    assert int(engine.world().free["VCPU"][0]) == 1


async def test_statements_do_not_grow_with_the_claims(engine: Engine, database: Database) -> None:
    hosts = await stock(engine, hosts=8, vcpus=1000)
    counted = []
    for size in (1, 100):
        ask = Ask(resources={"VCPU": 1})
        bids = [
            ClaimRequest(Owner(str(uuid.UUID(int=size * 1000 + n)), "p", "u"), Choice(hosts[n % 8], "h", CELL), ask)
            for n in range(size)
        ]
        database.meter.reset()
        assert all(isinstance(a, Claimed) for a in await database.write(partial(batched_claims.claim, bids=bids)))
        counted.append((sum(database.meter.statements.values()), sum(database.meter.commits.values())))
    assert counted == [(2 if database.dialect == "postgresql" else 4, 1)] * 2


async def test_who_does_not_fit_has_all_judged_again(engine: Engine, database: Database) -> None:
    """The short way is a dead end for a row that is short, for a consumer that holds something, and for a strange portion."""
    hosts = await stock(engine, hosts=2, vcpus=3)

    def bids(*asked: tuple[int, str, int]) -> list[ClaimRequest]:
        return [
            ClaimRequest(
                Owner(str(uuid.UUID(int=n)), "p", "u"), Choice(hosts[0], "h0", CELL), Ask(resources={resource: amount})
            )
            for n, resource, amount in asked
        ]

    async def told(*asked: tuple[int, str, int]) -> tuple[list[bool], int]:
        database.meter.reset()
        answers = await database.write(partial(batched_claims.claim, bids=bids(*asked)))
        assert await database.read(sql.drift) == []
        return [isinstance(each, Claimed) for each in answers], sum(database.meter.commits.values())

    assert await told((1, "VCPU", 2), (2, "VCPU", 2)) == ([True, False], 1)
    assert await told((1, "VCPU", 1), (3, "VCPU", 1)) == ([True, False], 1)  # 1 is there already, and gets more
    assert await told((4, "MEMORY_MB", 6), (5, "MEMORY_MB", 8)) == ([False, True], 1)  # in steps of 4
    assert await told((6, "VGPU", 1), (7, "MEMORY_MB", 8)) == ([False, True], 1)
    held = await database.read(lambda tx: {n: sql.held(tx, str(uuid.UUID(int=n))) for n in range(1, 8)})
    assert {n: list(each.values()) for n, each in held.items()} == {
        1: [3], 2: [], 3: [], 4: [], 5: [8], 6: [], 7: [8]
    }  # fmt: skip


async def test_in_a_shared_commit_only_who_does_not_fit_begins_again(engine: Engine, database: Database) -> None:
    """Two batches at the same moment: on SQLite they share the commit, each in its savepoint."""
    hosts = await stock(engine, hosts=2, vcpus=3)

    def batch(first: int, count: int, host: int) -> list[ClaimRequest]:
        ask = Ask(resources={"VCPU": 1})
        return [
            ClaimRequest(Owner(str(uuid.UUID(int=first + n)), "p", "u"), Choice(hosts[host], "h", CELL), ask)
            for n in range(count)
        ]

    both = [batch(100, 2, 0), batch(200, 5, 1), batch(300, 1, 0)]
    answers = await asyncio.gather(*(database.write(partial(batched_claims.claim, bids=bids)) for bids in both))
    taken = [sum(isinstance(each, Claimed) for each in some) for some in answers]
    assert taken == [2, 3, 1]
    assert await database.read(sql.drift) == []


async def test_a_consumer_comes_once(engine: Engine, database: Database) -> None:
    host = (await stock(engine, hosts=1))[0]
    one = ClaimRequest(Owner(str(uuid.UUID(int=1)), "p", "u"), Choice(host, "h0", CELL), Ask(resources={"VCPU": 1}))
    with pytest.raises(Internal):
        await database.write(partial(batched_claims.claim, bids=[one, one]))
    strange = one._replace(owner=one.owner._replace(project="two\nlines"))
    if database.dialect == "postgresql":
        with pytest.raises(Internal):
            await database.write(partial(batched_claims.claim, bids=[strange]))
    assert await database.read(state) == [
        [], [], sorted((p, c, 0) for p, c, _ in (await database.read(state))[2]), []
    ]  # fmt: skip


async def test_batches_of_rivals_never_take_too_much(engine: Engine, database: Database) -> None:
    """Batches over the same few rows at once, in any order: the database lets one in after the other."""
    hosts = await stock(engine, hosts=3, vcpus=7, addresses=9)
    dice = random.Random(5)
    each = [
        [bid(dice, hosts, str(uuid.UUID(int=dice.getrandbits(128)))) for _ in range(dice.randrange(1, 9))]
        for _ in range(24)
    ]
    answers = await asyncio.gather(*(database.write(partial(batched_claims.claim, bids=bids)) for bids in each))
    assert await database.read(sql.drift) == []
    i = inventories.c
    assert await database.read(lambda tx: tx.rows(sa.select(i.provider).where(i.used > i.cap))) == []
    told = {a.consumer for some in answers for a in some if isinstance(a, Claimed)}
    assert told == {row[0] for row in await database.read(lambda tx: tx.rows(sa.select(consumers.c.uuid)))}
    assert any(isinstance(a, Shortage) for some in answers for a in some)


async def test_the_claimer_fills_the_fleet_and_says_why_it_is_full(engine: Engine, database: Database) -> None:
    hosts = await stock(engine, hosts=5, vcpus=4, addresses=50)
    claimer = Claimer(engine, database)
    ask = Ask(resources={"VCPU": 1, "MEMORY_MB": 4}, nics=(NicAsk("n", tuple(ProviderId(s) for s in SEGMENTS)),))
    names = [str(uuid.UUID(int=n + 1)) for n in range(30)]
    answers = await asyncio.gather(
        *(claimer.place(ask, Owner(name, "p", "u", operation="o", attempt=1)) for name in names)
    )
    placed = [a for a in answers if isinstance(a, Claimed)]
    refused = [a for a in answers if isinstance(a, Verdict)]
    assert (len(placed), len(refused)) == (20, 10)
    assert {host: sum(a.host == host for a in placed) for host in hosts} == dict.fromkeys(hosts, 4)
    assert refused[0].fault() == "No valid host was found. 5 hosts: not enough vCPUs"
    assert claimer.pace.batches < 20  # they went together
    assert claimer.pace.rankings < 30
    assert await database.read(sql.drift) == []
    assert engine.picture._pending == {}
    await claimer.close()


async def test_a_loser_takes_another_host(engine: Engine, database: Database) -> None:
    """The picture is late: what it thinks free was taken by another process."""
    hosts = await stock(engine, hosts=2, vcpus=2)
    ask = Ask(resources={"VCPU": 2})
    choice = engine.rank(ask).best[0]
    rival = ClaimRequest(Owner(str(uuid.UUID(int=9)), "p", "u"), choice, ask)
    assert isinstance((await database.write(partial(batched_claims.claim, bids=[rival])))[0], Claimed)
    claimer = Claimer(engine, database)
    answer = await claimer.place(ask, Owner(str(uuid.UUID(int=10)), "p", "u"))
    assert isinstance(answer, Claimed)
    assert {answer.host, choice.host} == set(hosts)
    assert claimer.pace.lost <= 1


async def test_a_failure_of_the_database_reaches_who_waits(engine: Engine, database: Database) -> None:
    await stock(engine, hosts=1)
    claimer = Claimer(engine, database)
    await database.write(lambda tx: tx.run(sa.text("ALTER TABLE consumers RENAME TO elsewhere")))
    with pytest.raises(DBAPIError):
        await claimer.place(Ask(resources={"VCPU": 1}), Owner(str(uuid.UUID(int=1)), "p", "u"))
    assert engine.picture._pending == {}
