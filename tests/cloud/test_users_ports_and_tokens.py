"""Ports of a user stay the user's; permissions are checked before the 202, and the user's token is not needed afterwards."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cloud.conftest import Running, Shared, Start

from moorage_testing.api_user import Person

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def running(shared: Shared) -> AsyncIterator[Running]:
    async with shared.for_a_test() as found:
        yield found


TOKEN_S = 5.0


async def made_port(person: Person, **more: Any) -> dict[str, Any]:
    body = {"network_id": await person.id_of("network", "private"), **more}
    reply = await person.network("POST", "/ports", {"port": body})
    assert reply.status_code == 201, reply.text
    port: dict[str, Any] = reply.json()["port"]
    return port


async def test_a_users_port_is_used_and_kept(running: Running) -> None:
    async with running.person("demo", "demo") as demo:
        port = await made_port(demo, name="mine")
        networks = [{"port": port["id"]}, {"uuid": await demo.id_of("network", "private")}]
        server = await demo.active("two-ports", networks=networks)
        macs = {each["OS-EXT-IPS-MAC:mac_addr"] for each in server["addresses"]["private"]}
        assert port["mac_address"] in macs
        assert len(macs) == 2
        again = await demo.ask_boot("rival", networks=[{"port": port["id"]}])
        assert again.status_code == 409
        several = await demo.ask_boot("rivals", networks=[{"port": port["id"]}], max_count=2)
        assert (several.status_code, "one server" in several.text) == (400, True)
        await demo.gone(server["id"])
        kept = (await demo.network("GET", f"/ports/{port['id']}")).json()["port"]
        assert (kept["device_id"], kept["name"], kept["fixed_ips"]) == ("", "mine", port["fixed_ips"])
        left = (await running.admin.network("GET", "/ports", device_id=server["id"])).json()["ports"]
        assert left == []


async def test_two_boots_compete_for_one_port(running: Running) -> None:
    """Exactly one has it; the other is refused, or ends in ERROR, and does not take it along when it is deleted."""
    async with running.person("demo", "demo") as demo:
        port = await made_port(demo)
        replies = await asyncio.gather(
            *(demo.ask_boot(f"rival-{n}", networks=[{"port": port["id"]}]) for n in range(4))
        )
        servers = [str(each.json()["server"]["id"]) for each in replies if each.status_code == 202]
        found = await asyncio.gather(*(demo.settled(each) for each in servers))
        winners = [each["id"] for each in found if each["status"] == "ACTIVE"]
        assert len(winners) == 1
        for each in found:
            if each["status"] == "ERROR":
                assert "in use" in each["fault"]["message"]
                await demo.gone(each["id"])
        held = (await demo.network("GET", f"/ports/{port['id']}")).json()["port"]
        assert held["device_id"] == winners[0]


async def test_refused_requests_leave_nothing(running: Running) -> None:
    stranger = "11111111-2222-3333-4444-555555555555"
    async with running.person("demo", "demo") as demo:
        theirs = await made_port(running.admin)
        for networks in ([{"uuid": stranger}], [{"port": stranger}], [{"port": theirs["id"]}]):
            reply = await demo.ask_boot("refused", networks=networks)
            assert reply.status_code in {400, 404}, reply.text
        reply = await demo.ask_boot("refused", flavor="m1.tiny", imageRef=stranger)
        assert reply.status_code == 400
        listed = (await demo.compute("GET", "/servers")).json()["servers"]
        assert listed == []


async def test_a_token_expires_between_accept_and_port_creation(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """No user token is stored: the saga goes on with the service's own (RULES §7)."""
    async with start() as running, running.person("demo", "demo") as demo:
        identity = running.cloud.embedded.identity
        assert identity is not None
        network = running.cloud.region.clients.network
        ensure_ports = network.ensure_ports
        expired = asyncio.Event()

        async def when_expired(*arguments: Any, **options: Any) -> Any:
            await expired.wait()
            return await ensure_ports(*arguments, **options)

        await asyncio.gather(
            demo.id_of("image", "tiny"), demo.id_of("flavor", "m1.nano"), demo.id_of("network", "private")
        )
        context = identity._context
        monkeypatch.setattr(context, "token_life_s", TOKEN_S)
        await demo.log_in()
        monkeypatch.undo()
        monkeypatch.setattr(network, "ensure_ports", when_expired)
        server = await demo.boot("outlives-its-token")
        async with asyncio.timeout(180):
            while (await demo.network("GET", "/networks")).status_code != 401:  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.2)
        expired.set()
        await demo.log_in()
        found = await demo.settled(server)
        assert found["status"] == "ACTIVE", found.get("fault")
        (port,) = (await demo.network("GET", "/ports", device_id=server)).json()["ports"]
        assert port["project_id"] == demo.project


async def test_servers_of_other_projects_cannot_be_read_or_deleted(running: Running) -> None:
    theirs = await running.admin.active("theirs")
    async with running.person("demo", "demo") as demo:
        for method in ("GET", "DELETE"):
            assert (await demo.compute(method, f"/servers/{theirs['id']}")).status_code == 404
        assert (await demo.compute("GET", "/servers/detail")).json()["servers"] == []
    assert await running.admin.server(theirs["id"]) is not None


async def test_a_port_is_shown_with_its_floating_address_groups_and_name(running: Running) -> None:
    """All of it was there before the server, so no event tells of it: at a boot, and at an attach."""
    admin = running.admin
    outside = (await admin.network("POST", "/networks", {"network": {"name": "out", "router:external": True}})).json()[
        "network"
    ]
    subnet = {"network_id": outside["id"], "ip_version": 4, "cidr": "198.51.100.0/24"}
    assert (await admin.network("POST", "/subnets", {"subnet": subnet})).status_code == 201
    private = (await admin.network("GET", f"/networks/{await admin.id_of('network', 'private')}")).json()["network"]
    gateway = {"external_gateway_info": {"network_id": outside["id"]}}
    router = (await admin.network("POST", "/routers", {"router": {"name": "r", **gateway}})).json()["router"]
    plugged = await admin.network(
        "PUT", f"/routers/{router['id']}/add_router_interface", {"subnet_id": private["subnets"][0]}
    )
    assert plugged.status_code == 200, plugged.text
    group = (await admin.network("POST", "/security-groups", {"security_group": {"name": "own"}})).json()[
        "security_group"
    ]
    ports = [await made_port(admin), await made_port(admin, security_groups=[group["id"]])]
    named = await made_port(admin, dns_name="other")
    floating = []
    for port in ports:
        body = {"floatingip": {"floating_network_id": outside["id"], "port_id": port["id"]}}
        floating.append((await admin.network("POST", "/floatingips", body)).json()["floatingip"]["floating_ip_address"])
    refused = await admin.ask_boot("unlike", networks=[{"port": named["id"]}])
    assert (refused.status_code, "dns_name" in refused.text) == (400, True)
    server = await admin.active("first", networks=[{"port": ports[0]["id"]}])
    assert floating[0] in [each["addr"] for each in server["addresses"]["private"]]
    assert server["security_groups"] == [{"name": "default"}]
    body = {"interfaceAttachment": {"port_id": ports[1]["id"]}}
    assert (await admin.compute("POST", f"/servers/{server['id']}/os-interface", body)).status_code == 200
    shown = await admin.server(server["id"])
    assert shown is not None
    assert {*floating} <= {each["addr"] for each in shown["addresses"]["private"]}
    assert sorted(each["name"] for each in shown["security_groups"]) == ["default", "own"]
    names = [
        each["dns_name"] for each in (await admin.network("GET", "/ports", device_id=server["id"])).json()["ports"]
    ]
    assert names == ["first", "first"]
    await admin.compute("DELETE", f"/servers/{server['id']}/os-interface/{ports[1]['id']}")
    await running.idle()
    shown = await admin.server(server["id"])
    assert shown is not None
    assert shown["security_groups"] == [{"name": "default"}]
    await admin.gone(server["id"])
