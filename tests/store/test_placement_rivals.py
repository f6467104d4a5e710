"""Several processes claim and release against scarce inventory: never too much at any commit, nothing lost or doubled.

Every process has a picture and connections of its own; only the database is shared.  A watcher asks it by SQL, all the time,
whether anything is claimed beyond capacity; in the end what the database holds is what the rivals were told.
"""

import asyncio
import json
import random
import subprocess
import sys
import uuid
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from moorage.model.ids import CellId, HostId, ProviderId, SegmentId
from moorage.model.resources import IPV4_ADDRESS, Inventory
from moorage.model.verdict import Claimed, Shortage
from moorage.model.world import Ask, Choice, NicRequirement
from moorage.placement.engine import Engine
from moorage.placement.inventory import HostInventory, SegmentReport, report_host, report_segment
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database, Tx, open_database
from moorage.store.region.placement import placement_metadata
from moorage.store.region.placement.claim_statements import Owner, drift
from moorage.store.region.placement.tables import allocations, consumers, inventories

HOSTS, SEGMENTS = 8, 2
VCPUS, ADDRESSES = 6, 20
PROCESSES, CLIENTS = 3, 64
DEADLINE_S, SOAK_DEADLINE_S = 600.0, 7200.0
ANY = tuple(ProviderId(str(uuid.UUID(int=900 + number))) for number in range(SEGMENTS))
SEGMENT_IDS = [SegmentId(str(uuid.UUID(int=900 + number))) for number in range(SEGMENTS)]


async def _engine(database: Database) -> Engine:
    engine = Engine(database, partial(rank, profile=Profile()))
    await engine.start()
    return engine


def _stock(tx: Tx) -> None:
    """Few places and fewer addresses, shared by all hosts of a segment."""
    for number in range(HOSTS):
        amounts = {"VCPU": Inventory(total=VCPUS)}
        report_host(tx, HostInventory(host=f"h{number}", cell=CellId("cell1"), inventories=amounts))
    for number, segment in enumerate(SEGMENT_IDS):
        wired = tuple(f"h{host}" for host in range(HOSTS) if host % SEGMENTS == number)
        report_segment(tx, SegmentReport(segment=segment, name=f"s{number}", total=ADDRESSES, hosts=wired))


async def _client(engine: Engine, database: Database, dice: random.Random, turns: int, held: dict[str, str]) -> int:
    """Makes `turns` claims or releases and keeps in `held` what was claimed. Returns how many claims were refused."""
    mine: list[str] = []
    refused = 0
    for _ in range(turns):
        if mine and dice.random() < 0.5:
            consumer = mine.pop(dice.randrange(len(mine)))
            engine.settle(await database.write(lambda tx, gone=consumer: engine.release(tx, gone)))  # type: ignore[misc]
            del held[consumer]
            continue
        host = dice.randrange(HOSTS)
        provider = engine.host_named(f"h{host}")
        assert provider is not None
        consumer = str(uuid.UUID(int=dice.getrandbits(128)))
        answer = await _claim(engine, database, consumer, provider, SEGMENT_IDS[host % SEGMENTS])
        if isinstance(answer, Claimed):
            engine.claimed(answer)
            mine.append(consumer)
            held[consumer] = provider
        else:
            engine.lost(answer)
            refused += 1
    return refused


async def _claim(
    engine: Engine, database: Database, consumer: str, host: HostId, segment: SegmentId
) -> Claimed | Shortage:
    ask = Ask(resources={"VCPU": 1}, nics=(NicRequirement("nic"),))
    choice = Choice(host, "", CellId("cell1"), segments=(ProviderId(segment),))

    def work(tx: Tx) -> Claimed | Shortage:
        answer = engine.claim(tx, Owner(consumer, "p", "u", operation="o", attempt=1), choice, ask, replace=False)
        if isinstance(answer, Shortage):
            tx.refuse(answer)
        return answer

    return await database.write(work)


async def _rival(url: str, seed: int, clients: int, turns: int) -> None:
    """One process of rivals; prints what it holds."""
    database = await open_database(url, name="region", durability="process")
    engine = await _engine(database)
    held: dict[str, str] = {}
    dice = [random.Random(seed * 1000 + number) for number in range(clients)]
    refused = await asyncio.gather(*(_client(engine, database, each, turns, held) for each in dice))
    await engine.close()
    await database.close()
    sys.stdout.write(json.dumps({"held": held, "refused": sum(refused)}))


def _over(tx: Tx) -> list[tuple[str, str, int, int]]:
    i, a = inventories.c, allocations.c
    total = sa.func.sum(a.used)
    query = (
        sa.select(i.provider, i["class"], i.cap, total)
        .join_from(inventories, allocations, (a.provider == i.provider) & (a["class"] == i["class"]))
        .group_by(i.provider, i["class"], i.cap)
        .having(total > i.cap)
    )
    return [tuple(row) for row in tx.rows(query)]


async def _race(url: str, turns_in_all: int, deadline_s: float = DEADLINE_S) -> None:
    database = await open_database(url, name="region", durability="process")
    await database.create(placement_metadata)
    await database.write(_stock)
    shares = [CLIENTS // PROCESSES + (number < CLIENTS % PROCESSES) for number in range(PROCESSES)]
    turns = -(-turns_in_all // CLIENTS)
    code = "import sys, asyncio, tests.store.test_placement_rivals as t; asyncio.run(t._rival(sys.argv[1], *map(int, sys.argv[2:])))"
    here = ":".join(path for path in sys.path if path)
    rivals = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, url, str(number), str(clients), str(turns),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"PYTHONPATH": here},
        )
        for number, clients in enumerate(shares)
    ]  # fmt: skip
    listed = [asyncio.create_task(rival.communicate()) for rival in rivals]
    looks = 0
    async with asyncio.timeout(deadline_s):
        while not all(each.done() for each in listed):
            assert await database.read(_over) == []
            looks += 1
            await asyncio.wait(listed, timeout=0.01, return_when=asyncio.ALL_COMPLETED)
    held: dict[str, str] = {}
    refused = 0
    for rival, each in zip(rivals, listed, strict=True):
        out, err = each.result()
        assert rival.returncode == 0, err.decode()
        answer = json.loads(out)
        held |= answer["held"]
        refused += answer["refused"]
    assert looks > 3
    assert refused > 0  # it was scarce
    rows = await database.read(
        lambda tx: tx.rows(sa.select(allocations.c.consumer, allocations.c.provider, allocations.c["class"]))
    )
    kept = {consumer: provider for consumer, provider, resource in rows if resource == "VCPU"}
    addresses = [consumer for consumer, _, resource in rows if resource == IPV4_ADDRESS]
    assert kept == held
    assert sorted(addresses) == sorted(held)
    assert {row[0] for row in await database.read(lambda tx: tx.rows(sa.select(consumers.c.uuid)))} == set(held)
    assert await database.read(drift) == []
    await database.close()


@pytest.mark.slow
@pytest.mark.postgres
async def test_5000_claims_and_releases_of_three_processes(postgres_url: str) -> None:
    await _race(postgres_url, 5_000)


@pytest.mark.slow
async def test_1000_claims_and_releases_of_three_processes_on_one_file(tmp_path: Path) -> None:
    await _race(f"sqlite:///{tmp_path}/region.db", 1_000)


@pytest.mark.soak
@pytest.mark.postgres
async def test_100000_claims_and_releases_of_three_processes(postgres_url: str) -> None:
    await _race(postgres_url, 100_000, SOAK_DEADLINE_S)


@pytest.mark.soak
async def test_100000_claims_and_releases_of_three_processes_on_one_file(tmp_path: Path) -> None:
    await _race(f"sqlite:///{tmp_path}/region.db", 100_000, SOAK_DEADLINE_S)
