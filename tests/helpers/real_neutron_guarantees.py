"""Two hosts with little bandwidth and a real Neutron, and a user who boots there."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from moorage.main.config import Config
from moorage_testing.real_services.stack import Stack
from tests.helpers.real_services_cloud import ServicesClient, until
from tests.real.test_reporting import AGENT, admin, assert_reported, config, state  # noqa: F401  two of them are fixtures

EGR, IGR, PPS = "NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC", "NET_PACKET_RATE_KILOPACKET_PER_SEC"
BRIDGE = f"{AGENT}:br-physnet4"
KBPS, KPPS = 10_000, 100


class Site:
    """Two hosts on physnet4 with little bandwidth, and a person who boots there."""

    def __init__(self, admin: ServicesClient, alice: ServicesClient, image: str, flavor: str) -> None:  # noqa: F811
        self.admin, self.alice, self.image, self.flavor = admin, alice, image, flavor
        self.networks: list[str] = []

    async def policy(self, kbps: int, kpps: int = 0) -> str:
        network = self.admin
        made = await network("network", "POST", "/qos/policies", {"policy": {"name": "guaranteed", "shared": True}})
        policy = str(made["policy"]["id"])
        rule = {"minimum_bandwidth_rule": {"min_kbps": kbps, "direction": "egress"}}
        await network("network", "POST", f"/qos/policies/{policy}/minimum_bandwidth_rules", rule)
        if kpps:
            packets = {"minimum_packet_rate_rule": {"min_kpps": kpps, "direction": "any"}}
            await network("network", "POST", f"/qos/policies/{policy}/minimum_packet_rate_rules", packets)
        return policy

    async def network(self, cidr: str = "10.44.0.0/24", **more: Any) -> str:
        wire = {"provider:network_type": "vlan", "provider:physical_network": "physnet4"}
        asked = {"network": {"name": "guaranteed", "shared": True, **wire, **more}}
        made = str((await self.admin("network", "POST", "/networks", asked))["network"]["id"])
        self.networks.append(made)
        subnet = {"network_id": made, "ip_version": 4, "cidr": cidr}
        await self.admin("network", "POST", "/subnets", {"subnet": subnet})
        return made

    async def boot(self, *more: dict[str, str], **nic: str) -> str:
        """With that card, and `more`."""
        cards = [nic, *more]
        order = {"name": "one", "imageRef": self.image, "flavorRef": self.flavor, "networks": cards}
        return str((await self.alice("compute", "POST", "/servers", {"server": order}))["server"]["id"])

    async def used(self, name: str) -> dict[str, int]:
        found = (await self.admin("placement", "GET", f"/resource_providers?name={name}"))["resource_providers"]
        usages: dict[str, int] = (
            await self.admin("placement", "GET", f"/resource_providers/{found[0]['uuid']}/usages")
        )["usages"]
        return usages

    async def id_of(self, name: str) -> str:
        found = (await self.admin("placement", "GET", f"/resource_providers?name={name}"))["resource_providers"]
        return str(found[0]["uuid"])

    async def gone(self, server: str) -> None:
        await self.alice("compute", "DELETE", f"/servers/{server}")
        await until(
            lambda: self.alice.ask("compute", "GET", f"/servers/{server}"), lambda reply: reply.status_code == 404
        )
        await until(  # what was claimed for it is given back a moment later
            lambda: self.admin("compute", "GET", f"/ext/operations?server={server}&all_projects=1"),
            lambda assert_reported: all(each["ended_at"] for each in assert_reported["operations"]),
        )

    async def cleared(self) -> None:
        """Nothing shared is left, also by a test that failed: other tests count what a person may use."""
        for network in self.networks:
            for port in (await self.admin("network", "GET", f"/ports?network_id={network}"))["ports"]:
                await self.admin.ask("network", "DELETE", f"/ports/{port['id']}")
            gone = await self.admin.ask("network", "DELETE", f"/networks/{network}")
            assert gone.status_code in {204, 404}, gone.text


@pytest.fixture
async def site(real_stack: Stack, config: Config, admin: ServicesClient) -> AsyncIterator[Site]:  # noqa: F811
    for host in ("host1", "host3"):
        await assert_reported(admin, state(host, "physnet1", "physnet4", kbps=KBPS, kpps=KPPS))
    alice = ServicesClient(real_stack, config, "alice")
    flavor = (await alice("compute", "GET", "/flavors"))["flavors"][0]["id"]
    made = Site(admin, alice, await alice.upload("tiny"), flavor)
    try:
        yield made
    finally:
        await made.cleared()
        await alice.close()
