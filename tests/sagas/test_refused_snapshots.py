"""A snapshot of a server's volumes that is refused half-way leaves nothing: what is still being made is waited for."""

import pytest

from moorage.model.errors import Invalid
from moorage.model.ids import ImageId
from moorage.model.volume import Snapshot
from moorage.operations import snapshot_volumes
from moorage.testing.small_region import SmallRegion

IMAGE = ImageId("image-1")


@pytest.mark.parametrize("refusals", [0, 3])
async def test_a_snapshot_that_is_being_made_goes_before_the_refusal_is_told(
    refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = await SmallRegion.open()
    small.images.whole[IMAGE] = False
    small.volumes.snapshots["snap"] = Snapshot(id="snap", volume="v", status="creating")
    small.volumes.made_for["snap"] = IMAGE
    delete, refused = small.volumes.delete_snapshot, list[str]()

    async def not_yet(snapshot: str) -> None:
        if len(refused) < refusals:
            refused.append(snapshot)
            raise Invalid("Snapshot status must be available or error.")
        await delete(snapshot)

    monkeypatch.setattr(small.volumes, "delete_snapshot", not_yet)
    await snapshot_volumes._give_up(small.rooms, IMAGE)
    assert len(refused) == refusals
    assert small.volumes.snapshots == {}
    assert IMAGE not in small.images.whole
    await small.close()
