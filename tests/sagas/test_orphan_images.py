"""Images that no operation fills or needs are deleted after a while, and no other image is."""

from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest

from moorage.conductor.reconcilers.orphan_images import GRACE_S, OrphanImages, OrphanImagesDone
from moorage.model.ids import CellId, ImageId, OperationId
from moorage.model.server import Server, Shelved
from moorage.model.volume import VolumeSnapshot
from moorage.operations.registry import SAGAS
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.cell import servers as cell_servers
from moorage.store.cell.servers import Fence
from moorage.store.region import servers as region_servers
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_fixture import SERVER, SmallRegion, a_boot, a_server

BOOT = OperationId("boot")
LATER = OperationId("later")


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    """A region with one ACTIVE server that nobody holds."""
    region = await SmallRegion.open()
    await region.fresh(a_server(), BOOT)
    boot = SAGAS["boot/1"]
    await execute(boot, BOOT, a_boot(BOOT), region.context, MemoryJournal(first_lines(boot), region.transact))
    yield region
    await region.close()


def plant(small: SmallRegion, image: str, made_for: str, *, whole: bool = False, server: str = SERVER) -> str:
    small.images.whole[image] = whole
    small.images.properties[image] = {"moorage_made_for": made_for, "instance_uuid": server}
    return image


async def rounds(small: SmallRegion, *waits_s: float) -> list[OrphanImagesDone]:
    clock = ManualClock()
    reconciler = OrphanImages(small.context, cast("Any", clock))
    done = [await reconciler.run()]
    for wait_s in waits_s:
        clock.now += wait_s
        done.append(await reconciler.run())
    return done


async def test_orphan_images_already_fine(small: SmallRegion) -> None:
    plant(small, "whole", "snapshot", whole=True)
    plant(small, "backup", "backup", whole=True)
    plant(small, "elsewhere", "snapshot", server="0d0c0b0a-0000-4000-8000-00000000beef")
    small.images.whole["users"] = False
    small.images.properties["users"] = {"instance_uuid": SERVER}
    before = dict(small.images.whole)
    done = await rounds(small, GRACE_S + 1)
    assert [each.deleted for each in done] == [(), ()]
    assert small.images.whole == before


@pytest.mark.parametrize("made_for", ["snapshot", "backup", "shelve", "resize"])
async def test_an_incomplete_image_without_an_operation_is_deleted_after_the_grace_time(
    small: SmallRegion, made_for: str
) -> None:
    plant(small, "half", made_for)
    early, between, late = await rounds(small, GRACE_S - 1, 2)
    assert (early.deleted, early.suspected, between.deleted) == ((), 1, ())
    assert late.deleted == ("half",)
    assert "half" not in small.images.whole


async def test_an_image_that_an_operation_fills_is_kept(small: SmallRegion) -> None:
    plant(small, "half", "snapshot")
    await small.hand_to(LATER)
    first, second = await rounds(small, GRACE_S + 1)
    assert (first.suspected, second.deleted) == (0, ())
    assert "half" in small.images.whole


async def test_a_shelved_disk_is_kept_while_the_record_names_it(small: SmallRegion) -> None:
    plant(small, "disk", "shelve", whole=True)
    plant(small, "older", "shelve", whole=True)
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    cell = CellId(str(where.cell))

    def shelved(server: Server) -> Server:
        return msgspec.structs.replace(server, shelved=Shelved(1, ImageId("disk")))

    fence = Fence(LATER, seq=1, epoch=2, line=1)
    await records.change(small.context, cell, SERVER, fence, shelved)
    done = await rounds(small, GRACE_S + 1)
    assert done[-1].deleted == ("older",)
    assert "disk" in small.images.whole


async def test_the_image_of_a_move_is_deleted_without_an_operation_on_its_server(small: SmallRegion) -> None:
    plant(small, "moved", "resize", whole=True)
    await small.hand_to(LATER)
    assert [each.deleted for each in await rounds(small, GRACE_S + 1)] == [(), ()]
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, LATER))
    assert [each.deleted for each in await rounds(small, GRACE_S + 1)] == [(), ("moved",)]
    assert "moved" not in small.images.whole


async def test_a_shelved_disk_is_kept_while_its_record_is_lost(small: SmallRegion) -> None:
    plant(small, "disk", "shelve", whole=True)
    for cell in small.cells.values():
        await cell.write(lambda tx: tx.run(cell_servers.servers.delete()))
    done = await rounds(small, GRACE_S + 1)
    assert [each.deleted for each in done] == [(), ()]


async def test_volume_snapshots_are_deleted_with_their_orphan_image(small: SmallRegion) -> None:
    for number, image in enumerate((plant(small, "half", "snapshot"), plant(small, "whole", "snapshot", whole=True))):
        taken = VolumeSnapshot(id=f"snapshot-{number}", volume="volume-1", status="available")
        small.volumes.snapshots[taken.id], small.volumes.made_for[taken.id] = taken, image
    await rounds(small, GRACE_S + 1)
    assert ("half" in small.images.whole, "whole" in small.images.whole) == (False, True)
    assert list(small.volumes.snapshots) == ["snapshot-1"]
