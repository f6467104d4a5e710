"""Quotas are taken all or nothing, exactly, also when many ask at once."""

import asyncio

import pytest

from moorage.model.quota import Shortfall
from moorage.sql import Database
from moorage.store.region import quotas
from moorage.store.region.tables import region_metadata

ONE = {"instances": 1, "cores": 2, "ram": 512}


@pytest.fixture
async def region(database: Database) -> Database:
    await database.create(region_metadata)
    return database


async def test_reserving_is_one_statement(region: Database) -> None:
    region.meter.reset()
    assert await region.write(lambda tx: quotas.reserve(tx, "p", ONE)) is None
    assert sum(region.meter.statements.values()) == 1


async def test_a_refusal_names_every_limit_it_would_break(region: Database) -> None:
    for _ in range(10):
        assert await region.write(lambda tx: quotas.reserve(tx, "p", {"instances": 1, "cores": 2, "ram": 1})) is None
    refused = await region.write(lambda tx: quotas.reserve(tx, "p", ONE))
    assert isinstance(refused, Shortfall)
    expected = "Quota exceeded for cores,instances: Requested 2,1, but already used 20,10 of 20,10 cores,instances"
    assert refused.problem().public == expected
    assert await region.read(lambda tx: quotas.usage(tx, "p")) == {"instances": 10, "cores": 20, "ram": 10}


async def test_the_first_request_of_a_project_is_judged_too(region: Database) -> None:
    assert await region.write(lambda tx: quotas.reserve(tx, "p", {"cores": 21})) is not None
    assert await region.read(lambda tx: quotas.usage(tx, "p")) == {"instances": 0, "cores": 0, "ram": 0}


async def test_limits_own_before_class_before_configuration(region: Database) -> None:
    await region.write(lambda tx: quotas.set_class_limits(tx, "default", {"instances": 3}))
    assert (await region.read(lambda tx: quotas.limits(tx, "p", {"cores": 7})))["instances"] == 3
    await region.write(lambda tx: quotas.set_limits(tx, "p", {"instances": -1}))
    known = await region.read(lambda tx: quotas.limits(tx, "p", {"cores": 7}))
    assert (known["instances"], known["cores"], known["ram"]) == (-1, 7, 51_200)
    assert await region.write(lambda tx: quotas.reserve(tx, "p", {"instances": 500}, {"cores": 7})) is None
    assert await region.write(lambda tx: quotas.reserve(tx, "p", {"cores": 8}, {"cores": 7})) is not None
    await region.write(lambda tx: quotas.forget_limits(tx, "p"))
    assert (await region.read(lambda tx: quotas.limits(tx, "p")))["instances"] == 3


async def test_what_is_given_back_can_be_taken_again(region: Database) -> None:
    await region.write(lambda tx: quotas.set_limits(tx, "p", {"instances": 1}))
    assert await region.write(lambda tx: quotas.reserve(tx, "p", ONE)) is None
    assert await region.write(lambda tx: quotas.reserve(tx, "p", ONE)) is not None
    await region.write(lambda tx: quotas.release(tx, "p", ONE))
    assert await region.write(lambda tx: quotas.reserve(tx, "p", ONE)) is None
    for _ in range(3):
        await region.write(lambda tx: quotas.release(tx, "p", ONE))
    assert await region.read(lambda tx: quotas.usage(tx, "p")) == {"instances": 0, "cores": 0, "ram": 0}


async def test_many_at_once_get_exactly_what_there_is(region: Database) -> None:
    await region.write(lambda tx: quotas.set_limits(tx, "p", {"instances": 7, "cores": -1, "ram": -1}))
    answers = await asyncio.gather(*(region.write(lambda tx: quotas.reserve(tx, "p", ONE)) for _ in range(30)))
    assert [answer for answer in answers if answer is None] == [None] * 7
    assert (await region.read(lambda tx: quotas.usage(tx, "p")))["instances"] == 7
