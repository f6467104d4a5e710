"""A host does what it was told, its answer is lost, and it stays silent: interfaces, power, and hosts that are given up.

Also what ends otherwise because nothing was sent to a host that was silent before.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start
from tests.cloud.test_network_cuts import SILENT_S, Wires, heard_again
from tests.cloud.test_unanswered_volumes import attach_unanswered, owed, paid, rounds, silent, told
from tests.cloud.test_volumes import attach, attached, becomes, detach, disks, ended, status, volume

from moorage.main.config import Compute, Hosts
from moorage.model.debt import DebtKind
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId
from moorage_testing.waiting import until


@pytest.fixture
async def cloud(start: Start) -> AsyncIterator[Running]:
    """With four hosts, each of which does for every server."""
    hosts = Hosts(count=4, beat_s=0.3, physical_networks=(("physnet1",),))
    compute = Compute(host_silence_s=SILENT_S, host_deadline_s=600.0, sync_power_state_interval=0.5)
    async with start(compute=compute, hosts=hosts) as running:
        yield running


@pytest.fixture
def cuts(cloud: Running, monkeypatch: pytest.MonkeyPatch) -> Wires:
    made = Wires(cloud)
    monkeypatch.setattr(cloud.cloud.region.bus, "publish", made.publish)
    return made


def cards(running: Running, server: dict[str, Any]) -> list[str]:
    """The ports that the guest has."""
    driver = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]
    return [str(each.port) for each in driver.spec_of(ServerId(server["id"])).vifs]


def power(running: Running, server: dict[str, Any]) -> PowerState:
    driver = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]
    return driver.power_of(ServerId(server["id"]))


async def ports_of(running: Running, server: dict[str, Any]) -> list[str]:
    reply = await running.admin.network("GET", "/ports", device_id=server["id"])
    return [each["id"] for each in reply.json()["ports"]]


async def force_down(running: Running, host: str, *, down: bool = True) -> None:
    services = (await running.admin.compute("GET", "/os-services", binary="nova-compute")).json()["services"]
    (service,) = [each["id"] for each in services if each["host"] == host]
    reply = await running.admin.compute("PUT", f"/os-services/{service}", {"forced_down": down})
    assert reply.status_code == 200, reply.text


async def act(running: Running, server: dict[str, Any], name: str, body: Any = None) -> Any:
    return await running.admin.compute("POST", f"/servers/{server['id']}/action", {name: body})


async def test_a_port_that_a_silent_host_may_have_plugged_in_stays_the_servers(cloud: Running, cuts: Wires) -> None:
    one = await cloud.admin.active("one")
    network = await cloud.admin.id_of("network", "private")
    (first,) = cards(cloud, one)
    gate = cloud.delay_verb("attach_interface")
    body = {"interfaceAttachment": {"net_id": network}}
    path = f"/servers/{one['id']}/os-interface"
    attaching = asyncio.create_task(cloud.admin.compute("POST", path, body))
    await told(cloud, "plug")
    cuts.cut.add(one["OS-EXT-SRV-ATTR:host"])
    gate.set()
    assert (await attaching).status_code == 500
    (second,) = [each for each in cards(cloud, one) if each != first]
    assert sorted(await ports_of(cloud, one)) == sorted([first, second]), "the guest may have it"
    (debt,) = await owed(cloud)
    assert (debt.kind, debt.thing) == (DebtKind.UNPLUG_INTERFACE, second)
    await heard_again(cloud, cuts)
    await paid(cloud)
    assert cards(cloud, one) == [first]
    assert await ports_of(cloud, one) == [first]


async def test_a_detach_of_an_interface_waits_and_goes_forward(cloud: Running, cuts: Wires) -> None:
    one = await cloud.admin.active("one")
    (port,) = cards(cloud, one)
    gate = cloud.delay_verb("detach_interface")
    detaching = asyncio.create_task(cloud.admin.compute("DELETE", f"/servers/{one['id']}/os-interface/{port}"))
    await told(cloud, "unplug")
    cuts.cut.add(one["OS-EXT-SRV-ATTR:host"])
    gate.set()
    await silent(cloud, one["OS-EXT-SRV-ATTR:host"])
    assert await ports_of(cloud, one) == [port]
    await heard_again(cloud, cuts)
    assert (await ended(cloud, one["id"], "detach_interface"))["message"] is None
    await detaching
    assert (cards(cloud, one), await ports_of(cloud, one)) == ([], [])


async def test_a_guest_that_a_failed_shelve_switched_off_is_switched_on_when_its_host_is_back(
    cloud: Running, cuts: Wires
) -> None:
    """The host was forced down meanwhile, and its servers were not evacuated."""
    one = await cloud.admin.active("one")
    host = one["OS-EXT-SRV-ATTR:host"]
    gate = cloud.delay_verb("power_off")
    assert (await act(cloud, one, "shelve")).status_code == 202
    await told(cloud, "stop_guest")
    cuts.cut.add(host)
    gate.set()
    await silent(cloud, host)
    await force_down(cloud, host)
    assert (await ended(cloud, one["id"], "shelve"))["message"] == "Error"
    assert power(cloud, one) is PowerState.SHUTDOWN
    assert [each.kind for each in await owed(cloud)] == [DebtKind.SWITCH_ON]
    await heard_again(cloud, cuts)
    await rounds(cloud, "host_debts")
    assert await owed(cloud), "a host that is forced down starts nothing"
    await force_down(cloud, host, down=False)
    await paid(cloud)
    assert power(cloud, one) is PowerState.RUNNING
    await rounds(cloud, "power_states")
    shown = await cloud.admin.server(one["id"])
    assert shown is not None
    assert shown["status"] == "ACTIVE"


async def test_a_detach_goes_on_when_its_host_is_given_up_and_an_evacuation_pays(cloud: Running, cuts: Wires) -> None:
    one, disk = await cloud.admin.active("one"), await volume(cloud)
    host = one["OS-EXT-SRV-ATTR:host"]
    await attach(cloud, one["id"], disk)
    await ended(cloud, one["id"], "attach_volume")
    gate = cloud.delay_verb("detach_volume")
    detaching = asyncio.create_task(detach(cloud, one["id"], disk))
    await told(cloud, "unplug")
    cuts.cut.add(host)
    gate.set()
    await silent(cloud, host)
    await force_down(cloud, host)
    assert (await ended(cloud, one["id"], "detach_volume"))["message"] is None
    await detaching
    assert await attached(cloud, one["id"]) == []
    assert await status(cloud, disk) in {"in-use", "detaching"}, "its guest may have it"
    assert [each.thing for each in await owed(cloud)] == [disk]
    assert (await act(cloud, one, "evacuate", {})).status_code < 300
    await paid(cloud)
    await becomes(cloud, disk, "available")
    moved = await cloud.admin.settled(one["id"])
    assert moved["OS-EXT-SRV-ATTR:host"] != host
    assert disks(cloud, moved) == []


@pytest.mark.parametrize("name", ["rebuild", "rescue", "reboot", "trigger_crash_dump"])
async def test_what_was_never_sent_leaves_a_server_as_it_was(cloud: Running, cuts: Wires, name: str) -> None:
    one = await cloud.admin.active("one")
    cuts.cut.add(one["OS-EXT-SRV-ATTR:host"])
    await silent(cloud, one["OS-EXT-SRV-ATTR:host"])
    body = {"rebuild": {"imageRef": one["image"]["id"]}, "rescue": {}, "reboot": {"type": "SOFT"}}.get(name)
    reply = await act(cloud, one, name, body)
    assert reply.status_code in {200, 202}, reply.text
    assert (await ended(cloud, one["id"], name))["message"] == "Error"
    shown = await cloud.admin.settled(one["id"])
    assert shown["status"] == "ACTIVE"
    assert await owed(cloud) == []


async def test_debts_are_shown(cloud: Running, cuts: Wires) -> None:
    one, disk = await cloud.admin.active("one"), await volume(cloud)
    await attach_unanswered(cloud, cuts, one, disk)
    shown = (await cloud.admin.compute("GET", "/ext/debts")).json()
    (row,) = shown["debts"]
    assert (row["server"], row["host"], row["kind"], row["thing"]) == (
        one["id"],
        one["OS-EXT-SRV-ATTR:host"],
        "unplug_volume",
        disk,
    )
    assert (shown["count"], [each["debts"] for each in shown["hosts"]]) == (1, [1])
    behind = (await cloud.admin.compute("GET", "/ext/debts", marker=row["marker"])).json()
    assert (behind["debts"], behind["count"]) == ([], 1)
    elsewhere = (await cloud.admin.compute("GET", "/ext/debts", host="nowhere")).json()
    assert elsewhere["debts"] == []
    assert (await cloud.admin.compute("GET", "/ext/debts", marker="x")).status_code == 400
    await heard_again(cloud, cuts)
    await paid(cloud)
    await until(lambda: disks(cloud, one) == [])
