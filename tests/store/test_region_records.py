"""Flavors, key pairs, server groups, aggregates and hosts' conductors: the same on both databases."""

import asyncio
from collections.abc import Callable

import pytest

from moorage.model.aggregate import Aggregate
from moorage.model.errors import Conflict, NotFound
from moorage.model.flavor import Flavor
from moorage.model.ids import ConductorId, FlavorId
from moorage.model.keypair import KeyPair
from moorage.model.server_group import ServerGroup
from moorage.operations.records import flavors as flavor_writes
from moorage.sql import Database, Tx
from moorage.store.region import aggregates, conductors, flavors, keypairs, server_groups
from moorage.store.region.tables import region_metadata


@pytest.fixture
async def region(database: Database) -> Database:
    await database.create(region_metadata)
    return database


def flavor(name: str, *, is_public: bool = True) -> Flavor:
    return Flavor(0, FlavorId(name), name, 1, 512, 1, extra_specs={"a": "1"}, is_public=is_public)


async def test_flavors(region: Database) -> None:
    made = await region.write(lambda tx: flavors.add(tx, flavor("small")))
    assert await region.read(lambda tx: flavors.get(tx, "small")) == made
    with pytest.raises(Conflict):
        await region.write(lambda tx: flavors.add(tx, flavor("small")))
    await flavor_writes.set_specs(region, "small", {"a": "2", "b": "3"}, 7)
    changed = await region.read(lambda tx: flavors.get(tx, "small"))
    assert changed is not None
    assert (changed.extra_specs, changed.updated_at) == ({"a": "2", "b": "3"}, 7)
    await region.write(lambda tx: flavors.add(tx, flavor("own", is_public=False)))
    await flavor_writes.open_to(region, "own", "p", 8, refuse_public=True)
    assert (await region.read(lambda tx: flavors.visible(tx, "own", project="p", everything=False))).projects == ("p",)
    with pytest.raises(NotFound):
        await region.read(lambda tx: flavors.visible(tx, "own", project="q", everything=False))
    await region.write(lambda tx: flavors.remove(tx, "small"))
    assert [each.id for each in await region.read(flavors.every)] == ["own"]


async def test_key_pairs(region: Database) -> None:
    for name in ("b", "a", "c"):
        assert await region.write(lambda tx, name=name: keypairs.add(tx, KeyPair(0, "u", name, "ssh", "k", "f", 1), 3))  # type: ignore[misc]
    assert await region.write(lambda tx: keypairs.add(tx, KeyPair(0, "u", "d", "ssh", "k", "f", 1), 3)) is None
    with pytest.raises(Conflict):
        await region.write(lambda tx: keypairs.add(tx, KeyPair(0, "u", "a", "ssh", "k", "f", 1), 9))
    assert [each.name for each in await region.read(lambda tx: keypairs.page(tx, "u", "a", 5))] == ["b", "c"]
    assert await region.read(lambda tx: keypairs.get(tx, "v", "a")) is None
    assert await region.write(lambda tx: keypairs.remove(tx, "u", "a"))
    assert not await region.write(lambda tx: keypairs.remove(tx, "u", "a"))


async def test_concurrent_requests_stay_within_the_limit(region: Database) -> None:
    def pair(number: int) -> KeyPair:
        return KeyPair(0, "u", f"k{number}", "ssh", "k", "f", 1)

    def group(number: int) -> ServerGroup:
        return ServerGroup(f"g{number}", "g", "p", "u", "affinity")

    def add_pair(number: int) -> Callable[[Tx], KeyPair | None]:
        return lambda tx: keypairs.add(tx, pair(number), 4)

    def add_group(number: int) -> Callable[[Tx], bool]:
        return lambda tx: server_groups.add(tx, group(number), 4)

    made = await asyncio.gather(*(region.write(add_pair(number)) for number in range(12)))
    assert sum(each is not None for each in made) == 4
    grouped = await asyncio.gather(*(region.write(add_group(number)) for number in range(12)))
    assert sum(grouped) == 4


async def test_server_groups(region: Database) -> None:
    group = ServerGroup("g", "g", "p", "u", "anti-affinity", 2, created_at=1)
    assert await region.write(lambda tx: server_groups.add(tx, group, 1))
    assert not await region.write(lambda tx: server_groups.add(tx, group, 1))
    assert await region.write(lambda tx: server_groups.join(tx, "g", ["s2", "s1"], 2)) is None
    assert await region.write(lambda tx: server_groups.join(tx, "g", ["s3"], 2)) == 2
    found = await region.read(lambda tx: server_groups.get(tx, "g"))
    assert found is not None
    assert found.members == ("s1", "s2")
    assert await region.read(lambda tx: server_groups.of_server(tx, ["s1", "s9"])) == {"s1": "g"}
    await region.write(lambda tx: server_groups.leave(tx, ["s1"]))
    assert [each.members for each in await region.read(lambda tx: server_groups.listed(tx, "p", 9, 0))] == [("s2",)]
    assert await region.write(lambda tx: server_groups.remove(tx, "g"))


async def test_aggregates(region: Database) -> None:
    new = Aggregate(0, "id", "fast", {"availability_zone": "north"}, ("h1", "h2"), 1)
    made = await region.write(lambda tx: aggregates.add(tx, new))
    assert await region.read(aggregates.every) == [made]
    assert await region.read(aggregates.zones) == {"h1": "north", "h2": "north"}
    with pytest.raises(Conflict):
        await region.write(lambda tx: aggregates.add(tx, new))
    await region.write(lambda tx: aggregates.save(tx, made))
    await region.write(lambda tx: aggregates.remove(tx, made.number))
    with pytest.raises(NotFound):
        await region.read(lambda tx: aggregates.get(tx, made.number))


async def test_conductors_by_host(region: Database) -> None:
    for name, host in (("c1", "one"), ("c2", "one"), ("c3", "two")):
        await region.write(
            lambda tx, name=name, host=host: conductors.take(tx, ConductorId(name), (), host, ["boot/1"])
        )  # type: ignore[misc]
    for gone in ("c1", "c3"):
        await region.write(lambda tx, gone=gone: conductors.retire(tx, ConductorId(gone)))  # type: ignore[misc]
    assert [(host, lives) for host, lives, _ in await region.read(conductors.listed)] == [("one", True), ("two", False)]
