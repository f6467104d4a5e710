"""What a new cloud begins with, if its data directory does not exist yet."""

from pathlib import Path

import msgspec
import pytest

from moorage.main.config import Cell, Config
from moorage.main.databases import open_databases
from moorage.main.seed_data import FLAVORS, seed
from moorage.store.region import flavors


async def test_with_real_services_only_flavors_and_a_mark_are_seeded(tmp_path: Path) -> None:
    config = Config(data_dir=str(tmp_path / "made"), cells=(Cell("cell1"),))
    databases = await open_databases(config)
    fresh = msgspec.structs.replace(
        config, data_dir=str(tmp_path / "not yet")
    )  # databases are elsewhere, as PostgreSQL is
    try:
        assert await seed(fresh, databases.region, None, None, "")
        found = await databases.region.read(flavors.every)
        assert {each.name for each in found} == {name for _, name, *_ in FLAVORS}
        assert not await seed(fresh, databases.region, None, None, "")
    finally:
        await databases.close()


class Images:
    """Counts the images that are made."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def seed_image(self, name: str, _data: bytes, **_facts: object) -> None:
        self.names.append(name)


@pytest.mark.parametrize(("driver", "names"), [("simulated", ["tiny"]), ("libvirt", [])])
async def test_the_image_that_boots_nothing_is_not_made_for_real_guests(
    tmp_path: Path, driver: str, names: list[str]
) -> None:
    config = Config(data_dir=str(tmp_path / "made"), cells=(Cell("cell1"),))
    databases = await open_databases(config)
    agent = msgspec.structs.replace(config.agent, driver=driver)
    images = Images()
    try:
        fresh = msgspec.structs.replace(config, data_dir=str(tmp_path / "not yet"), agent=agent)
        assert await seed(fresh, databases.region, images, None, "")  # type: ignore[arg-type]
    finally:
        await databases.close()
    assert images.names == names
