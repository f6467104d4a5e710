"""A server boots, is shown and is deleted, with the real Keystone, Glance and Neutron."""

from pathlib import Path
from typing import Any

import pytest
from tests.helpers.real_services_cloud import (
    ServicesClient,
    cloud_with_real_services,
    dies,
    service_of,
    until,
    until_server,
)

from moorage.main.config import Hosts
from moorage.main.up import RunningCloud
from moorage_testing.real_services.stack import Stack

pytestmark = pytest.mark.real


async def test_a_server_boots_on_a_routed_network_and_leaves_nothing(real_stack: Stack, tmp_path: Path) -> None:
    async with cloud_with_real_services(real_stack, tmp_path, Hosts(count=4, beat_s=0.5), host_silence_s=5.0) as cloud:
        alice, admin = (ServicesClient(real_stack, cloud.config, name) for name in ("alice", "admin"))
        await _boots_and_leaves_nothing(cloud, alice, admin, real_stack.logins["alice"].project_id)
        await alice.close()
        await admin.close()


async def _boots_and_leaves_nothing(
    cloud: RunningCloud, alice: ServicesClient, admin: ServicesClient, project: str
) -> None:
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
    await alice("compute", "DELETE", f"/servers/{servers[1]}")
    await until(lambda: alice("network", "GET", f"/ports?network_id={network}"), lambda left: len(left["ports"]) == 1)
    await _moves_to_the_other_segment(cloud, admin, servers[0], ports[0][0])
    await alice("compute", "DELETE", f"/servers/{servers[0]}")
    await until(lambda: alice("network", "GET", f"/ports?network_id={network}"), lambda left: not left["ports"])


async def _moves_to_the_other_segment(cloud: RunningCloud, admin: ServicesClient, server: str, port: Any) -> None:
    """The port keeps its old address beside the new one until that is confirmed: Neutron lets it, on a host of the new segment."""
    host = ""

    async def act(action: str, status: str, said: dict[str, Any] | None = None) -> list[str]:
        """All that its port has then; the server is shown with one."""
        nonlocal host
        await admin("compute", "POST", f"/servers/{server}/action", {action: said})
        await until(
            lambda: admin("compute", "GET", f"/ext/servers/{server}/explain"),
            lambda told: told["explain"]["operations"][-1]["status"] != "open",
        )
        shown = await until_server(admin, server, status)
        (addresses,) = shown["addresses"].values()
        now = (await admin("network", "GET", f"/ports/{port['id']}"))["port"]
        host = shown["OS-EXT-SRV-ATTR:host"] or ""
        assert (now["mac_address"], now["binding:vif_type"]) == (port["mac_address"], "ovs" if host else "unbound")
        assert now["binding:host_id"] == host
        (seen,) = [each["addr"] for each in addresses]
        found = {each["ip_address"] for each in now["fixed_ips"]}
        assert seen in found
        return [seen, *sorted(found - {seen})]

    (old,) = [each["ip_address"] for each in port["fixed_ips"]]
    (new, *held) = await act("migrate", "VERIFY_RESIZE")
    assert (new != old, held) == (True, [old])
    assert await act("revertResize", "ACTIVE") == [old]
    (new, *held) = await act("migrate", "VERIFY_RESIZE")
    assert (new != old, held) == (True, [old])
    assert await act("confirmResize", "ACTIVE") == [new]
    left = host
    assert await act("shelve", "SHELVED_OFFLOADED") == [new]
    await service_of(admin, left, status="disabled")
    (other,) = await act("unshelve", "ACTIVE")
    assert (other != new, host != left) == (True, True), "it had no host of its own segment"
    await service_of(admin, left, status="enabled")
    left = host
    await dies(cloud, admin, left)
    (new,) = await act("evacuate", "ACTIVE", {})
    assert (new != other, host != left) == (True, True)
