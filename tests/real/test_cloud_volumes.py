"""The cloud's own tests of volumes, beside a real Cinder and a real Glance: the same words, and the same answers.

After each of them Cinder holds nothing at all: no attachment, reservation, export, snapshot, volume or file, and nothing is charged.
"""

from collections.abc import AsyncIterator
from types import ModuleType

import pytest
import pytest_asyncio
import test_volume_backed
import test_volume_forms
import test_volumes
import test_volumes_boot
import test_volumes_of_several
import test_volumes_swapped
from beside_cinder import RealRunning, SharedBesideCinder

from moorage.testing.peers.fixtures import RealService

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

TAKEN: dict[ModuleType, set[str]] = {
    test_volumes: set(),
    test_volumes_boot: {"test_a_host_that_fails_gives_its_volumes_to_the_next"},
    test_volume_backed: set(),
    test_volume_forms: {
        "test_a_back_end_that_fails_for_one_host_is_a_cause_and_the_next_is_tried",
        "test_no_host_can_be_reached",
    },
    test_volumes_of_several: set(),
    test_volumes_swapped: set(),
}
"""All tests of a module but these, which start clouds of their own."""

globals().update(
    {
        f"{module.__name__}_{name.removeprefix('test_')}": each
        for module, without in TAKEN.items()
        for name, each in vars(module).items()
        if name.startswith("test_") and each.__module__ == module.__name__ and name not in without
    }
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    tmp_path_factory: pytest.TempPathFactory, real_volume: RealService
) -> AsyncIterator[SharedBesideCinder]:
    cloud = SharedBesideCinder(tmp_path_factory.mktemp("shared"), real_volume.stack, {})
    yield cloud
    await cloud.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: SharedBesideCinder) -> AsyncIterator[RealRunning]:
    async with shared.for_a_test() as found:
        yield found
