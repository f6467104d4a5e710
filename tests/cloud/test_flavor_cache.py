"""Flavors cached for boots: never older than this process's own writes, and never the reason of a refusal."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.model.flavor import Flavor
from moorage.model.ids import FlavorId
from moorage.operations import flavor_cache
from moorage.operations.records import flavors as nouns
from moorage.sql import Database, open_database
from moorage.store.region import flavors
from moorage.store.region.tables import region_metadata

SMALL = Flavor(number=0, id=FlavorId("small"), name="m1.small", vcpus=1, ram_mib=64, disk_gib=1, created_at=1)


@pytest.fixture
async def region(tmp_path: Path) -> AsyncIterator[Database]:
    database = await open_database(f"sqlite:///{tmp_path / 'region.db'}", name="region")
    await database.create(region_metadata)
    yield database
    await database.close()


async def test_a_flavor_is_cached_until_this_process_writes(region: Database) -> None:
    await nouns.create(region, SMALL)
    assert flavor_cache.cached(region, "small") is None
    read = await flavor_cache.read(region, "small")
    assert read is not None
    assert flavor_cache.cached(region, "small") == read
    await nouns.set_specs(region, "small", {"hw:mem_page_size": "large"}, 2)
    assert flavor_cache.cached(region, "small") is None
    again = await flavor_cache.read(region, "small")
    assert again is not None
    assert again.extra_specs == {"hw:mem_page_size": "large"}


async def test_absent_flavors_are_not_cached(region: Database) -> None:
    assert await flavor_cache.read(region, "small") is None
    await region.write(lambda tx: flavors.add(tx, SMALL))  # another process made it
    assert await flavor_cache.read(region, "small") is not None


async def test_a_write_of_another_process_is_seen_within_a_second(
    region: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await nouns.create(region, SMALL)
    monkeypatch.setattr(flavor_cache, "KEPT_S", 0.0)
    await flavor_cache.read(region, "small")
    assert flavor_cache.cached(region, "small") is None


async def test_a_read_overtaken_by_a_write_is_not_cached(region: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await nouns.create(region, SMALL)
    slow = flavors.get

    def overtaken(tx: object, flavor: str) -> Flavor | None:
        found = slow(tx, flavor)  # type: ignore[arg-type]
        flavor_cache.forget(region)
        return found

    monkeypatch.setattr(flavor_cache.flavors, "get", overtaken)
    await flavor_cache.read(region, "small")
    assert flavor_cache.cached(region, "small") is None
