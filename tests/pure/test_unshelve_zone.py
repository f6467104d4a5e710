"""Where volumes and servers must be in one zone, a server is unshelved into the zone of its volumes only."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from moorage.model.errors import Conflict
from moorage.model.server import BlockDevice
from moorage.model.volume import Volume
from moorage.operations.shelve.accept_unshelve import UnshelveWish, check_volumes
from moorage_testing.fake_server_service import a_server

VOLUME = "0a1b2c3d-0000-4000-8000-000000000001"
SERVER = msgspec.structs.replace(a_server(), block_devices=(BlockDevice("volume", "volume", volume=VOLUME),))


def context(cross: bool) -> Any:
    async def show(volume: str) -> Volume:
        return Volume(id=volume, availability_zone="west")

    return SimpleNamespace(settings=SimpleNamespace(cross_az_attach=cross), volumes=SimpleNamespace(show=show))


async def test_a_zone_other_than_the_volumes_is_refused() -> None:
    with pytest.raises(Conflict, match="Specified availability zone is east") as refused:
        await check_volumes(context(cross=False), SERVER, UnshelveWish(zone="east"))
    assert VOLUME in refused.value.public


@pytest.mark.parametrize(
    ("cross", "wish"),
    [(True, UnshelveWish(zone="east")), (False, UnshelveWish(zone="west")), (False, UnshelveWish(zone=None)), (False, UnshelveWish())],
)  # fmt: skip
async def test_the_volumes_zone_is_ignored_when_attaching_across_zones_is_allowed(
    cross: bool, wish: UnshelveWish
) -> None:
    await check_volumes(context(cross), SERVER, wish)
