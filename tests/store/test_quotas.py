"""Quotas are taken all or nothing, exactly, also with concurrent requests."""

import asyncio

import pytest

from moorage.model.quota import Shortfall
from moorage.sql import Database, Tx
from moorage.store.region import quotas, user_quotas
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


async def test_a_refusal_names_every_exceeded_limit(region: Database) -> None:
    for _ in range(10):
        assert await region.write(lambda tx: quotas.reserve(tx, "p", {"instances": 1, "cores": 2, "ram": 1})) is None
    refused = await region.write(lambda tx: quotas.reserve(tx, "p", ONE))
    assert isinstance(refused, Shortfall)
    expected = "Quota exceeded for cores,instances: Requested 2,1, but already used 20,10 of 20,10 cores,instances"
    assert refused.problem().public == expected
    assert await region.read(lambda tx: quotas.usage(tx, "p")) == {"instances": 10, "cores": 20, "ram": 10}


async def test_the_first_request_of_a_project_is_checked_too(region: Database) -> None:
    assert await region.write(lambda tx: quotas.reserve(tx, "p", {"cores": 21})) is not None
    assert await region.read(lambda tx: quotas.usage(tx, "p")) == {"instances": 0, "cores": 0, "ram": 0}


async def test_own_limits_come_before_class_and_configuration(region: Database) -> None:
    await region.write(lambda tx: quotas.set_class_limits(tx, "default", {"instances": 3}))
    assert (await region.read(lambda tx: quotas.limits(tx, "p", {"cores": 7})))["instances"] == 3
    await region.write(lambda tx: quotas.set_limits(tx, "p", {"instances": -1}))
    known = await region.read(lambda tx: quotas.limits(tx, "p", {"cores": 7}))
    assert (known["instances"], known["cores"], known["ram"]) == (-1, 7, 51_200)
    assert await region.write(lambda tx: quotas.reserve(tx, "p", {"instances": 500}, {"cores": 7})) is None
    assert await region.write(lambda tx: quotas.reserve(tx, "p", {"cores": 8}, {"cores": 7})) is not None
    await region.write(lambda tx: quotas.forget_limits(tx, "p"))
    assert (await region.read(lambda tx: quotas.limits(tx, "p")))["instances"] == 3


async def test_released_quota_can_be_taken_again(region: Database) -> None:
    await region.write(lambda tx: quotas.set_limits(tx, "p", {"instances": 1}))
    assert await region.write(lambda tx: quotas.reserve(tx, "p", ONE)) is None
    assert await region.write(lambda tx: quotas.reserve(tx, "p", ONE)) is not None
    await region.write(lambda tx: quotas.release(tx, "p", ONE))
    assert await region.write(lambda tx: quotas.reserve(tx, "p", ONE)) is None
    for _ in range(3):
        await region.write(lambda tx: quotas.release(tx, "p", ONE))
    assert await region.read(lambda tx: quotas.usage(tx, "p")) == {"instances": 0, "cores": 0, "ram": 0}


async def test_concurrent_requests_get_exactly_the_limit(region: Database) -> None:
    await region.write(lambda tx: quotas.set_limits(tx, "p", {"instances": 7, "cores": -1, "ram": -1}))
    answers = await asyncio.gather(*(region.write(lambda tx: quotas.reserve(tx, "p", ONE)) for _ in range(30)))
    assert [answer for answer in answers if answer is None] == [None] * 7
    assert (await region.read(lambda tx: quotas.usage(tx, "p")))["instances"] == 7


# ------------------------------------------------------------------------------------------------ users


async def count(region: Database, user: str, **limits: int) -> None:
    """From now on the user is counted."""

    def work(tx: Tx) -> None:
        user_quotas.set_limits(tx, "p", user, limits)
        user_quotas.recount(tx, "p", user, {})

    await region.write(work)


async def test_user_limits_stop_only_that_user(region: Database) -> None:
    await count(region, "ann", instances=2)
    for _ in range(2):
        assert await region.write(lambda tx: quotas.reserve(tx, "p", ONE, user="ann")) is None
    refused = await region.write(lambda tx: quotas.reserve(tx, "p", ONE, user="ann"))
    assert isinstance(refused, Shortfall)
    assert refused.problem().public == ("Quota exceeded for instances: Requested 1, but already used 2 of 2 instances")
    held = {"instances": 2, "cores": 4, "ram": 1024}
    assert await region.read(lambda tx: quotas.usage(tx, "p")) == held  # nothing of the refused one is left
    assert await region.read(lambda tx: user_quotas.usage(tx, "p", "ann")) == held
    assert await region.write(lambda tx: quotas.reserve(tx, "p", ONE, user="bob")) is None
    assert await region.read(lambda tx: user_quotas.usage(tx, "p", "bob")) is None
    await region.write(lambda tx: quotas.release(tx, "p", ONE, "ann"))
    assert await region.read(lambda tx: user_quotas.usage(tx, "p", "ann")) == ONE
    assert await region.write(lambda tx: quotas.reserve(tx, "p", ONE, user="ann")) is None


async def test_only_a_user_with_limits_costs_a_second_statement(region: Database) -> None:
    await count(region, "ann", instances=5)
    for user, statements in (("bob", 1), ("ann", 4)):  # ann's limits: own, the project's, the class's
        region.meter.reset()
        assert await region.write(lambda tx, user=user: quotas.reserve(tx, "p", ONE, user=user)) is None
        assert sum(region.meter.statements.values()) == statements + (user == "ann")
        region.meter.reset()
        await region.write(lambda tx, user=user: quotas.release(tx, "p", ONE, user))
        assert sum(region.meter.statements.values()) == 1 + (user == "ann")


async def test_a_user_without_limits_has_the_projects(region: Database) -> None:
    await region.write(lambda tx: quotas.set_limits(tx, "p", {"instances": 1, "metadata_items": 5}))
    await count(region, "ann", cores=50)
    limits = await region.read(lambda tx: quotas.user_limits(tx, "p", "ann"))
    assert (limits["instances"], limits["cores"], limits["ram"]) == (1, 50, 51_200)
    assert await region.write(lambda tx: quotas.reserve(tx, "p", ONE, user="ann")) is None
    assert await region.write(lambda tx: quotas.reserve(tx, "p", ONE, user="ann")) is not None
    await region.write(lambda tx: user_quotas.set_limits(tx, "p", "ann", {"metadata_items": 3, "key_pairs": -1}))
    both = await region.read(lambda tx: quotas.both_limits(tx, "p", "ann"))
    assert (both["metadata_items"], both["key_pairs"]) == (3, 100)
    await region.write(lambda tx: quotas.forget_limits(tx, "p"))
    assert await region.read(lambda tx: user_quotas.usage(tx, "p", "ann")) is None
    assert await region.read(lambda tx: user_quotas.own_limits(tx, "p", "ann")) == {}


async def test_concurrent_requests_of_one_user_get_exactly_the_users_limit(region: Database) -> None:
    await region.write(lambda tx: quotas.set_limits(tx, "p", {"instances": -1, "cores": -1, "ram": -1}))
    await count(region, "ann", instances=3)
    asked = [region.write(lambda tx: quotas.reserve(tx, "p", ONE, user="ann")) for _ in range(12)]
    answers = await asyncio.gather(*asked)
    assert [answer is None for answer in answers].count(True) == 3
    assert (await region.read(lambda tx: user_quotas.usage(tx, "p", "ann")) or {})["instances"] == 3
    assert (await region.read(lambda tx: quotas.usage(tx, "p")))["instances"] == 3
