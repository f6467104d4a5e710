"""Interfaces with guaranteed bandwidth, attached to running servers: on ports and on networks with a policy (N5, C13)."""

import asyncio
import time
from typing import Any

from tests.cloud.conftest import Running, Start
from tests.cloud.test_interfaces import failure
from tests.helpers.guaranteed_ports import (
    EGR,
    IGR,
    KBPS,
    made,
    network_on,
    policy_of,
    port_on,
    providers,
    show_port,
    used,
)

from moorage.cli.explain import _describe
from moorage.main.config import Hosts

ONE = Hosts(count=1, physical_networks=(("physnet1", "physnet2"),), bandwidth_kbps=KBPS)
BRIDGE = "host1:Open vSwitch agent:br-physnet1"
NONE = {EGR: 0, IGR: 0}


async def attach(running: Running, server: str, at: str = "2.104", **wish: Any) -> Any:
    """As a client of that microversion asks."""
    headers = {"OpenStack-API-Version": f"compute {at}"}
    url = f"{running.admin.urls[0]}/servers/{server}/os-interface"
    return await running.admin.http.post(url, json={"interfaceAttachment": wish}, headers=headers)


async def becomes(running: Running, bridge: str, wanted: dict[str, int]) -> None:
    deadline = time.monotonic() + 180
    while (now := await used(running.admin, bridge)) != wanted:
        assert time.monotonic() < deadline, now
        await asyncio.sleep(0.05)


async def test_ports_and_networks_with_a_policy_are_claimed_and_released_at_every_version(
    start: Start,
) -> None:
    async with start(hosts=ONE) as running:
        admin = running.admin
        bridge = (await providers(admin))[BRIDGE]
        policy = await policy_of(admin, kbps=4_000)
        server = (await admin.active())["id"]
        network = await network_on(admin, "physnet1", qos_policy_id=policy)
        port = (await port_on(admin, network, policy))["id"]
        first = await attach(running, server, "2.1", port_id=port)
        assert first.status_code == 200, first.text
        assert await used(admin, bridge) == {EGR: 4_000, IGR: 0}
        second = await attach(running, server, "2.71", net_id=network)
        assert second.status_code == 200, second.text
        made = second.json()["interfaceAttachment"]["port_id"]
        assert await used(admin, bridge) == {EGR: 8_000, IGR: 0}
        for each in (port, made):
            bound = await show_port(admin, each)
            (group,) = bound["resource_request"]["request_groups"]
            assert bound["binding:profile"]["allocation"] == {group["id"]: bridge}
        third = await attach(running, server, net_id=network)
        assert third.status_code == 400
        assert third.json()["badRequest"]["message"] == (
            f"Failed to allocate additional resources to {server} during interface attach"
        )
        why = f"{EGR}: 4000 asked, at most 2000 free on one device"
        answer = (await admin.compute("GET", f"/ext/servers/{server}/explain")).json()["explain"]["operations"][-1]
        assert answer["ended"]["message"] == third.json()["badRequest"]["message"]
        assert [(each["host"], each["reason"]) for each in answer["ended"]["refused_hosts"]] == [("host1", why)]
        assert why in "\n".join(_describe({"summary": None, "operations": [answer]}))
        assert await failure(running, server, "attach_interface") == (f"{third.json()['badRequest']['message']}: {why}")
        assert await used(admin, bridge) == {EGR: 8_000, IGR: 0}
        assert (await admin.compute("DELETE", f"/servers/{server}/os-interface/{port}")).status_code == 202
        await becomes(running, bridge, {EGR: 4_000, IGR: 0})
        left = await show_port(admin, port)
        assert (left["device_id"], left["binding:profile"]) == ("", {})
        await admin.network("DELETE", f"/ports/{port}")
        await admin.gone(server)
        await becomes(running, bridge, NONE)


async def test_a_bound_port_deleted_in_the_network_service_frees_its_bandwidth(start: Start) -> None:
    """Of a server that was booted with it, and of one that it was attached to: Nova leaks it until the server goes."""
    async with start(hosts=ONE) as running:
        admin = running.admin
        bridge = (await providers(admin))[BRIDGE]
        network = await network_on(admin, "physnet1", qos_policy_id=await policy_of(admin, kbps=4_000))
        booted = (await admin.active(networks=[{"uuid": network}]))["id"]
        other = (await admin.active("b"))["id"]
        reply = await attach(running, other, net_id=network)
        assert reply.status_code == 200, reply.text
        assert await used(admin, bridge) == {EGR: 8_000, IGR: 0}
        await admin.network("DELETE", f"/ports/{reply.json()['interfaceAttachment']['port_id']}")
        await becomes(running, bridge, {EGR: 4_000, IGR: 0})
        (port,) = (await admin.network("GET", "/ports", device_id=booted)).json()["ports"]
        await admin.network("DELETE", f"/ports/{port['id']}")
        await becomes(running, bridge, NONE)
        await asyncio.gather(admin.gone(booted), admin.gone(other))


async def test_concurrent_attaches_never_exceed_the_bridge(start: Start) -> None:
    """Two servers ask for three each of what there are four: four are attached, and two are told why."""
    async with start(hosts=ONE) as running:
        admin = running.admin
        bridge = (await providers(admin))[BRIDGE]
        network = await network_on(admin, "physnet1", qos_policy_id=await policy_of(admin, kbps=2_500))
        servers = [(await admin.active(name))["id"] for name in ("a", "b")]
        asked = (attach(running, server, net_id=network) for server in servers for _ in range(3))
        replies = await asyncio.gather(*asked)
        assert sorted(each.status_code for each in replies) == [200] * 4 + [400] * 2
        assert await used(admin, bridge) == {EGR: KBPS, IGR: 0}
        await asyncio.gather(*(admin.gone(each) for each in servers))
        await becomes(running, bridge, NONE)


async def test_a_direct_port_takes_and_releases_a_virtual_function(start: Start) -> None:
    """S1.15: the only one an interface has, attached, refused to the next, detached, and taken by the next."""
    hosts = Hosts(count=1, physical_networks=(("physnet1",),), bandwidth_kbps=KBPS, virtual_functions=1)
    async with start(hosts=hosts) as running:
        admin = running.admin
        card = (await providers(admin))["host1:SR-IOV:ens1"]
        network, server = await network_on(admin, "physnet1"), (await admin.active())["id"]
        direct = {"network_id": network, "binding:vnic_type": "direct"}
        first, second = [(await made(admin, "/ports", "port", **direct))["id"] for _ in range(2)]
        taken = await attach(running, server, port_id=first)
        assert taken.status_code == 200, taken.text
        assert (await show_port(admin, first))["binding:profile"]["pci_slot"] == "0000:80:01.0"
        assert await used(admin, card) == {"SRIOV_NET_VF": 1}
        assert (await attach(running, server, port_id=second)).status_code == 400
        assert (await admin.compute("DELETE", f"/servers/{server}/os-interface/{first}")).status_code == 202
        await becomes(running, card, {"SRIOV_NET_VF": 0})
        again = await attach(running, server, port_id=second)
        assert again.status_code == 200, again.text
        assert (await show_port(admin, second))["binding:profile"]["pci_slot"] == "0000:80:01.0"
        await admin.gone(server)
        assert await used(admin, card) == {"SRIOV_NET_VF": 0}
        for port in (first, second):
            await admin.network("DELETE", f"/ports/{port}")
