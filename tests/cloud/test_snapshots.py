"""Images of servers in a whole cloud: the image has the data of the disk, and a failed snapshot leaves nothing."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared

from moorage.drivers.fault_injection import VerbDial
from moorage.model.ids import ServerId

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


PATIENCE_S = 180.0


async def until(look: Callable[[], Awaitable[Any]], good: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not good(seen := await look()):
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.05)
    return seen


async def act(running: Running, server: str, action: dict[str, Any], at: str = "2.104") -> Any:
    url = f"{running.config.api.compute.url}/v2.1/servers/{server}/action"
    return await running.admin.http.post(url, json=action, headers={"OpenStack-API-Version": f"compute {at}"})


async def image(running: Running, image: str) -> dict[str, Any] | None:
    reply = await running.admin.http.get(f"{running.config.api.image.url}/v2/images/{image}")
    return None if reply.status_code == 404 else dict(reply.json())


async def images(running: Running, **filters: str) -> list[dict[str, Any]]:
    reply = await running.admin.http.get(f"{running.config.api.image.url}/v2/images", params=filters)
    return list(reply.json()["images"])


async def data_of(running: Running, image: str) -> bytes:
    return (await running.admin.http.get(f"{running.config.api.image.url}/v2/images/{image}/file")).content


async def snapshot(running: Running, server: str, name: str = "copy", **more: Any) -> dict[str, Any]:
    """A whole image of the server."""
    reply = await act(running, server, {"createImage": {"name": name, **more}})
    assert reply.status_code == 202, reply.text
    made = reply.json()["image_id"]
    found = await until(lambda: image(running, made), lambda seen: seen is None or seen["status"] == "active")
    assert found is not None
    await running.admin.settled(server)
    return dict(found)


async def actions(running: Running, server: str) -> list[tuple[str, str | None]]:
    reply = await running.admin.compute("GET", f"/servers/{server}/os-instance-actions")
    return [(each["action"], each["message"]) for each in reply.json()["instanceActions"]]


def disk(running: Running, server: dict[str, Any]) -> bytes:
    return running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]].disk_of(ServerId(server["id"]))


def write(running: Running, server: dict[str, Any], text: str) -> None:
    running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]].write_disk(ServerId(server["id"]), text)


async def test_an_image_has_the_disks_data_and_boots(running: Running) -> None:
    server = await running.admin.active("a")
    write(running, server, "a letter\n")
    made = await snapshot(running, server["id"], metadata={"why": "because"})
    whole = disk(running, server)
    assert whole.endswith(b"a letter\n")
    assert whole.startswith(b"Moorage's small image")
    assert await data_of(running, made["id"]) == whole
    assert (made["disk_format"], made["container_format"], made["visibility"]) == ("raw", "bare", "private")
    assert (made["instance_uuid"], made["image_type"], made["why"]) == (server["id"], "snapshot", "because")
    assert (made["base_image_ref"], made["min_disk"]) == (server["image"]["id"], 1)
    assert (made["owner"], made["owner_user_name"]) == (running.admin.project, running.admin.user)
    assert made["moorage_made_for"] == "snapshot"
    second = await running.admin.active("b", imageRef=made["id"])
    assert disk(running, second) == whole
    again = await snapshot(running, second["id"])
    assert again["base_image_ref"] == server["image"]["id"]
    assert ("createImage", None) in await actions(running, server["id"])
    for each in (server, second):
        await running.admin.gone(each["id"])
    assert await data_of(running, made["id"]) == whole


@pytest.mark.parametrize("verb", ["os-stop", "pause", "suspend"])
async def test_servers_that_do_not_run_are_copied_too(running: Running, verb: str) -> None:
    server = await running.admin.active("a")
    before = (await running.admin.server(server["id"]) or {})["status"]
    assert (await act(running, server["id"], {verb: None})).status_code == 202
    stopped = await until(lambda: running.admin.settled(server["id"]), lambda seen: seen["status"] != before)
    made = await snapshot(running, server["id"])
    assert made["status"] == "active"
    assert (await running.admin.settled(server["id"]))["status"] == stopped["status"]


async def test_older_versions_return_the_image_in_a_header(running: Running) -> None:
    server = await running.admin.active("a")
    reply = await act(running, server["id"], {"createImage": {"name": "x"}}, "2.44")
    assert (reply.status_code, reply.content) == (202, b"")
    made = reply.headers["Location"].removeprefix(f"{running.config.api.image.url}/images/")
    await until(lambda: image(running, made), lambda seen: seen["status"] == "active")
    await running.admin.settled(server["id"])
    reply = await act(
        running, server["id"], {"createBackup": {"name": "x", "backup_type": "d", "rotation": "1"}}, "2.1"
    )
    assert reply.status_code == 202
    assert "/images/" in reply.headers["Location"]
    await running.admin.settled(server["id"])
    many = {f"key{number}": "x" for number in range(129)}
    reply = await act(running, server["id"], {"createImage": {"name": "x", "metadata": many}}, "2.38")
    assert (reply.status_code, reply.json()["forbidden"]["message"]) == (403, "Image metadata limit exceeded")


async def test_backups_are_rotated(running: Running) -> None:
    server = await running.admin.active("a")
    kept = await snapshot(running, server["id"])
    made: list[str] = []
    for name in ("one", "two", "three"):
        body = {"name": name, "backup_type": "daily", "rotation": 2}
        reply = await act(running, server["id"], {"createBackup": body})
        assert reply.status_code == 202, reply.text
        made.append(reply.json()["image_id"])
        await until(lambda: image(running, made[-1]), lambda seen: seen["status"] == "active")
        await running.admin.settled(server["id"])
    await running.wait_until_unlocked(server["id"])  # the oldest goes when the server is at rest already
    left = await images(running, image_type="backup")
    assert {each["id"] for each in left} == set(made[1:])
    assert {each["backup_type"] for each in left} == {"daily"}
    body = {"name": "none", "backup_type": "daily", "rotation": 0}
    assert (await act(running, server["id"], {"createBackup": body})).status_code == 202
    await until(lambda: images(running, image_type="backup"), lambda seen: not seen)
    assert await image(running, kept["id"]) is not None
    assert ("createBackup", None) in await actions(running, server["id"])


@pytest.mark.parametrize("verb", ["take_snapshot", "upload_snapshot"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failed_copy_leaves_nothing(running: Running, verb: str, when: Any) -> None:
    server = await running.admin.active("a")
    running.set_faults_everywhere(**{verb: VerbDial(fail_times=1, fail_when=when)})
    reply = await act(running, server["id"], {"createImage": {"name": "x"}})
    made = reply.json()["image_id"]
    await until(lambda: image(running, made), lambda seen: seen is None)
    assert (await running.admin.settled(server["id"]))["status"] == "ACTIVE"
    assert await actions(running, server["id"]) == [("createImage", "Error"), ("create", None)]
    assert not list(running.config.data.glob("hosts/*/snapshots/*"))
    assert (await snapshot(running, server["id"]))["status"] == "active"
    assert not list(running.config.data.glob("hosts/*/snapshots/*"))


async def test_a_delete_does_not_wait_for_the_copy(running: Running) -> None:
    server = await running.admin.active("a")
    running.set_faults_everywhere(upload_snapshot=VerbDial(fail_times=1, hang="before"))
    made = (await act(running, server["id"], {"createImage": {"name": "x"}})).json()["image_id"]

    async def task() -> Any:
        return (await running.admin.server(server["id"]) or {})["OS-EXT-STS:task_state"]

    await until(task, lambda seen: seen == "image_uploading")
    driver = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]
    await until(lambda: asyncio.sleep(0, driver.hanging("upload_snapshot")), lambda seen: seen == 1)
    await running.admin.gone(server["id"], PATIENCE_S)
    await until(lambda: image(running, made), lambda seen: seen is None)


async def test_a_quiesced_disk_is_not_copied_while_it_is_written(running: Running) -> None:
    url = running.config.api.image.url
    wanted = {"name": "still", "disk_format": "raw", "container_format": "bare"}
    wanted |= {"hw_qemu_guest_agent": "yes", "os_require_quiesce": "yes"}
    still = (await running.admin.http.post(f"{url}/v2/images", json=wanted)).json()["id"]
    stream = {"Content-Type": "application/octet-stream"}
    await running.admin.http.put(f"{url}/v2/images/{still}/file", content=b"still", headers=stream)
    server = await running.admin.active("a", imageRef=still)
    running.set_faults_everywhere(quiesce=VerbDial(fail_times=1))
    made = (await act(running, server["id"], {"createImage": {"name": "x"}})).json()["image_id"]
    await until(lambda: image(running, made), lambda seen: seen is None)
    await running.admin.settled(server["id"])
    found = await snapshot(running, server["id"])
    assert (found["os_require_quiesce"], await data_of(running, found["id"])) == ("yes", b"still")


async def test_a_refused_snapshot_leaves_no_image(running: Running) -> None:
    server = await running.admin.active("a")
    body: dict[str, Any] = {"createImage": {"name": "x"}}
    assert (await act(running, "00000000-0000-4000-8000-000000000000", body)).status_code == 404
    malformed: tuple[dict[str, Any], ...] = (
        {"createImage": {"name": ""}},
        {"createImage": {}},
        {"createImage": {"name": "x", "a": 1}},
    )
    for wrong in malformed:
        assert (await act(running, server["id"], wrong)).status_code == 400
    off = running.delay_verb("power_off")
    assert (await act(running, server["id"], {"os-stop": None})).status_code == 202
    reply = await act(running, server["id"], body)
    assert reply.status_code == 409
    assert "task_state powering-off" in reply.json()["conflictingRequest"]["message"]
    assert not await images(running, image_type="snapshot")
    off.set()
    await running.admin.settled(server["id"])
