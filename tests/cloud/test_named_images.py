"""Images, volumes and snapshots that an image's properties name are looked at as the caller, and no other reaches a host."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared
from tests.cloud.test_rebuild import guest, rebuild, second_image

from moorage.operations.named_images import NAMED
from moorage.operations.steps.guests import guest_of
from moorage_testing.fake_server_service import a_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
NOT_A_KERNEL = "11111111-2222-4333-8444-555555555555"


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


async def image_of(running: Running, person: Any, **fields: Any) -> str:
    """An active image of a person's own project."""
    url = f"{running.config.api.image.url}/v2/images"
    new = {"name": "own", "disk_format": "raw", "container_format": "bare", **fields}
    made = await person.http.post(url, json=new)
    made.raise_for_status()
    headers = {"Content-Type": "application/octet-stream"}
    sent = await person.http.put(f"{url}/{made.json()['id']}/file", content=b"\0" * 512, headers=headers)
    sent.raise_for_status()
    return str(made.json()["id"])


def _properties(name: str, foreign: str) -> dict[str, str]:
    """What a property looks like that names somebody else's image, volume or snapshot."""
    if name in NAMED:
        return {name: foreign}
    source = name.partition(":")[2]
    row = {"source_type": source, f"{source}_id": foreign, "destination_type": "volume", "boot_index": 0}
    return {"bdm_v2": "true", "block_device_mapping": json.dumps([{**row, "volume_size": 1}])}


IN_MAPPINGS = [f"block_device_mapping:{source}" for source in ("image", "volume", "snapshot")]


@pytest.mark.parametrize("name", [*NAMED, *IN_MAPPINGS])
async def test_what_a_property_names_has_to_be_the_callers_to_see(running: Running, name: str) -> None:
    theirs = await second_image(running, "payroll", visibility="private")
    async with running.person("demo", "demo") as demo:
        url = f"{running.config.api.image.url}/v2/images"
        assert (await demo.http.get(f"{url}/{theirs}")).status_code == 404
        mine = await image_of(running, demo, **_properties(name, theirs))
        server = await demo.active("own", networks="none")
        for body in (
            {"rescue": {"rescue_image_ref": mine}},
            *([{"rebuild": {"imageRef": mine}}] if name in NAMED else []),  # a rebuild does not read the mapping
        ):
            answer = await demo.compute("POST", f"/servers/{server['id']}/action", body)
            assert answer.status_code == 400, answer.text
        boot = {"name": "x", "flavorRef": server["flavor"].get("id") or "1", "imageRef": mine, "networks": "none"}
        answer = await demo.compute("POST", "/servers", {"server": boot})
        assert answer.status_code == 400, answer.text
        assert theirs in answer.text, "the sentence names the id"
        assert (await demo.settled(server["id"]))["status"] == "ACTIVE"
        await demo.gone(server["id"])


async def test_a_rescue_uses_the_callers_own_kernel_and_ram_disk(running: Running) -> None:
    async with running.person("demo", "demo") as demo:
        kernel = await image_of(running, demo, disk_format="aki", container_format="aki")
        ramdisk = await image_of(running, demo, disk_format="ari", container_format="ari")
        mine = await image_of(running, demo, kernel_id=kernel, ramdisk_id=ramdisk)
        server = await demo.active("own", networks="none")
        for sent in ({"kernel_id": kernel, "ramdisk_id": ramdisk},):
            answer = await demo.compute(
                "POST", f"/servers/{server['id']}/action", {"rescue": {"rescue_image_ref": mine}}
            )
            assert answer.status_code == 200, answer.text
            await demo.settled(server["id"])
            shown = (await running.admin.server(server["id"])) or {}
            named = {key: value for key, value in guest(running, shown).rescue.properties.items() if key in NAMED}
            assert named == sent
        await demo.gone(server["id"])


async def test_a_guest_boots_the_kernel_and_the_ram_disk_of_its_image(running: Running) -> None:
    async with running.person("demo", "demo") as demo:
        kernel = await image_of(running, demo, disk_format="aki", container_format="aki")
        ramdisk = await image_of(running, demo, disk_format="ari", container_format="ari")
        both = await image_of(running, demo, kernel_id=kernel, ramdisk_id=ramdisk)
        none = await image_of(running, demo, kernel_id="nokernel", ramdisk_id=NOT_A_KERNEL)
        server = await demo.active("own", networks="none", imageRef=both)
        await boots(running, server["id"], kernel, ramdisk)
        for image, booted in ((none, (None, None)), (both, (kernel, ramdisk))):
            act = {"rebuild": {"imageRef": image}}
            assert (await demo.compute("POST", f"/servers/{server['id']}/action", act)).status_code == 202
            assert (await demo.settled(server["id"]))["status"] == "ACTIVE"
            await boots(running, server["id"], *booted)
        await demo.gone(server["id"])


async def boots(running: Running, server: str, kernel: str | None, ramdisk: str | None) -> None:
    shown = await running.admin.server(server) or {}
    spec = guest(running, shown).spec
    assert (spec.kernel, spec.ramdisk) == (kernel, ramdisk)
    assert [shown[f"OS-EXT-SRV-ATTR:{each}"] for each in NAMED] == [kernel or "", ramdisk or ""]


async def test_a_server_of_an_earlier_release_has_no_host_read_what_nobody_looked_at() -> None:
    earlier = a_server(kernel_id="k", ramdisk_id="r")
    assert guest_of(earlier, {}, (), "nova").kernel is None
    now = guest_of(msgspec.structs.replace(earlier, kernel_checked=True), {}, (), "nova")
    assert (now.kernel, now.ramdisk) == ("k", "r")


async def test_no_kernel_means_none_of_the_two(running: Running) -> None:
    mine = await second_image(running, "none", kernel_id="nokernel", ramdisk_id=NOT_A_KERNEL)
    server = await running.admin.active("own", networks="none")
    act = {"rescue": {"rescue_image_ref": mine}}
    assert (await running.admin.compute("POST", f"/servers/{server['id']}/action", act)).status_code == 200
    after = await running.admin.settled(server["id"])
    assert not set(NAMED) & set(guest(running, after).rescue.properties)
    await running.admin.gone(server["id"])


async def test_an_administrator_lends_no_owner_what_it_sees(running: Running) -> None:
    """The owner's image names a private image of the administrator's project, and the administrator rescues with it."""
    theirs = await second_image(running, "payroll", visibility="private")
    async with running.person("demo", "demo") as demo:
        mine = await image_of(running, demo, kernel_id=theirs)
        server = await demo.active("own", networks="none")
        act = {"rescue": {"rescue_image_ref": mine}}
        answer = await running.admin.compute("POST", f"/servers/{server['id']}/action", act)
        assert answer.status_code == 400, answer.text
        await demo.gone(server["id"])


async def test_a_rebuild_looks_at_what_the_new_image_names(running: Running) -> None:
    server = await running.admin.active("own", networks="none")
    image = await second_image(running, "broken", kernel_id=NOT_A_KERNEL)
    assert (await rebuild(running, server["id"], image)).status_code == 400
    await running.admin.gone(server["id"])
