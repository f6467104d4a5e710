"""A snapshot of a server's volumes that is refused half-way leaves nothing: unfinished snapshots are waited for."""

from contextlib import nullcontext

import msgspec
import pytest

from moorage.model.errors import Invalid
from moorage.model.ids import ImageId
from moorage.model.volume import VolumeSnapshot
from moorage.operations.images import snapshot_volumes
from moorage.operations.registry import SAGAS
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage_testing.region_fixture import SmallRegion
from moorage_testing.region_states import IMAGE as COPY
from moorage_testing.region_states import snapshotting_still, with_still_guest
from moorage_testing.saga_proof import PROVED_OPERATION

IMAGE = ImageId("image-1")


@pytest.mark.parametrize("refusals", [0, 3])
async def test_a_snapshot_under_way_is_deleted_before_the_refusal(
    refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = await SmallRegion.open()
    small.images.whole[IMAGE] = False
    small.volumes.snapshots["snap"] = VolumeSnapshot(id="snap", volume="v", status="creating")
    small.volumes.made_for["snap"] = IMAGE
    delete, refused = small.volumes.delete_snapshot, list[str]()

    async def not_yet(snapshot: str) -> None:
        if len(refused) < refusals:
            refused.append(snapshot)
            raise Invalid("Snapshot status must be available or error.")
        await delete(snapshot)

    monkeypatch.setattr(small.volumes, "delete_snapshot", not_yet)
    await snapshot_volumes._give_up(small.context, IMAGE)
    assert len(refused) == refusals
    assert small.volumes.snapshots == {}
    assert IMAGE not in small.images.whole
    await small.close()


async def test_a_guest_thawed_too_early_leaves_no_image_if_quiescing_was_required() -> None:
    """Its host let it go meanwhile; without the need to be still, the image is made all the same."""
    for needed in (True, False):
        small = await SmallRegion.open()
        await with_still_guest(small)
        asked = snapshotting_still()
        if not needed:
            server = msgspec.structs.replace(asked.server, image_properties={"hw_qemu_guest_agent": "yes"})
            asked = msgspec.structs.replace(asked, server=server)
        small.hosts.still.clear()
        saga = SAGAS["snapshot_volumes/2"]
        with pytest.raises(Unwound, match="not quiesced") if needed else nullcontext():
            await execute(
                saga, PROVED_OPERATION, asked, small.context, MemoryJournal(first_lines(saga), small.transact)
            )
        assert (COPY in small.images.whole) is not needed
        assert bool(small.volumes.snapshots) is not needed
        await small.close()
