"""Counters of classes of resources change with the project's quota, all or nothing, and only where they exist."""

import asyncio

import pytest

from moorage.model.quota import Shortfall
from moorage.model.unified_limits import UnifiedLimits
from moorage.operations.class_counts import ClassCounts
from moorage.sql import Database
from moorage.store.region import class_usage, quotas
from moorage.store.region.tables import region_metadata

DISK = "class:DISK_GB"
WANTS = {"instances": 1, "cores": 2, "ram": 512, DISK: 20}
LIMITS = UnifiedLimits("p", {"servers": 3, DISK: 40})


@pytest.fixture
async def region(database: Database) -> Database:
    await database.create(region_metadata)
    return database


async def test_a_refused_class_takes_nothing(region: Database) -> None:
    for _ in range(2):
        assert await region.write(lambda tx: quotas.reserve(tx, "p", WANTS, LIMITS)) is None
    short = await region.write(lambda tx: quotas.reserve(tx, "p", WANTS, LIMITS))
    assert short is not None
    assert "Resource class:DISK_GB is over limit of 40 due to current usage 40 and delta 20" in short.problem().public
    assert (await region.read(lambda tx: quotas.usage(tx, "p")))["instances"] == 2
    await region.write(lambda tx: quotas.release(tx, "p", WANTS))
    assert await region.read(lambda tx: class_usage.usage(tx, "p")) == {DISK: 20}


async def test_without_a_limit_nothing_is_counted_and_counters_that_exist_go_on(region: Database) -> None:
    assert await region.write(lambda tx: quotas.reserve(tx, "p", WANTS)) is None
    assert await region.read(lambda tx: class_usage.usage(tx, "p")) == {}
    await region.write(lambda tx: class_usage.begin(tx, "p", {DISK: 20}))
    assert await region.write(lambda tx: quotas.reserve(tx, "p", WANTS)) is None
    assert await region.read(lambda tx: class_usage.usage(tx, "p")) == {DISK: 40}


async def test_parallel_requests_do_not_exceed_a_limit(region: Database) -> None:
    """The first ones find no counter, and each of them counts; more of them are of processes that have counted nothing yet."""
    limits = UnifiedLimits("p", {"servers": -1, "class:VCPU": -1, "class:MEMORY_MB": -1, DISK: 100})
    processes = [ClassCounts(region, {}) for _ in range(4)]

    async def take(number: int) -> Shortfall | None:
        await processes[number % len(processes)].ready(limits)
        return await region.write(lambda tx: quotas.reserve(tx, "p", WANTS, limits))

    for _ in range(4):
        refused = [
            short for short in await asyncio.gather(*(take(number) for number in range(12))) if short is not None
        ]
        assert len(refused) == 12 - 5
        assert all("Resource class:DISK_GB is over limit of 100" in short.problem().public for short in refused)
        assert await region.read(lambda tx: class_usage.usage(tx, "p")) == {DISK: 100}
        assert (await region.read(lambda tx: quotas.usage(tx, "p")))["instances"] == 5
        await asyncio.gather(*(region.write(lambda tx: quotas.release(tx, "p", WANTS)) for _ in range(5)))
        assert await region.read(lambda tx: class_usage.usage(tx, "p")) == {DISK: 0}
