"""The cloud's own tests of moves with volumes, with a real Cinder: both ends of a live migration, a resize, a dead host.

After each of them Cinder holds nothing at all, and what is in use is exported to one host alone.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.cloud import test_evacuate, test_live_migration, test_resize
from tests.cloud.conftest import Running
from tests.helpers.real_cinder_cloud import RealRunning, SharedCinderCloud

from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations
from moorage.conductor.reconcilers.orphan_attachments import OrphanAttachments
from moorage.main.config import Compute, Hosts
from moorage_testing.real_services.fixtures import RealService

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]
CLOUD = {
    "compute": Compute(vif_plugging_timeout=0, host_silence_s=10.0, fence_plugin="simulated"),
    "hosts": Hosts(count=4, beat_s=0.5),
}

test_live_migrated = test_live_migration.test_volumes_are_exported_to_both_hosts_during_the_migration
test_resized = test_resize.test_volumes_move_with_their_server
test_evacuated = test_evacuate.test_volumes_are_evacuated_with_the_fence_plug_in


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    tmp_path_factory: pytest.TempPathFactory, real_volume: RealService
) -> AsyncIterator[SharedCinderCloud]:
    cloud = SharedCinderCloud(tmp_path_factory.mktemp("shared"), real_volume.stack, CLOUD)
    yield cloud
    await cloud.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: SharedCinderCloud, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RealRunning]:
    for module in (test_live_migration, test_resize, test_evacuate):
        monkeypatch.setattr(module, "assert_nothing_to_repair", assert_nothing_to_repair)
    async with shared.for_a_test() as found:
        yield found


async def assert_nothing_to_repair(running: Running) -> None:
    """No round of the reconcilers finds anything; a flat network has no ports that could be amiss."""
    context = running.cloud.region.context
    claims = await OrphanAllocations(context).run()
    assert (claims.released, claims.drifted) == ((), 0)
    attachments = await OrphanAttachments(context).run()
    assert (attachments.dropped, attachments.amiss, attachments.mended) == ((), (), 0)
