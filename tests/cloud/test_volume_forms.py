"""Every form of a block device mapping that creates something: local disks, version 1, snapshots, blank volumes, types; and hosts to which a volume cannot be exported."""

from typing import Any

import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_shelve import until
from tests.cloud.test_volumes import attached, becomes, disks, held, running, status, volume

from moorage.cli.explain import _describe
from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Hosts
from moorage.model.errors import UnknownOutcome
from moorage.model.guest import GuestSpec
from moorage.model.ids import ServerId
from moorage.model.volume import UNREACHABLE
from moorage_testing.api_user import VERSION

pytestmark = pytest.mark.asyncio(loop_scope="module")
__all__ = ["running"]


def guest(running: Running, server: dict[str, Any]) -> GuestSpec:
    return running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]].spec_of(ServerId(server["id"]))


async def roomy(running: Running) -> str:
    """The name of a flavor with local disks of both kinds."""
    asked = {"name": "roomy", "ram": 64, "vcpus": 1, "disk": 1, "OS-FLV-EXT-DATA:ephemeral": 4, "swap": 512}
    reply = await running.admin.compute("POST", "/flavors", {"flavor": asked})
    assert reply.status_code in {200, 409}, reply.text
    return "roomy"


async def a_snapshot(running: Running, of: str) -> str:
    made = await running.admin.volume("POST", "/snapshots", {"snapshot": {"volume_id": of, "name": "s"}})
    assert made.status_code == 202, made.text
    found = str(made.json()["snapshot"]["id"])

    async def state() -> str:
        return str((await running.admin.volume("GET", f"/snapshots/{found}")).json()["snapshot"]["status"])

    await until(state, lambda seen: seen == "available")
    return found


async def image(running: Running) -> str:
    return await running.admin.id_of("image", "tiny")


async def test_local_disks_with_an_image(running: Running) -> None:
    root = {"source_type": "image", "destination_type": "local", "uuid": await image(running), "boot_index": 0}
    blank = {"source_type": "blank", "destination_type": "local", "boot_index": -1}
    devices = [{**root}, {**blank, "volume_size": 3}, {**blank, "guest_format": "swap", "volume_size": 256}]
    flavor = await roomy(running)
    server = await running.admin.active("a", flavor=flavor, block_device_mapping_v2=devices)
    spec = guest(running, server)
    assert (spec.root_gib, spec.ephemeral_gib, spec.swap_mib, spec.volumes) == (1, 3, 256, ())
    assert await attached(running, server["id"]) == []
    for wrong, says in (
        ([{**blank, "volume_size": 5}], "larger than the instance type allows"),
        ([{**blank, "guest_format": "swap", "volume_size": 513}], "larger than instance type allows"),
        ([{**blank, "guest_format": "swap"}] * 2, "More than one swap"),
        ([{**blank, "volume_size": 1}] * 3, "more local devices"),
    ):
        reply = await running.admin.ask_boot("b", flavor=flavor, block_device_mapping_v2=[root, *wrong])
        assert (reply.status_code, says in reply.text) == (400, True), reply.text


async def test_block_device_mapping_version_1(running: Running) -> None:
    bootable = await volume(running, imageRef=await image(running))
    data = await volume(running)
    devices: list[dict[str, Any]] = [
        {"device_name": "vda", "volume_id": bootable, "delete_on_termination": True},
        {"device_name": "/dev/vdc", "volume_id": data},
        {"device_name": "/dev/vdd", "virtual_name": "ephemeral0", "volume_size": 2},
    ]
    flavor = await roomy(running)
    server = await running.admin.active("a", flavor=flavor, imageRef="", block_device_mapping=devices)
    rows = {row["volumeId"]: row["device"] for row in await attached(running, server["id"])}
    assert rows == {bootable: "/dev/vda", data: "/dev/vdc"}
    assert disks(running, server) == [bootable, data]
    spec = guest(running, server)
    assert (spec.image, spec.root_gib, spec.ephemeral_gib) == (None, 0, 2)
    await running.admin.gone(server["id"])
    await becomes(running, bootable, "gone")
    assert await status(running, data) == "available"
    beside = [{"device_name": "/dev/vdb", "volume_id": data}]
    server = await running.admin.active("b", block_device_mapping=beside)
    assert guest(running, server).image == await image(running)
    assert disks(running, server) == [data]
    both: dict[str, Any] = {
        "block_device_mapping": beside,
        "block_device_mapping_v2": [{"source_type": "blank", "volume_size": 1}],
    }
    assert (await running.admin.ask_boot("c", **both)).status_code == 400


async def test_a_snapshot_becomes_the_root_and_a_blank_volume_of_a_type_the_data(running: Running) -> None:
    of = await volume(running, size=2, imageRef=await image(running))
    taken = await a_snapshot(running, of)
    made = await running.admin.volume("POST", "/types", {"volume_type": {"name": "fast"}})
    assert made.status_code == 200, made.text
    root = {"source_type": "snapshot", "destination_type": "volume", "uuid": taken, "boot_index": 0}
    blank = {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "boot_index": -1}
    devices = [{**root, "delete_on_termination": True}, {**blank, "volume_type": "fast", "delete_on_termination": True}]
    running.admin.http.headers["OpenStack-API-Version"] = "compute 2.66"
    reply = await running.admin.ask_boot("a", imageRef="", block_device_mapping_v2=devices)
    assert (reply.status_code, "volume_type" in reply.text) == (400, True), reply.text
    running.admin.http.headers["OpenStack-API-Version"] = "compute 2.67"
    booted = await running.admin.active("a", imageRef="", block_device_mapping_v2=devices)
    running.admin.http.headers["OpenStack-API-Version"] = f"compute {VERSION}"
    first, second = [each["volumeId"] for each in await attached(running, booted["id"])]
    shown = [(await running.admin.volume("GET", f"/volumes/{each}")).json()["volume"] for each in (first, second)]
    assert [(each["size"], each["snapshot_id"]) for each in shown] == [(2, taken), (1, None)]
    assert (shown[1]["volume_type"], shown[0]["bootable"]) == ("fast", "true")
    assert [each.boot_index for each in guest(running, booted).volumes] == [0, -1]
    older = {"device_name": "/dev/vda", "snapshot_id": taken, "delete_on_termination": True}
    again = await running.admin.active("b", imageRef="", block_device_mapping=[older])
    assert len(disks(running, again)) == 1
    for each in (booted, again):
        await running.admin.gone(each["id"])
    await becomes(running, first, "gone")
    assert (await running.admin.volume("DELETE", f"/snapshots/{taken}")).status_code == 202


def fails_to_export(running: Running, host: str) -> None:
    """The volume service's back end cannot export anything to this host, and says so by a 500."""
    volumes = running.cloud.region.context.volumes
    assert volumes is not None
    plain = volumes._volume.call

    async def call(method: str, path: str, **more: Any) -> Any:
        body = more.get("body") or {}
        if method == "PUT" and ((body.get("attachment") or {}).get("connector") or {}).get("host") == host:
            raise UnknownOutcome("The volume service failed.", private="500 the back end is down")
        return await plain(method, path, **more)

    volumes._volume.call = call  # type: ignore[method-assign]


TRIES_MAX = 40


async def test_a_back_end_failure_for_one_host_leads_to_the_next(start: Start) -> None:
    async with start(hosts=Hosts(count=2)) as running:
        fails, works = running.cloud.fleet.drivers
        fails_to_export(running, fails)
        causes: set[str] = set()
        for number in range(TRIES_MAX):  # which of the two hosts is tried first is drawn for each server
            if causes:
                break
            root = await volume(running, imageRef=await image(running))
            device = {"source_type": "volume", "destination_type": "volume", "uuid": root, "boot_index": 0}
            made = await running.admin.active(f"v{number}", imageRef="", block_device_mapping_v2=[device])
            assert made["OS-EXT-SRV-ATTR:host"] == works
            path = f"/ext/servers/{made['id']}/explain"
            answer = (await running.admin.compute("GET", path)).json()["explain"]
            if UNREACHABLE in str(answer):
                assert any(root in line for line in _describe(answer)), _describe(answer)
                causes.add(UNREACHABLE)
            (attachment,) = [each for each in await held(running) if each["instance"] == made["id"]]
            assert attachment["status"] == "attached"
            await running.admin.gone(made["id"])
            assert await status(running, root) == "available"
        assert causes == {UNREACHABLE}, "no boot was tried on the host that fails"


async def test_no_host_can_be_reached(start: Start) -> None:
    async with start(hosts=Hosts(count=2)) as running:
        running.set_faults_everywhere(
            volume_connector=VerbDial(fail_chance=1.0, says="no path to the storage", code=UNREACHABLE)
        )
        root = {"source_type": "image", "destination_type": "volume", "uuid": await image(running), "boot_index": 0}
        asked = {"imageRef": "", "block_device_mapping_v2": [{**root, "volume_size": 1}]}
        made = await running.admin.settled(await running.admin.boot("a", **asked))
        assert made["status"] == "ERROR"
        answer = (await running.admin.compute("GET", f"/ext/servers/{made['id']}/explain")).json()["explain"]
        assert UNREACHABLE in str(answer), answer
        for each in await running.admin.volumes():
            await becomes(running, each["id"], "gone")
        assert await held(running) == []
        await running.admin.gone(made["id"])
