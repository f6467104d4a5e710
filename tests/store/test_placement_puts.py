"""Requests that share a transaction: the same results as one after the other, on both databases, and no request affects another."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from moorage.model.errors import Conflict, Invalid, Problem
from moorage.model.ids import ProviderId
from moorage.model.resources import Inventory
from moorage.placement import claims
from moorage.placement.engine import Engine
from moorage.placement.service import allocation_changes
from moorage.placement.service import provider_changes as service_providers
from moorage.placement.service.allocation_changes import AllocationOutcome, Request, WantedAllocations
from moorage.placement.service.group_commit import GroupCommit
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database, Tx, open_database
from moorage.store.region.placement import claim_statements, placement_metadata
from moorage.store.region.placement.change_feed import since
from moorage.store.region.placement.tables import allocations as held
from moorage.store.region.placement.tables import consumers, inventories, providers

PROVIDERS = [str(uuid.UUID(int=10 + n)) for n in range(3)]
CONSUMERS = [str(uuid.UUID(int=1000 + n)) for n in range(12)]
NEW = {"sqlite": 7, "postgresql": 3}
"""Statements for requests of new consumers, however many; one more where a consumer gives up something, or is read on PostgreSQL."""


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[Engine]:
    await database.create(placement_metadata)
    engine = Engine(database, partial(rank, profile=Profile()), every_s=3600)
    await engine.start()
    await database.write(stock)
    await engine.catch_up()
    yield engine
    await engine.close()
    assert await database.read(claim_statements.drift) == []


def stock(tx: Tx) -> None:
    for number, uuid_ in enumerate(PROVIDERS):
        service_providers.create(tx, uuid_, f"p{number}", None)
        service_providers.set_inventories(
            tx, uuid_, {"VCPU": Inventory(8, max_unit=4), "MEMORY_MB": Inventory(64, step=4)}, None
        )


def wanted(
    amounts: Mapping[str, Mapping[str, int]],
    generation: int | None = None,
    *,
    checked: bool = True,
    kind: str | None = None,
) -> WantedAllocations:
    return WantedAllocations(
        amounts=amounts, project="p", user="u", type=kind, check_generation=checked, generation=generation
    )


def drawn(dice: random.Random, tx_consumers: Sequence[str]) -> Request:
    """Good and bad, of one consumer or two, on few rows."""
    found: dict[str, WantedAllocations] = {}
    for consumer in tx_consumers:
        amounts: dict[str, dict[str, int]] = {}
        for provider in dice.sample([*PROVIDERS, str(uuid.UUID(int=99))], dice.choice([0, 1, 1, 2])):
            if provider not in PROVIDERS and dice.random() < 0.7:
                continue
            amounts[provider] = {"VCPU": dice.choice([1, 2, 3, 5])}
            if dice.random() < 0.5:
                amounts[provider]["MEMORY_MB"] = dice.choice([4, 8, 6, 32])
            if dice.random() < 0.05:
                amounts[provider][dice.choice(["VGPU", "CUSTOM_NO"])] = 1
        checked = dice.random() < 0.3
        checked, kind = dice.random() < 0.3, dice.choice([None, "INSTANCE", "VOLUME"])
        found[consumer] = wanted(amounts, dice.choice([None, 1, 2]), checked=checked, kind=kind)
    return found


def state(tx: Tx) -> list[Any]:
    """Everything that a request writes, without stamps and times."""
    a, c, i, p = held.c, consumers.c, inventories.c, providers.c
    return [
        sorted(map(tuple, tx.rows(sa.select(a.consumer, a.provider, a["class"], a.used)))),
        sorted(map(str, tx.rows(sa.select(*(col for col in c if col.name != "updated_at"))))),
        sorted(map(tuple, tx.rows(sa.select(i.provider, i["class"], i.used)))),
        sorted(map(tuple, tx.rows(sa.select(p.uuid, p.generation)))),
    ]


def empty(tx: Tx) -> None:
    for table in (held, consumers):
        tx.run(sa.delete(table))
    tx.run(sa.update(inventories).values(used=0))
    tx.run(sa.update(providers).values(generation=1))


def outcome_of(answer: Problem | None) -> Any:
    return None if answer is None else (type(answer), answer.public, answer.code)


async def one_by_one(database: Database, requests: Sequence[Request]) -> list[Problem | None]:
    found: list[Problem | None] = []
    for request in requests:
        try:
            await database.write(partial(allocation_changes.put, wanted=request))
            found.append(None)
        except Problem as problem:
            found.append(problem)
    return found


@pytest.mark.parametrize("seed", range(6))
async def test_a_batch_has_the_same_result_as_single_requests(engine: Engine, database: Database, seed: int) -> None:
    dice = random.Random(seed)
    rounds: list[list[Request]] = []
    for _ in range(4):
        names = dice.sample(CONSUMERS, 10)
        rounds.append([drawn(dice, names[:2]), *(drawn(dice, [name]) for name in names[2:])])
    apart = [await one_by_one(database, requests) for requests in rounds]
    expected = await database.read(state)
    assert any(answer is None for answers in apart for answer in answers)
    assert {Conflict, Invalid} <= {type(answer) for answers in apart for answer in answers}
    await database.write(empty)
    for requests, alone in zip(rounds, apart, strict=True):
        outcome = await database.write(partial(allocation_changes.put_all, requests=requests))
        assert [outcome_of(each) for each in outcome.answers] == [outcome_of(each) for each in alone]
    assert await database.read(state) == expected


async def test_the_number_of_statements_is_independent_of_the_requests(engine: Engine, database: Database) -> None:
    writes = GroupCommit(engine, database)
    for number, count in enumerate((1, 5)):
        names = CONSUMERS[number * 6 : number * 6 + count]
        database.meter.reset()
        await asyncio.gather(*(writes.put({name: wanted({PROVIDERS[0]: {"VCPU": 1}})}) for name in names))
        assert sum(database.meter.statements.values()) == NEW[database.dialect]
        assert sum(database.meter.commits.values()) == 1
    database.meter.reset()
    names = CONSUMERS[6:11]
    await asyncio.gather(*(writes.put({name: wanted({PROVIDERS[1]: {"VCPU": 1}}, 1)}) for name in names))
    assert sum(database.meter.statements.values()) == NEW[database.dialect] + 1
    assert sum(database.meter.commits.values()) == 1
    database.meter.reset()
    with pytest.raises(Conflict):
        await writes.put({CONSUMERS[0]: wanted({PROVIDERS[0]: {"VCPU": 1}}, 7)})
    assert sum(database.meter.commits.values()) == 0


async def test_each_request_gets_its_own_answer(engine: Engine, database: Database) -> None:
    writes = GroupCommit(engine, database)
    asked: list[Request] = [
        {CONSUMERS[0]: wanted({PROVIDERS[0]: {"VCPU": 4}})},
        {CONSUMERS[1]: wanted({PROVIDERS[0]: {"VCPU": 5}})},
        {CONSUMERS[2]: wanted({PROVIDERS[0]: {"VCPU": 4}})},
        {CONSUMERS[3]: wanted({PROVIDERS[0]: {"VCPU": 1}})},
        {CONSUMERS[4]: wanted({str(uuid.UUID(int=99)): {"VCPU": 1}})},
        {CONSUMERS[0]: wanted({PROVIDERS[0]: {"VCPU": 3}}, 1)},
        {CONSUMERS[5]: wanted({PROVIDERS[0]: {"VCPU": 1}})},
    ]
    answers = await asyncio.gather(*(writes.put(each) for each in asked), return_exceptions=True)
    words = [None if answer is None else str(answer) for answer in answers]
    assert [word is None for word in words] == [True, False, True, False, False, True, True]
    assert words[1] is not None
    assert "portions" in words[1]
    assert words[3] is not None
    assert "exceed" in words[3]
    assert words[4] is not None
    assert "does not exist" in words[4]
    stocks = engine.picture.providers[ProviderId(PROVIDERS[0])].stocks
    assert stocks["VCPU"].used == 8


async def test_a_failed_batch_is_repeated_request_by_request(
    engine: Engine, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sizes = allocation_changes.put_all, list[int]()

    def put_all(tx: Tx, requests: Sequence[Request]) -> AllocationOutcome:
        sizes.append(len(requests))
        if any(CONSUMERS[1] in request for request in requests):
            raise RuntimeError("one of them is to blame")
        return real(tx, requests)

    monkeypatch.setattr(allocation_changes, "put_all", put_all)
    writes = GroupCommit(engine, database)
    answers = await asyncio.gather(
        *(writes.put({name: wanted({PROVIDERS[0]: {"VCPU": 1}})}) for name in CONSUMERS[:3]), return_exceptions=True
    )
    assert [type(each) for each in answers] == [type(None), RuntimeError, type(None)]
    assert sizes == [3, 1, 1, 1]


@pytest.mark.postgres
async def test_concurrent_requests_for_a_new_consumer_are_distinguished(postgres_url: str) -> None:
    """A consumer that is not there cannot be locked: its row says who was first, and the other is judged again."""
    databases = [await open_database(postgres_url, name="region") for _ in range(3)]
    await databases[0].create(placement_metadata)
    await databases[0].write(stock)
    for consumer in CONSUMERS:
        works = [
            partial(allocation_changes.put, wanted={consumer: wanted({PROVIDERS[n]: {"VCPU": 1}})})
            for n, _ in enumerate(databases)
        ]
        answers = await asyncio.gather(
            *(each.write(work) for each, work in zip(databases, works, strict=True)), return_exceptions=True
        )
        assert sum(isinstance(each, Conflict) for each in answers) == 2, answers
        assert sum((await databases[0].read(partial(claim_statements.held, consumer=consumer))).values()) == 1
        await databases[0].write(partial(allocation_changes.delete, consumer=consumer))
    assert await databases[0].read(claim_statements.drift) == []
    for each in databases:
        await each.close()


async def test_own_generation_changes_are_not_read_again(engine: Engine, database: Database) -> None:
    writes = GroupCommit(engine, database)
    here = engine.picture.providers[ProviderId(PROVIDERS[0])]
    generation = here.generation
    await writes.put({CONSUMERS[0]: wanted({PROVIDERS[0]: {"VCPU": 2}})})
    assert (here.generation, here.stocks["VCPU"].used) == (generation + 1, 2)
    news = await database.read(lambda tx: since(tx, engine._horizon, engine.picture.version_of))
    assert [row.used for row in news.inventories] == [2]
    assert not news.providers  # what we moved is known
    # somebody else changes it, unseen by us, and then we do
    await database.write(lambda tx: service_providers.set_traits(tx, PROVIDERS[0], ["HW_CPU_X86_AVX"], None))
    await writes.put({CONSUMERS[1]: wanted({PROVIDERS[0]: {"VCPU": 1}})})
    await engine.catch_up()
    assert here.traits == {"HW_CPU_X86_AVX"}
    assert (here.generation, here.stocks["VCPU"].used) == (generation + 3, 3)


async def test_a_root_moved_below_another_provider_is_no_root(engine: Engine, database: Database) -> None:
    assert len(engine.picture.anchors()) == len(PROVIDERS)
    under = partial(
        service_providers.update, uuid=PROVIDERS[1], name="p1", parent=PROVIDERS[0], reparent=True, has_parent=True
    )
    await database.write(under)
    await engine.catch_up()
    assert {engine.picture.host_ids[slot] for slot in engine.picture.anchors()} == {PROVIDERS[0], PROVIDERS[2]}
    assert set(engine.picture.trees) == {PROVIDERS[0], PROVIDERS[2]}


async def test_corrections_and_puts_of_one_consumer_have_an_order(engine: Engine, database: Database) -> None:
    """Each reads what is held and writes what is then to be: were they to overlap, one would count on what the other changed."""
    server, provider = CONSUMERS[0], ProviderId(PROVIDERS[0])
    await database.write(lambda tx: allocation_changes.put(tx, {server: wanted({provider: {"VCPU": 1}})}))

    def put(tx: Tx, amount: int) -> AllocationOutcome:
        return allocation_changes.put_all(tx, [{server: wanted({provider: {"VCPU": amount}}, checked=False)}])

    def correct(tx: Tx, amount: int) -> object:
        return claims.correct(tx, server, "VCPU", {provider: amount})

    def adjust(tx: Tx) -> object:
        claim_statements.owner(tx, server)
        now = claim_statements.held(tx, server)[provider, "VCPU"]
        return claims.adjust(tx, server, {(provider, "VCPU"): (now, 5 - now)})

    for _ in range(20):
        one_after_the_other = [
            *(database.write(partial(put, amount=amount)) for amount in (1, 4, 2)),
            *(database.write(partial(correct, amount=amount)) for amount in (3, 1)),
            *(database.write(adjust) for _ in range(2)),
        ]
        await asyncio.gather(*one_after_the_other)
        assert await database.read(claim_statements.drift) == []
    assert 1 <= (await database.read(lambda tx: claim_statements.held(tx, server)))[provider, "VCPU"] <= 4
