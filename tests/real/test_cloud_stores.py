"""The cloud's own tests of volumes and images, with a real Cinder and a real Glance.

After each of them Cinder holds nothing at all: no attachment, reservation, export, snapshot, volume or file, and nothing is charged.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud import (
    test_multiattach_volumes,
    test_shelve,
    test_snapshots,
    test_volume_backed,
    test_volume_forms,
    test_volumes,
    test_volumes_boot,
    test_volumes_swapped,
)
from tests.cloud.test_snapshots import act, until
from tests.cloud.test_volumes import attach, attached, becomes, detach, disks, ended, held, volume
from tests.helpers.real_cinder_cloud import RealRunning, SharedCinderCloud

from moorage.conductor.reconcilers.orphan_images import OrphanImages
from moorage.drivers.fault_injection import VerbDial
from moorage.model.volume import UNREACHABLE
from moorage_testing.real_services.fixtures import RealService

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

WITH_CLOUDS_OF_THEIR_OWN = {
    "test_the_next_host_gets_the_volumes_of_a_failed_host",
    "test_a_back_end_failure_for_one_host_leads_to_the_next",
    "test_no_host_can_be_reached",
}
NOTHING_NEW = {
    "test_a_paused_server_before_2_85",
    "test_local_disks_with_an_image",
    "test_servers_that_do_not_run_are_copied_too",
}
"""What a real service has no part in, or no other than in the test beside it: each test takes it two seconds."""
OF_SHELVING = {
    "test_a_failed_shelve_leaves_the_server_unchanged",
    "test_an_unshelve_without_its_image_is_an_error",
}
"""What is about images; the rest is about ports, which there are none of here."""


def taken(module: ModuleType) -> dict[str, Any]:
    """Its tests, by names that say where they come from."""
    prefix = f"{module.__name__}_"
    return {
        prefix + name.removeprefix("test_"): each
        for name, each in vars(module).items()
        if name.startswith("test_")
        and each.__module__ == module.__name__
        and name not in WITH_CLOUDS_OF_THEIR_OWN | NOTHING_NEW
        and (module is not test_shelve or name in OF_SHELVING)
    }


for one in (
    test_volumes,
    test_volumes_boot,
    test_volume_backed,
    test_volume_forms,
    test_multiattach_volumes,
    test_volumes_swapped,
    test_snapshots,
    test_shelve,
):
    globals().update(taken(one))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    tmp_path_factory: pytest.TempPathFactory, real_volume: RealService
) -> AsyncIterator[SharedCinderCloud]:
    cloud = SharedCinderCloud(tmp_path_factory.mktemp("shared"), real_volume.stack, {})
    yield cloud
    await cloud.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: SharedCinderCloud) -> AsyncIterator[RealRunning]:
    async with shared.for_a_test() as found:
        yield found


# ------------------------------------------------------------------------------- what only a real one does, or asks


async def with_volume(running: RealRunning, **more: Any) -> tuple[dict[str, Any], str]:
    server, disk = await running.admin.active("a", **more), await volume(running)
    assert (await attach(running, server["id"], disk)).status_code == 202
    assert (await ended(running, server["id"], "attach_volume"))["message"] is None
    return server, disk


async def migration(running: RealRunning, disk: str) -> str:
    """Ask Cinder to move it to its other back end, which asks us for a swap; how that ended."""
    body = {"os-migrate_volume": {"host": OTHER_BACK_END, "force_host_copy": True}}
    await running.cinder.ok("POST", f"/volumes/{disk}/action", body)

    async def ended() -> str:
        shown = (await running.cinder.ok("GET", f"/volumes/{disk}"))["volume"]
        moves = str(shown["migration_status"])
        return moves if shown["status"] == "in-use" else f"{shown['status']}, {moves}"

    return str(await until(ended, lambda seen: seen in {"success", "error"}))


OTHER_BACK_END = "cinder@more#files"


async def test_cinder_moves_a_volume_under_a_running_server(running: RealRunning) -> None:
    server, disk = await with_volume(running)
    (before,) = await attached(running, server["id"])
    assert await migration(running, disk) == "success"
    assert (await ended(running, server["id"], "swap_volume"))["message"] is None
    (after,), (held_now,) = await attached(running, server["id"]), await held(running)
    assert (after["volumeId"], after["device"]) == (before["volumeId"], before["device"])
    assert (after["attachment_id"], held_now["status"]) == (held_now["id"], "attached")
    assert after["attachment_id"] != before["attachment_id"]
    shown = (await running.cinder.ok("GET", f"/volumes/{disk}"))["volume"]
    assert (shown["os-vol-host-attr:host"], disks(running, server)) == (OTHER_BACK_END, [disk])
    await until(lambda: running.cinder.every("volumes"), lambda seen: [each["id"] for each in seen] == [disk])
    assert len(running.cinder.exports()) == 1
    assert (await detach(running, server["id"], disk)).status_code == 202
    await becomes(running, disk, "available")
    assert running.cinder.exports() == []


async def test_a_move_that_the_host_cannot_make_leaves_the_volume_where_it_was(running: RealRunning) -> None:
    server, disk = await with_volume(running)
    (before,) = await attached(running, server["id"])
    running.set_faults_everywhere(swap_volume=VerbDial(fail_times=1, says="the copy failed"))
    assert await migration(running, disk) == "error"
    assert (await ended(running, server["id"], "swap_volume"))["message"] == "Error"
    assert await attached(running, server["id"]) == [before]
    await until(lambda: running.cinder.every("volumes"), lambda seen: [each["id"] for each in seen] == [disk])
    (left,) = await held(running)
    assert (left["id"], left["status"]) == (before["attachment_id"], "attached")
    assert running.cinder.exports() == [f"volume-{disk}@{server['OS-EXT-SRV-ATTR:host']}"]
    assert disks(running, server) == [disk]


async def test_its_owner_cannot_end_what_a_server_uses(running: RealRunning) -> None:
    """CVE-2023-2088: Cinder asks us, and a token of the owner's, even of an administrator, is not enough."""
    server, disk = await with_volume(running)
    (row,) = await attached(running, server["id"])
    actions: tuple[dict[str, Any], ...] = (
        {"os-detach": {"attachment_id": row["attachment_id"]}},
        {"os-terminate_connection": {"connector": {"host": server["OS-EXT-SRV-ATTR:host"]}}},
        {"os-force_detach": {"attachment_id": row["attachment_id"], "connector": {}}},
    )
    refused = [await running.admin.volume("DELETE", f"/attachments/{row['attachment_id']}")]
    refused += [await running.admin.volume("POST", f"/volumes/{disk}/action", each) for each in actions]
    assert [each.status_code for each in refused] == [409] * 4, [each.text for each in refused]
    assert await attached(running, server["id"]) == [row]
    await running.admin.gone(server["id"])
    assert await held(running) == []


@pytest.fixture
def no_way(running: RealRunning) -> Iterator[Callable[..., None]]:
    """The back end can export nothing to these hosts."""
    made: list[Path] = []

    def cut(*hosts: str) -> None:
        made.extend(running.cinder.files / "broken" / each for each in hosts)
        for each in made:
            each.touch()

    yield cut
    for each in made:
        each.unlink()


async def test_a_host_that_the_back_end_cannot_reach(running: RealRunning, no_way: Callable[..., None]) -> None:
    server, disk = await running.admin.active("a"), await volume(running)
    no_way(server["OS-EXT-SRV-ATTR:host"])
    assert (await attach(running, server["id"], disk)).status_code == 202
    action = await ended(running, server["id"], "attach_volume")
    assert (action["message"], "cannot be reached" in action["events"][-1]["details"]) == ("Error", True)
    await becomes(running, disk, "available")
    assert (await held(running), await attached(running, server["id"])) == ([], [])


async def test_only_one_host_is_reached(running: RealRunning, no_way: Callable[..., None]) -> None:
    works, *fail = sorted(running.cloud.fleet.drivers)
    no_way(*fail)
    root = await volume(running, imageRef=await running.admin.id_of("image", "tiny"))
    device = {"source_type": "volume", "destination_type": "volume", "uuid": root, "boot_index": 0}
    server = await running.admin.active("a", imageRef="", block_device_mapping_v2=[device])
    assert server["OS-EXT-SRV-ATTR:host"] == works
    assert running.cinder.exports() == [f"volume-{root}@{works}"]
    no_way(works)
    made = await running.admin.settled(await _boot_from_new(running))
    assert made["status"] == "ERROR"
    answer = (await running.admin.compute("GET", f"/ext/servers/{made['id']}/explain")).json()["explain"]
    assert UNREACHABLE in str(answer), answer
    await until(lambda: running.cinder.every("volumes"), lambda seen: [each["id"] for each in seen] == [root])


async def _boot_from_new(running: RealRunning) -> str:
    tiny = await running.admin.id_of("image", "tiny")
    root = {"source_type": "image", "destination_type": "volume", "uuid": tiny, "boot_index": 0, "volume_size": 1}
    return await running.admin.boot("b", imageRef="", block_device_mapping_v2=[root])


async def test_a_volume_that_is_gone_keeps_no_server(running: RealRunning) -> None:
    """Taken away behind our back, by who may."""
    server, disk = await with_volume(running)
    await running.cinder.empty()
    assert (await act(running, server["id"], {"shelve": None})).status_code == 202
    assert (await running.admin.settled(server["id"]))["status"] == "SHELVED_OFFLOADED"
    assert (await act(running, server["id"], {"unshelve": None})).status_code == 202
    seen = await running.admin.settled(server["id"])
    assert seen["status"] in {"SHELVED_OFFLOADED", "ERROR"}
    await running.admin.gone(server["id"])
    assert (await running.cinder.every("volumes"), disk in str(running.cinder.exports())) == ([], False)


async def test_an_image_that_a_request_left_half_made(running: RealRunning) -> None:
    """Its process died before it accepted the snapshot: by our key it is found, and the whole ones stay."""
    server = await running.admin.active("a")
    whole = await test_snapshots.snapshot(running, server["id"])
    url = f"{running.config.api.image.url}/v2/images"
    said = {"name": "half", "disk_format": "raw", "container_format": "bare"}
    said |= {"instance_uuid": server["id"], "moorage_made_for": "snapshot", "image_type": "snapshot"}
    half = (await running.admin.http.post(url, json=said)).json()["id"]
    assert (await OrphanImages(running.cloud.region.context).run()).deleted == ()
    assert (await OrphanImages(running.cloud.region.context, grace_s=0.0).run()).deleted == (half,)
    assert {each["id"] for each in await test_snapshots.images(running, instance_uuid=server["id"])} == {whole["id"]}
