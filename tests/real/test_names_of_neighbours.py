"""What belongs to the real Neutron and is shown by us is as it is there: groups, names of networks, floating addresses; and the
server's hostname is told to its ports.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.helpers.real_services_cloud import ServicesClient, cloud_with_real_services, until, until_server

from moorage.conductor.reconcilers.port_drift import PortDrift
from moorage.main.config import Hosts
from moorage.main.up import RunningCloud
from moorage_testing.real_services.stack import Stack

pytestmark = pytest.mark.real

PHYSNET = (("physnet1",),)


class Names:
    """A cloud beside real services, with a network, an image and a flavor."""

    def __init__(self, cloud: RunningCloud, stack: Stack) -> None:
        self.cloud = cloud
        self.alice, self.admin = (ServicesClient(stack, cloud.config, name) for name in ("alice", "admin"))
        self.project = stack.logins["alice"].project_id
        self.order: dict[str, str] = {}

    async def network(self, name: str, cidr: str, number: int, **more: Any) -> str:
        wire = {"provider:network_type": "vlan", "provider:physical_network": "physnet1"}
        body = {"name": name, "project_id": self.project, **wire, "provider:segmentation_id": number, **more}
        made = (await self.admin("network", "POST", "/networks", {"network": body}))["network"]["id"]
        subnet = {"network_id": made, "ip_version": 4, "cidr": cidr, "project_id": self.project}
        subnet_id = (await self.admin("network", "POST", "/subnets", {"subnet": subnet}))["subnet"]["id"]
        self.subnets = {**getattr(self, "subnets", {}), made: subnet_id}
        return str(made)

    async def boot(self, name: str, **nic: str) -> str:
        body = {"server": {"name": name, **self.order, "networks": [nic]}}
        server = (await self.alice("compute", "POST", "/servers", body))["server"]["id"]
        await until_server(self.alice, server, "ACTIVE")
        return str(server)

    async def shown(self, server: str) -> Any:
        return (await self.alice("compute", "GET", f"/servers/{server}"))["server"]

    async def looked(self) -> None:
        """One round of what compares ports."""
        await PortDrift(self.cloud.region.context).run()


@pytest_asyncio.fixture
async def names(real_stack: Stack, tmp_path: Path) -> AsyncIterator[Names]:
    hosts = Hosts(count=2, beat_s=0.5, physical_networks=PHYSNET)
    async with cloud_with_real_services(real_stack, tmp_path, hosts) as cloud:
        found = Names(cloud, real_stack)
        flavor = (await found.alice("compute", "GET", "/flavors"))["flavors"][0]["id"]
        found.order = {"imageRef": await found.alice.upload("tiny"), "flavorRef": flavor}
        yield found
        await found.alice.close()
        await found.admin.close()


async def test_groups_and_names_are_those_of_the_network_service(names: Names) -> None:
    network = await names.network("first-name", "10.91.0.0/24", 910)
    server = await names.boot("named", uuid=network)
    group = await names.alice("network", "POST", "/security-groups", {"security_group": {"name": "own"}})
    id = group["security_group"]["id"]
    port = {"network_id": network, "security_groups": [id]}
    made = (await names.alice("network", "POST", "/ports", {"port": port}))["port"]["id"]
    body = {"interfaceAttachment": {"port_id": made}}
    await names.alice("compute", "POST", f"/servers/{server}/os-interface", body)

    async def groups() -> set[str]:
        return {each["name"] for each in (await names.shown(server))["security_groups"]}

    await until(groups, lambda seen: seen == {"default", "own"})
    await names.alice("network", "PUT", f"/security-groups/{id}", {"security_group": {"name": "other"}})
    await names.admin("network", "PUT", f"/networks/{network}", {"network": {"name": "second-name"}})
    await names.looked()
    shown = await names.shown(server)
    assert {each["name"] for each in shown["security_groups"]} == {"default", "other"}
    assert set(shown["addresses"]) == {"second-name"}
    await names.alice("compute", "DELETE", f"/servers/{server}")


async def test_ports_are_told_the_hostname(names: Names) -> None:
    network = await names.network("domained", "10.92.0.0/24", 920)
    server = await names.boot("web-1", uuid=network)
    (port,) = (await names.alice("network", "GET", f"/ports?device_id={server}"))["ports"]
    assert port["dns_name"] == "web-1"
    own = {"port": {"network_id": network, "dns_name": "else"}}
    mine = (await names.alice("network", "POST", "/ports", own))["port"]["id"]
    body = {"server": {"name": "web-2", **names.order, "networks": [{"port": mine}]}}
    refused = await names.alice.ask("compute", "POST", "/servers", body)
    assert refused.status_code == 400, refused.text
    await names.alice("network", "PUT", f"/ports/{mine}", {"port": {"dns_name": ""}})
    second = await names.boot("web-2", port=mine)
    assert (await names.alice("network", "GET", f"/ports/{mine}"))["port"]["dns_name"] == "web-2"
    for each in (server, second):
        await names.alice("compute", "DELETE", f"/servers/{each}")

    async def given_back() -> str:
        return str((await names.alice("network", "GET", f"/ports/{mine}"))["port"]["dns_name"])

    await until(given_back, lambda seen: not seen)


async def test_a_floating_address_that_was_there_before_the_server_is_shown(names: Names) -> None:
    inside = await names.network("inside", "10.93.0.0/24", 930)
    outside = await names.network("outside", "10.94.0.0/24", 940, **{"router:external": True})
    gateway = {"router": {"name": "r", "external_gateway_info": {"network_id": outside}, "project_id": names.project}}
    router = (await names.admin("network", "POST", "/routers", gateway))["router"]["id"]
    await names.admin("network", "PUT", f"/routers/{router}/add_router_interface", {"subnet_id": names.subnets[inside]})
    port = (await names.alice("network", "POST", "/ports", {"port": {"network_id": inside}}))["port"]["id"]
    asked = {"floatingip": {"floating_network_id": outside, "port_id": port}}
    address = (await names.alice("network", "POST", "/floatingips", asked))["floatingip"]["floating_ip_address"]
    server = await names.boot("reached", port=port)
    shown = (await names.shown(server))["addresses"]["inside"]
    assert {each["addr"] for each in shown if each["OS-EXT-IPS:type"] == "floating"} == {address}
    await names.alice("compute", "DELETE", f"/servers/{server}")
