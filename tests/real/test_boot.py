"""A server boots, is seen and goes, with the real Keystone, Glance and Neutron as neighbours."""

from pathlib import Path

import pytest
from beside import Desk, moorage_beside, until, until_server

from moorage.main.config import Hosts
from moorage.testing.peers.stack import Stack

pytestmark = pytest.mark.real


async def test_a_server_boots_on_a_routed_network_and_leaves_nothing(real_stack: Stack, tmp_path: Path) -> None:
    async with moorage_beside(real_stack, tmp_path, Hosts(count=4)) as config:
        alice, admin = Desk(real_stack, config, "alice"), Desk(real_stack, config, "admin")
        await _boots_and_leaves_nothing(alice, admin, real_stack.logins["alice"].project_id)
        await alice.close()
        await admin.close()


async def _boots_and_leaves_nothing(alice: Desk, admin: Desk, project: str) -> None:
    image = await alice.upload("tiny")
    provider = {
        "provider:network_type": "vlan",
        "provider:physical_network": "physnet1",
        "provider:segmentation_id": 900,
    }
    asked = {"network": {"name": "routed", "project_id": project, **provider}}
    network = (await admin("network", "POST", "/networks", asked))["network"]["id"]
    first = (await admin("network", "GET", f"/segments?network_id={network}"))["segments"][0]["id"]
    second = {"network_id": network, "network_type": "vlan", "physical_network": "physnet2", "segmentation_id": 901}
    segments = [first, (await admin("network", "POST", "/segments", {"segment": second}))["segment"]["id"]]
    for row, segment in enumerate(segments):
        subnet = {"network_id": network, "ip_version": 4, "cidr": f"10.7{row}.0.0/30", "segment_id": segment}
        await admin("network", "POST", "/subnets", {"subnet": {**subnet, "project_id": project}})
    flavor = (await alice("compute", "GET", "/flavors"))["flavors"][0]["id"]
    order = {"imageRef": image, "flavorRef": flavor, "networks": [{"uuid": network}]}
    servers = []
    for name in ("one", "two"):  # a /30 holds one: the second must go to the other segment
        servers.append(
            (await alice("compute", "POST", "/servers", {"server": {"name": name, **order}}))["server"]["id"]
        )
        shown = await until_server(alice, servers[-1], "ACTIVE")
        assert [len(addresses) for addresses in shown["addresses"].values()] == [1]
    ports = [(await alice("network", "GET", f"/ports?device_id={server}"))["ports"] for server in servers]
    assert [len(each) for each in ports] == [1, 1]
    assert len({each[0]["fixed_ips"][0]["subnet_id"] for each in ports}) == 2
    for server in servers:
        await alice("compute", "DELETE", f"/servers/{server}")
    await until(lambda: alice("network", "GET", f"/ports?network_id={network}"), lambda left: not left["ports"])
