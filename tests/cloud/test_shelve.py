"""Shelving in a whole cloud: an offloaded server has only its ports and addresses, and returns with its disk."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start
from typing_extensions import override

from moorage.conductor.reconcilers.offload_shelved import OffloadShelved
from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations
from moorage.conductor.reconcilers.orphan_images import OrphanImages
from moorage.conductor.reconcilers.orphan_ports import OrphanPorts
from moorage.conductor.reconcilers.port_drift import PortDrift
from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Compute, Hosts
from moorage.main.seed_data import ROUTED
from moorage.model.clock import SystemClock
from moorage.model.ids import ServerId
from moorage.model.resources import IPV4_ADDRESS
from moorage.store.region.placement import claim_statements

PATIENCE_S = 180.0
Looked = Callable[[], Awaitable[Any]]


class AheadClock(SystemClock):
    """An hour ahead."""

    @override
    def now(self) -> float:
        return super().now() + 3601


async def until(look: Looked, good: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not good(seen := await look()):
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.05)
    return seen


async def act(running: Running, server: str, action: dict[str, Any], at: str = "2.104", by: Any = None) -> Any:
    url = f"{running.config.api.compute.url}/v2.1/servers/{server}/action"
    http = (by or running.admin).http
    return await http.post(url, json=action, headers={"OpenStack-API-Version": f"compute {at}"})


async def failure(running: Running, server: str) -> Any:
    """What the newest action says of its events, to those who may see details."""
    path = f"/servers/{server}/os-instance-actions"
    newest = (await running.admin.compute("GET", path)).json()["instanceActions"][0]
    answer = (await running.admin.compute("GET", f"{path}/{newest['request_id']}")).json()["instanceAction"]
    return [each.get("details") for each in answer["events"]]


async def done(running: Running, server: str, action: dict[str, Any], status: str) -> dict[str, Any]:
    """The server, when it came to that status."""
    reply = await act(running, server, action)
    assert reply.status_code == 202, reply.text
    seen = await running.admin.settled(server, PATIENCE_S)
    await running.wait_until_unlocked(server)
    assert seen["status"] == status, await failure(running, server)
    return dict(seen)


async def images(running: Running) -> list[dict[str, Any]]:
    url = f"{running.config.api.image.url}/v2/images"
    return list((await running.admin.http.get(url, params={"moorage_made_for": "shelve"})).json()["images"])


async def held(running: Running, server: str) -> dict[str, int]:
    """What it holds, by class."""
    rows = await running.cloud.region.databases.region.read(lambda tx: claim_statements.held(tx, server))
    found: dict[str, int] = {}
    for (_, resource), amount in rows.items():
        found[resource] = found.get(resource, 0) + amount
    return found


async def ports(running: Running, server: str) -> list[dict[str, Any]]:
    return list((await running.admin.network("GET", "/ports", device_id=server)).json()["ports"])


async def actions(running: Running, server: str) -> list[tuple[str, str | None]]:
    reply = await running.admin.compute("GET", f"/servers/{server}/os-instance-actions")
    return [(each["action"], each["message"]) for each in reply.json()["instanceActions"]]


def guests(running: Running, server: str) -> list[str]:
    drivers = running.cloud.fleet.drivers
    return [host for host, driver in drivers.items() if driver.power_of(ServerId(server)).name != "NOSTATE"]


def neighbours_of(running: Running, host: str) -> list[str]:
    """All hosts of its cell."""
    cells = {plan.host: plan.cell for plan in running.cloud.plans}
    return [each for each, cell in cells.items() if cell == cells[host]]


def disk(running: Running, server: dict[str, Any]) -> bytes:
    return running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]].disk_of(ServerId(server["id"]))


@pytest.mark.parametrize("network", ["private", ROUTED])
async def test_a_server_is_offloaded_and_unshelved(running: Running, network: str) -> None:
    server = await running.admin.active("a", networks=network)
    running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]].write_disk(ServerId(server["id"]), "a letter\n")
    before, whole = (await ports(running, server["id"]))[0], disk(running, server)
    gone = await done(running, server["id"], {"shelve": None}, "SHELVED_OFFLOADED")
    assert (gone["OS-EXT-SRV-ATTR:host"], gone["OS-EXT-AZ:availability_zone"]) == (None, "")
    assert gone["OS-EXT-STS:power_state"] == 4
    assert gone["image"]["id"] == server["image"]["id"]
    assert gone["addresses"] == server["addresses"]
    assert guests(running, server["id"]) == []
    assert await held(running, server["id"]) == ({IPV4_ADDRESS: 1} if network == ROUTED else {})
    (port,) = await ports(running, server["id"])
    assert (port["binding:host_id"], port["device_id"]) == ("", server["id"])
    assert port["device_owner"] == before["device_owner"]
    assert port["fixed_ips"] == before["fixed_ips"]
    (image,) = await images(running)
    assert (image["name"], image["status"], image["instance_uuid"]) == ("a-shelved", "active", server["id"])
    back = await done(running, server["id"], {"unshelve": None}, "ACTIVE")
    assert back["OS-EXT-SRV-ATTR:host"] in guests(running, server["id"])
    assert back["addresses"] == server["addresses"]
    assert back["image"]["id"] == server["image"]["id"]
    assert disk(running, back) == whole
    assert (await held(running, server["id"]))["VCPU"] == 1
    assert (await ports(running, server["id"]))[0]["binding:host_id"] == back["OS-EXT-SRV-ATTR:host"]
    await until(lambda: images(running), lambda seen: not seen)
    wanted = [("unshelve", None), ("shelve", None), ("create", None)]
    assert await actions(running, server["id"]) == wanted


async def test_the_address_of_an_offloaded_server_stays_reserved(start: Start) -> None:
    """A segment has four addresses: three others and the shelved one."""
    async with start(hosts=Hosts(count=2, physical_networks=(("physnet1",),))) as running:
        first = await running.admin.active("a", networks=ROUTED)
        await done(running, first["id"], {"shelve": None}, "SHELVED_OFFLOADED")
        for each in ("b", "c", "d"):
            await running.admin.active(each, networks=ROUTED)
        full = await running.admin.settled(await running.admin.boot("e", networks=ROUTED))
        assert full["status"] == "ERROR"
        back = await done(running, first["id"], {"unshelve": None}, "ACTIVE")
        assert back["addresses"] == first["addresses"]


@pytest.mark.parametrize("verb", ["os-stop", "pause", "suspend"])
async def test_a_stopped_server_is_shelved(running: Running, verb: str) -> None:
    server = await running.admin.active("a")
    await act(running, server["id"], {verb: None})
    await running.admin.settled(server["id"])
    await done(running, server["id"], {"shelve": None}, "SHELVED_OFFLOADED")
    await done(running, server["id"], {"unshelve": None}, "ACTIVE")


async def test_a_shelved_server_stays_on_its_host_for_the_configured_time(start: Start) -> None:
    async with start(compute=Compute(shelved_offload_time=-1)) as running:
        server = await running.admin.active("a")
        shelved = await done(running, server["id"], {"shelve": None}, "SHELVED")
        assert shelved["OS-EXT-SRV-ATTR:host"] == server["OS-EXT-SRV-ATTR:host"]
        assert shelved["OS-EXT-STS:power_state"] == 4
        assert (await held(running, server["id"]))["VCPU"] == 1
        back = await done(running, server["id"], {"unshelve": None}, "ACTIVE")
        assert back["OS-EXT-SRV-ATTR:host"] == server["OS-EXT-SRV-ATTR:host"]
        await until(lambda: images(running), lambda seen: not seen)
        await done(running, server["id"], {"shelve": None}, "SHELVED")
        async with running.person("demo", "demo") as demo:
            assert (await act(running, server["id"], {"shelveOffload": None}, by=demo)).status_code == 404
        gone = await done(running, server["id"], {"shelveOffload": None}, "SHELVED_OFFLOADED")
        assert gone["OS-EXT-SRV-ATTR:host"] is None
        assert (await act(running, server["id"], {"shelveOffload": None})).status_code == 409
        assert (await actions(running, server["id"]))[0] == ("shelveOffload", None)
        await running.admin.gone(server["id"])
        await until(lambda: images(running), lambda seen: not seen)


async def test_a_shelved_server_leaves_when_its_time_is_over(start: Start) -> None:
    async with start(compute=Compute(shelved_offload_time=3600)) as running:
        server = await running.admin.active("a")
        await done(running, server["id"], {"shelve": None}, "SHELVED")
        context, clock = running.cloud.region.context, AheadClock()
        assert (await OffloadShelved(context).run()).begun == ()
        assert (await OffloadShelved(context, clock).run()).begun == (server["id"],)
        await until(lambda: running.admin.settled(server["id"]), lambda seen: seen["status"] == "SHELVED_OFFLOADED")
        assert (await OffloadShelved(context, clock).run()).looked_at == 0
        await done(running, server["id"], {"unshelve": None}, "ACTIVE")


async def test_a_server_whose_image_is_gone_is_not_offloaded(start: Start) -> None:
    async with start(compute=Compute(shelved_offload_time=-1)) as running:
        server = await running.admin.active("a")
        await done(running, server["id"], {"shelve": None}, "SHELVED")
        (image,) = await images(running)
        await running.admin.http.delete(f"{running.config.api.image.url}/v2/images/{image['id']}")
        await done(running, server["id"], {"shelveOffload": None}, "SHELVED")
        assert (await actions(running, server["id"]))[0] == ("shelveOffload", "Error")
        assert guests(running, server["id"]) == [server["OS-EXT-SRV-ATTR:host"]]
        await done(running, server["id"], {"unshelve": None}, "ACTIVE")


async def test_an_unshelve_without_its_image_is_an_error(running: Running) -> None:
    server = await running.admin.active("a")
    await done(running, server["id"], {"shelve": None}, "SHELVED_OFFLOADED")
    (image,) = await images(running)
    await running.admin.http.delete(f"{running.config.api.image.url}/v2/images/{image['id']}")
    seen = await done(running, server["id"], {"unshelve": None}, "ERROR")
    assert seen["fault"]["message"] == f"Unshelve attempted but the image {image['id']} cannot be found."
    await running.admin.gone(server["id"])


@pytest.mark.parametrize("verb", ["power_off", "take_snapshot", "upload_snapshot"])
async def test_a_failed_shelve_leaves_the_server_unchanged(running: Running, verb: str) -> None:
    server = await running.admin.active("a")
    running.set_faults_everywhere(**{verb: VerbDial(fail_times=1, fail_when="after")})
    back = await done(running, server["id"], {"shelve": None}, "ACTIVE")
    assert back["OS-EXT-SRV-ATTR:host"] == server["OS-EXT-SRV-ATTR:host"]
    driver = running.cloud.fleet.drivers[back["OS-EXT-SRV-ATTR:host"]]
    assert driver.power_of(ServerId(server["id"])).name == "RUNNING"
    assert not await images(running)
    assert (await actions(running, server["id"]))[0] == ("shelve", "Error")


async def test_an_unshelve_tries_the_next_host(running: Running) -> None:
    server = await running.admin.active("a")
    await done(running, server["id"], {"shelve": None}, "SHELVED_OFFLOADED")
    for host in neighbours_of(running, server["OS-EXT-SRV-ATTR:host"])[:2]:
        running.dial(host, start_guest=VerbDial(fail_times=99))
    back = await done(running, server["id"], {"unshelve": None}, "ACTIVE")
    assert guests(running, server["id"]) == [back["OS-EXT-SRV-ATTR:host"]]
    assert len(await ports(running, server["id"])) == 1


async def test_an_unshelve_without_a_host_restores_the_shelved_server(running: Running) -> None:
    server = await running.admin.active("a", networks=ROUTED)
    await done(running, server["id"], {"shelve": None}, "SHELVED_OFFLOADED")
    running.set_faults_everywhere(start_guest=VerbDial(fail_times=99))
    back = await done(running, server["id"], {"unshelve": None}, "SHELVED_OFFLOADED")
    assert (back["OS-EXT-SRV-ATTR:host"], back["addresses"]) == (None, server["addresses"])
    assert await held(running, server["id"]) == {IPV4_ADDRESS: 1}
    (port,) = await ports(running, server["id"])
    assert (port["binding:host_id"], port["device_id"]) == ("", server["id"])
    assert len(await images(running)) == 1
    assert (await actions(running, server["id"]))[0] == ("unshelve", "Error")
    answer = (await running.admin.compute("GET", f"/ext/servers/{server['id']}/explain")).json()
    unshelve = answer["explain"]["operations"][-1]
    assert unshelve["name"] == "unshelve"
    assert unshelve["attempts"][0]["failed"]
    running.set_faults_everywhere()
    await done(running, server["id"], {"unshelve": None}, "ACTIVE")


async def test_where_a_server_is_unshelved(running: Running) -> None:
    server = await running.admin.active("a")
    assert (await act(running, server["id"], {"unshelve": {"host": "host1"}})).status_code == 409
    await done(running, server["id"], {"shelve": None}, "SHELVED_OFFLOADED")
    first = server["OS-EXT-SRV-ATTR:host"]
    host = next(each for each in neighbours_of(running, first) if each != first)
    for wrong, status in (({"host": "nowhere"}, 400), ({"availability_zone": "moon"}, 400)):
        assert (await act(running, server["id"], {"unshelve": wrong})).status_code == status
    assert (await act(running, server["id"], {"unshelve": {"host": host}}, "2.90")).status_code == 400
    assert (await act(running, server["id"], {"unshelve": {}}, "2.90")).status_code == 400
    assert (await act(running, server["id"], {"unshelve": {"availability_zone": None}}, "2.90")).status_code == 400
    body = {"unshelve": {"availability_zone": "nova", "host": host}}
    back = await done(running, server["id"], body, "ACTIVE")
    assert (back["OS-EXT-SRV-ATTR:host"], back["pinned_availability_zone"]) == (host, "nova")
    await done(running, server["id"], {"shelve": None}, "SHELVED_OFFLOADED")
    back = await done(running, server["id"], {"unshelve": {"availability_zone": None}}, "ACTIVE")
    assert back["pinned_availability_zone"] is None


async def test_actions_refused_for_a_shelved_server(running: Running) -> None:
    server = await running.admin.active("a")
    assert (await act(running, server["id"], {"unshelve": None})).status_code == 409
    assert (await act(running, server["id"], {"shelveOffload": None})).status_code == 409
    await done(running, server["id"], {"shelve": None}, "SHELVED_OFFLOADED")
    for action in ("shelve", "os-start", "os-stop", "pause", "suspend", "createImage"):
        body = {action: {"name": "x"} if action == "createImage" else None}
        reply = await act(running, server["id"], body)
        assert reply.status_code == 409, (action, reply.text)
        assert "vm_state shelved_offloaded" in reply.json()["conflictingRequest"]["message"]
    listed = (await running.admin.compute("GET", "/servers/detail", status="SHELVED_OFFLOADED")).json()["servers"]
    assert [each["id"] for each in listed] == [server["id"]]


async def test_a_shelved_server_is_deleted_with_its_image_and_ports(running: Running) -> None:
    server = await running.admin.active("a", networks=ROUTED)
    await done(running, server["id"], {"shelve": None}, "SHELVED_OFFLOADED")
    await running.admin.gone(server["id"])
    await until(lambda: images(running), lambda seen: not seen)
    assert await ports(running, server["id"]) == []
    assert await held(running, server["id"]) == {}


async def test_reconcilers_keep_the_resources_of_an_offloaded_server(running: Running) -> None:
    server = await running.admin.active("a", networks=ROUTED)
    await done(running, server["id"], {"shelve": None}, "SHELVED_OFFLOADED")
    context = running.cloud.region.context
    assert (await OrphanAllocations(context).run()).released == ()
    assert (await OrphanPorts(context).run()).mended == 0
    assert (await PortDrift(context).run()).mended == ()
    assert (await OrphanImages(context, grace_s=0.0).run()).deleted == ()
    assert await held(running, server["id"]) == {IPV4_ADDRESS: 1}
    assert len(await ports(running, server["id"])) == 1
