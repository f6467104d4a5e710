"""Interfaces attached to and detached from servers in a whole cloud: ports, addresses, claims and guests agree."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared, Start

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Hosts
from moorage.main.seed_data import ROUTED, SEGMENT_ADDRESSES
from moorage.model.ids import ServerId
from moorage.model.resources import IPV4_ADDRESS
from moorage.operations.steps import server_lock
from moorage.store.region import inbox
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


PATIENCE_S = 180.0


async def interfaces(running: Running, server: str) -> list[dict[str, Any]]:
    reply = await running.admin.compute("GET", f"/servers/{server}/os-interface")
    assert reply.status_code == 200, reply.text
    return list(reply.json()["interfaceAttachments"])


def vifs(running: Running, server: dict[str, Any]) -> list[str]:
    """The ports that the guest has."""
    driver = running.cloud.fleet.drivers[server["OS-EXT-SRV-ATTR:host"]]
    return [str(vif.port) for vif in driver.spec_of(ServerId(server["id"])).vifs]


async def attach(running: Running, server: str, **wish: Any) -> Any:
    return await running.admin.compute("POST", f"/servers/{server}/os-interface", {"interfaceAttachment": wish})


async def failure(running: Running, server: str, action: str) -> str:
    """What the newest such action says of its failure, to those who may see details."""
    path = f"/servers/{server}/os-instance-actions"
    actions = (await running.admin.compute("GET", path)).json()["instanceActions"]
    newest = next(each for each in actions if each["action"] == action)
    assert newest["message"] == "Error"
    (event,) = (await running.admin.compute("GET", f"{path}/{newest['request_id']}")).json()["instanceAction"]["events"]
    assert (event["event"], event["result"]) == (f"compute_{action}", "Error")
    return str(event["details"])


async def detached(running: Running, server: str, port: str) -> None:
    reply = await running.admin.compute("DELETE", f"/servers/{server}/os-interface/{port}")
    assert reply.status_code == 202, reply.text

    async def there() -> bool:
        return port in [each["port_id"] for each in await interfaces(running, server)]

    await until(there, False)
    await left_alone(running, server)


async def test_a_network_is_attached_and_detached(running: Running) -> None:
    server = await running.admin.active("a")
    network = await running.admin.id_of("network", "private")
    reply = await attach(running, server["id"], net_id=network)
    assert reply.status_code == 200, reply.text
    got = reply.json()["interfaceAttachment"]
    assert got["net_id"] == network
    assert got["port_state"] == "ACTIVE"
    assert len(got["fixed_ips"]) == 1
    assert len(await interfaces(running, server["id"])) == 2
    assert got["port_id"] in vifs(running, server)
    shown = await running.admin.server(server["id"])
    assert shown is not None
    assert len(shown["addresses"]["private"]) == 2
    await detached(running, server["id"], got["port_id"])
    assert (await running.admin.network("GET", f"/ports/{got['port_id']}")).status_code == 404
    assert got["port_id"] not in vifs(running, server)
    await running.admin.gone(server["id"])


async def used(running: Running) -> int:
    """Addresses claimed on all segments."""
    found = await running.cloud.region.databases.region.read(lambda tx: claim_statements.held_of(tx, IPV4_ADDRESS))
    return sum(sum(each.values()) for each in found.values())


async def until(look: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (seen := await look()) != wanted:
        assert time.monotonic() < deadline, f"it is {seen}, and should become {wanted}"
        await asyncio.sleep(0.02)


async def left_alone(running: Running, server: str) -> None:
    """No operation holds it any more."""
    region = running.cloud.region.databases.region

    async def holder() -> Any:
        where = await region.read(lambda tx: region_servers.find(tx, server))
        return None if where is None else where.operation

    await until(holder, None)


async def test_an_attach_takes_an_address_of_the_hosts_segment_and_releases_it(running: Running) -> None:
    server = await running.admin.active("a")
    network = await running.admin.id_of("network", ROUTED)
    reply = await attach(running, server["id"], net_id=network)
    assert reply.status_code == 200, reply.text
    got = reply.json()["interfaceAttachment"]
    subnet = (await running.admin.network("GET", f"/subnets/{got['fixed_ips'][0]['subnet_id']}")).json()["subnet"]
    world = running.cloud.region.engine.world()
    wired = world.segments[subnet["segment_id"]].wired
    assert wired[world.slots_by_name[server["OS-EXT-SRV-ATTR:host"]]]
    assert await used(running) == 1
    await detached(running, server["id"], got["port_id"])
    await left_alone(running, server["id"])
    assert await used(running) == 0
    await running.admin.gone(server["id"])


async def test_concurrent_attaches_never_exceed_the_addresses(running: Running) -> None:
    """Six for the four addresses of one segment: they queue, four get one, two are told why, and nothing is left of them."""
    server = await running.admin.active("a")
    network = await running.admin.id_of("network", ROUTED)
    replies = await asyncio.gather(
        *(attach(running, server["id"], net_id=network) for _ in range(SEGMENT_ADDRESSES + 2))
    )
    assert sorted(reply.status_code for reply in replies) == [200] * SEGMENT_ADDRESSES + [400] * 2
    refused = next(reply for reply in replies if reply.status_code == 400)
    assert "No fixed IP addresses available for network" in refused.json()["badRequest"]["message"]
    assert await used(running) == SEGMENT_ADDRESSES
    ports = (await running.admin.network("GET", "/ports", device_id=server["id"])).json()["ports"]
    assert len(ports) == SEGMENT_ADDRESSES + 1
    assert len({each["mac_address"] for each in ports}) == len(ports)
    actions = (await running.admin.compute("GET", f"/servers/{server['id']}/os-instance-actions")).json()
    listed = [each["message"] for each in actions["instanceActions"] if each["action"] == "attach_interface"]
    assert sorted(map(str, listed)) == ["Error"] * 2 + ["None"] * SEGMENT_ADDRESSES
    await running.admin.gone(server["id"])


async def test_a_users_port_is_attached_and_detached(running: Running) -> None:
    server = await running.admin.active("a")
    network = await running.admin.id_of("network", "private")
    port = (await running.admin.network("POST", "/ports", {"port": {"network_id": network}})).json()["port"]
    reply = await running.admin.compute(
        "POST", f"/servers/{server['id']}/os-interface", {"interfaceAttachment": {"port_id": port["id"], "tag": "blue"}}
    )
    assert reply.status_code == 200, reply.text
    assert reply.json()["interfaceAttachment"]["tag"] == "blue"
    again = await attach(running, server["id"], port_id=port["id"])
    assert again.status_code == 409
    assert again.json()["conflictingRequest"]["message"] == f"Port {port['id']} is still in use."
    await detached(running, server["id"], port["id"])
    left = (await running.admin.network("GET", f"/ports/{port['id']}")).json()["port"]
    assert (left["device_id"], left["binding:host_id"]) == ("", "")
    assert left["fixed_ips"] == port["fixed_ips"]
    await running.admin.network("DELETE", f"/ports/{port['id']}")
    await running.admin.gone(server["id"])


async def test_invalid_attaches_are_refused_as_in_nova(running: Running) -> None:
    server = await running.admin.active("a")
    network = await running.admin.id_of("network", "private")
    taken = (await interfaces(running, server["id"]))[0]["fixed_ips"][0]["ip_address"]
    nowhere = "00000000-0000-4000-8000-00000000dead"
    for wish, status, says in (
        ({"net_id": network, "port_id": nowhere}, 400, "Must not input both network_id and port_id"),
        ({"fixed_ips": [{"ip_address": "10.0.0.1"}]}, 400, "Must input network_id when request IP address"),
        ({"net_id": nowhere}, 404, f"Network {nowhere} could not be found."),
        ({"port_id": nowhere}, 404, f"Port id {nowhere} could not be found."),
        ({"net_id": network, "fixed_ips": [{"ip_address": taken}]}, 409, f"Fixed IP address {taken} is already in use"),
        ({"net_id": None}, 400, "Invalid input for field/attribute net_id"),
        ({"net_id": network, "fixed_ips": []}, 400, "fixed_ips"),
        ({"net_id": network, "fixed_ips": [{"ip_address": "ten"}]}, 400, "ip_address"),
    ):
        reply = await attach(running, server["id"], **wish)
        message = next(iter(reply.json().values()))["message"]
        assert (reply.status_code, says in message) == (status, True), (wish, reply.text)
    missing = await running.admin.compute("DELETE", f"/servers/{server['id']}/os-interface/{nowhere}")
    assert missing.status_code == 202, "found out later, as Nova's host finds it out"
    assert (await failure(running, server["id"], "detach_interface")) == f"Port {nowhere} is not attached"
    assert len(await interfaces(running, server["id"])) == 1
    action = f"/servers/{server['id']}/action"
    assert (await running.admin.compute("POST", action, {"suspend": None})).status_code == 202
    await running.admin.settled(server["id"])
    reply = await attach(running, server["id"], net_id=network)
    assert reply.status_code == 409
    assert "vm_state suspended" in reply.text
    await running.admin.gone(server["id"])


async def test_an_attach_without_a_network_uses_the_projects_only_one(running: Running) -> None:
    server = await running.admin.active("a")
    own = [{"network": {"name": "own"}}, {"network": {"name": "another"}}]
    only = await running.admin.compute("POST", f"/servers/{server['id']}/os-interface", {})
    assert only.status_code == 200, only.text
    made = [(await running.admin.network("POST", "/networks", each)).json()["network"]["id"] for each in own]
    refused = await attach(running, server["id"])
    assert refused.status_code == 400
    assert "Multiple possible networks found" in refused.json()["badRequest"]["message"]
    for each in made:
        assert (await running.admin.network("DELETE", f"/networks/{each}")).status_code == 204
    await running.admin.gone(server["id"])


async def test_a_host_without_the_verb_and_a_silent_host_are_distinguished(running: Running) -> None:
    server = await running.admin.active("a")
    host, network = server["OS-EXT-SRV-ATTR:host"], await running.admin.id_of("network", "private")
    running.dial(host, attach_interface=VerbDial(fail_times=1, code="not_supported"))
    reply = await attach(running, server["id"], net_id=network)
    assert reply.status_code == 400
    assert (
        reply.json()["badRequest"]["message"] == f"Attaching interfaces is not supported for instance {server['id']}."
    )
    running.dial(host, attach_interface=VerbDial(fail_times=1, code="host_silent"))
    reply = await attach(running, server["id"], net_id=network)
    assert reply.status_code == 500
    assert "silent for a while" in reply.text or "told to fail" in reply.text
    assert len(await interfaces(running, server["id"])) == 1
    await running.admin.gone(server["id"])


async def test_events_sent_during_an_outage_are_handled_later(running: Running) -> None:
    server = await running.admin.active("a", networks=ROUTED)
    events = running.cloud.region.events
    assert events is not None
    await events.stop()
    (port,) = await interfaces(running, server["id"])
    assert (await running.admin.network("DELETE", f"/ports/{port['port_id']}")).status_code == 204

    async def kept() -> int:
        told = await running.cloud.region.databases.region.read(lambda tx: inbox.of_server(tx, server["id"]))
        return len([each for each in told if each.name == "network-vif-deleted"])

    await until(kept, 1)
    assert await used(running) == 1
    await events.start()
    await until(lambda: used(running), 0)
    await until(kept, 0)
    await left_alone(running, server["id"])
    await running.admin.gone(server["id"])


async def test_a_failed_plug_leaves_nothing(running: Running) -> None:
    server = await running.admin.active("a")
    network = await running.admin.id_of("network", ROUTED)
    running.dial(server["OS-EXT-SRV-ATTR:host"], attach_interface=VerbDial(fail_times=1, fail_when="after"))
    reply = await attach(running, server["id"], net_id=network)
    assert reply.status_code == 500
    said = f"Failed to attach network adapter device to {server['id']}"
    assert reply.json()["computeFault"]["message"] == said
    assert await failure(running, server["id"], "attach_interface") == (
        f"{said}: the simulated host was told to fail: {server['OS-EXT-SRV-ATTR:host']}: a dial of attach_interface"
    )
    assert len(vifs(running, server)) == 1
    assert await used(running) == 0
    assert len((await running.admin.network("GET", "/ports", device_id=server["id"])).json()["ports"]) == 1
    running.dial(server["OS-EXT-SRV-ATTR:host"], detach_interface=VerbDial(fail_times=1))
    port = (await interfaces(running, server["id"]))[0]["port_id"]
    assert (await running.admin.compute("DELETE", f"/servers/{server['id']}/os-interface/{port}")).status_code == 202
    await left_alone(running, server["id"])
    assert "the simulated host was told to fail" in await failure(running, server["id"], "detach_interface")
    assert [each["port_id"] for each in await interfaces(running, server["id"])] == [port]
    await detached(running, server["id"], port)
    await running.admin.gone(server["id"])


async def test_a_deleted_port_releases_its_claim(running: Running) -> None:
    server = await running.admin.active("a", networks=ROUTED)
    network = await running.admin.id_of("network", "private")
    other = (await attach(running, server["id"], net_id=network)).json()["interfaceAttachment"]["port_id"]
    assert await used(running) == 1
    port = next(each["port_id"] for each in await interfaces(running, server["id"]) if each["port_id"] != other)
    assert (await running.admin.network("DELETE", f"/ports/{port}")).status_code == 204
    await until(lambda: used(running), 0)
    await left_alone(running, server["id"])
    assert vifs(running, server) == [other]
    shown = await running.admin.server(server["id"])
    assert shown is not None
    assert list(shown["addresses"]) == ["private"]
    await running.admin.gone(server["id"])


async def test_an_address_changed_in_the_network_service_is_shown(running: Running) -> None:
    server = await running.admin.active("a")
    port = (await interfaces(running, server["id"]))[0]
    subnet = port["fixed_ips"][0]["subnet_id"]
    more = [{"subnet_id": subnet}, *port["fixed_ips"]]
    reply = await running.admin.network("PUT", f"/ports/{port['port_id']}", {"port": {"fixed_ips": more}})
    assert reply.status_code == 200, reply.text
    wanted = {each["ip_address"] for each in reply.json()["port"]["fixed_ips"]}

    async def seen() -> set[str]:
        shown = await running.admin.server(server["id"])
        assert shown is not None
        return {each["addr"] for each in shown["addresses"]["private"]}

    await until(seen, wanted)
    await running.admin.gone(server["id"])


async def test_hosts_that_make_ports_plug_and_unplug_too(start: Start) -> None:
    async with start(hosts=Hosts(count=2, levels=(1, 2))) as running:
        for name in ("a", "b", "c"):
            server = await running.admin.active(name, networks=ROUTED)
            (booted,) = await interfaces(running, server["id"])
            got = await attach(running, server["id"], net_id=await running.admin.id_of("network", "private"))
            assert got.status_code == 200, got.text
            port = got.json()["interfaceAttachment"]["port_id"]
            assert set(vifs(running, server)) == {port, booted["port_id"]}
            await detached(running, server["id"], booted["port_id"])
            assert vifs(running, server) == [port]
            assert await used(running) == 0
            await running.admin.gone(server["id"])


async def test_a_power_action_waits_for_an_interface_that_is_being_attached(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that people see forbids it: an attach has no task state."""
    server = await running.admin.active("a")
    plugged = running.delay_verb("attach_interface")
    network = await running.admin.id_of("network", "private")
    attaching = asyncio.create_task(attach(running, server["id"], net_id=network))
    region = running.cloud.region.databases.region

    async def held() -> bool:
        where = await region.read(lambda tx: region_servers.find(tx, server["id"]))
        return where is not None and where.operation is not None

    await until(held, True)
    waits, busy = asyncio.Event(), server_lock._busy

    async def seen(*given: Any) -> Any:
        waits.set()
        return await busy(*given)

    monkeypatch.setattr(server_lock, "_busy", seen)
    stopping = asyncio.create_task(running.admin.compute("POST", f"/servers/{server['id']}/action", {"os-stop": None}))
    await asyncio.wait_for(waits.wait(), PATIENCE_S)
    assert not stopping.done()
    plugged.set()
    stop = await stopping
    assert stop.status_code == 202, stop.text
    assert (await attaching).status_code == 200
    assert (await running.admin.settled(server["id"]))["status"] == "SHUTOFF"
    await running.admin.gone(server["id"])


async def test_a_delete_cancels_an_attach_and_nothing_remains(running: Running) -> None:
    server = await running.admin.active("a")
    plugged = running.delay_verb("attach_interface")
    network = await running.admin.id_of("network", ROUTED)
    attaching = asyncio.create_task(attach(running, server["id"], net_id=network))

    async def made() -> int:
        return len((await running.admin.network("GET", "/ports", device_id=server["id"])).json()["ports"])

    await until(made, 2)
    await running.admin.gone(server["id"])
    assert (await attaching).status_code in {404, 409}
    plugged.set()
    assert await used(running) == 0
