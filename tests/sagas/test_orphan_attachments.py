"""Attachments that no record lists: removed with two pieces of evidence, kept if a guest may write through them (RULES §22)."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from moorage.conductor.reconcilers.orphan_attachments import OrphanAttachments, OrphanAttachmentsDone
from moorage.model.ids import OperationId, ServerId
from moorage.model.volume import KEY, Attachment, NewVolume
from moorage.operations.delete.delete import Delete
from moorage.operations.registry import SAGAS
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.store.region import servers as region_servers
from moorage.store.region import volume_intents
from moorage_testing.region_fixture import SERVER, SmallRegion, a_server
from moorage_testing.region_states import with_volume
from moorage_testing.region_volumes import OTHER_VOLUME, VOLUME
from moorage_testing.saga_proof import PROVED_OPERATION

STRANGER = ServerId("0d0c0b0a-0000-4000-8000-00000000beef")


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    """A region with one ACTIVE server on host1 that has a volume, and that nobody holds."""
    region = await SmallRegion.open(tmp_path)
    await with_volume(region)
    await region.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    yield region
    await region.close()


def plant(small: SmallRegion, volume: str, status: str, host: str = "", server: str = SERVER) -> str:
    """An attachment that names a server."""
    made = Attachment(id=f"late-{volume}-{status}-{host}", volume=volume, server=server, status=status)
    small.volumes.attachments[made.id] = made
    if host:
        small.volumes.hosts[made.id] = host
    return made.id


async def run(small: SmallRegion) -> OrphanAttachmentsDone:
    return await OrphanAttachments(small.context).run()


async def test_orphan_attachments_already_fine(small: SmallRegion) -> None:
    before = small.volumes.held()
    assert await run(small) == OrphanAttachmentsDone(looked_at=1)
    assert small.volumes.held() == before


@pytest.mark.parametrize(("volume", "status", "host"), [
    (VOLUME, "reserved", ""),
    (OTHER_VOLUME, "reserved", ""),
    (OTHER_VOLUME, "attaching", "host1"),
    (OTHER_VOLUME, "attached", "host2"),
])  # fmt: skip
async def test_attachments_that_no_guest_can_use_are_removed(
    small: SmallRegion, volume: str, status: str, host: str
) -> None:
    late = plant(small, volume, status, host)
    assert (await run(small)).dropped == (late,)
    assert (await run(small)) == OrphanAttachmentsDone(looked_at=1)


@pytest.mark.parametrize(("volume", "status", "host"), [
    (VOLUME, "attaching", "host1"),
    (VOLUME, "attached", "host1"),
    (OTHER_VOLUME, "attached", "host1"),
])  # fmt: skip
async def test_attachments_that_a_guest_may_use_are_kept_and_reported(
    small: SmallRegion, volume: str, status: str, host: str
) -> None:
    late = plant(small, volume, status, host)
    done = await run(small)
    assert (done.dropped, done.amiss) == ((), (late,))
    assert late in small.volumes.attachments


async def test_an_export_to_another_host_is_removed_only_when_that_host_has_no_use_of_it(small: SmallRegion) -> None:
    """The record may be of an earlier time than the attachment, and the server's only guest may be there."""
    late = plant(small, OTHER_VOLUME, "attached", "host2")
    small.hosts.disks.add(("host2", SERVER, OTHER_VOLUME))
    assert (await run(small)).amiss == (late,)
    small.hosts.silent.add("host2")
    small.hosts.disks.discard(("host2", SERVER, OTHER_VOLUME))
    assert (await run(small)).amiss == (late,), "a host that does not answer has said nothing"
    small.hosts.silent.discard("host2")
    assert (await run(small)).dropped == (late,)


async def test_attachments_of_others_and_of_busy_servers_are_left_alone(small: SmallRegion) -> None:
    stranger = plant(small, OTHER_VOLUME, "attached", "host9", STRANGER)
    await small.hand_to(OperationId("at-work"))
    at_work = plant(small, VOLUME, "reserved")
    assert (await run(small)).dropped == ()
    assert {stranger, at_work} < small.volumes.attachments.keys()


async def test_attachments_and_owned_volumes_of_a_deleted_server_are_removed(small: SmallRegion) -> None:
    await with_volume(small, goes=True)
    kept = dict(small.volumes.attachments), dict(small.volumes.hosts), dict(small.volumes.volumes)
    delete = SAGAS["delete/4"]
    asked = Delete(a_server(operation=PROVED_OPERATION), 3, "req-delete")
    await execute(delete, PROVED_OPERATION, asked, small.context, MemoryJournal(first_lines(delete), small.transact))
    small.volumes.attachments, small.volumes.hosts, small.volumes.volumes = kept  # as a service that was restored
    assert len((await run(small)).dropped) == 1
    assert VOLUME not in small.volumes.volumes


async def test_volumes_of_a_boot_that_was_never_accepted_are_deleted(small: SmallRegion) -> None:
    made = await small.volumes.create(NewVolume(size_gib=1, metadata={KEY: STRANGER}), "", "")
    ours = await small.volumes.create(NewVolume(size_gib=1, metadata={KEY: SERVER}), "", "")
    await small.region.write(lambda tx: volume_intents.begin(tx, [STRANGER, SERVER], 1))
    await run(small)
    assert (made.id in small.volumes.volumes, ours.id in small.volumes.volumes) == (False, True)
    assert await small.region.read(lambda tx: volume_intents.old(tx, 2**60)) == []


async def test_effects_of_late_calls_are_repaired(small: SmallRegion) -> None:
    (ours,) = small.volumes.attachments.values()
    small.volumes.attachments[ours.id] = msgspec.structs.replace(ours, status="attaching")
    assert (await run(small)).mended == 1
    await small.volumes.begin_detaching(VOLUME)
    assert (await run(small)).mended == 1
    assert small.volumes.held()["volumes"][0] == (VOLUME, "in-use")
