"""A real Neutron reports into our Placement and our host aggregates, by its own plug-ins and nothing in between.

Its `segments` plug-in writes a segment's provider, aggregate, hosts and addresses; its `placement` plug-in writes what an agent's
state report says of bandwidth and packet rate.  Neutron learns which host is wired to what from the agents' reports alone.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.helpers.real_services_cloud import ServicesClient, moorage_with_real_services, until, until_server

from moorage.main.config import Config, Hosts
from moorage_testing.real_services.stack import Stack

pytestmark = pytest.mark.real

AGENT = "Open vSwitch agent"
VNIC_TRAITS = {f"CUSTOM_VNIC_TYPE_{kind}" for kind in ("NORMAL", "DIRECT", "SMART_NIC", "VDPA")}
STOCK = {"allocation_ratio": 1.0, "min_unit": 1, "step_size": 1, "reserved": 0}
TUNNELS = "rp_tunnelled"
"""The provider of all tunnelled networks of a host."""
NO_LIMIT = 2_147_483_647


def state(host: str, *physnets: str, kbps: int = 0, kpps: int = 0) -> dict[str, Any]:
    """What the Open vSwitch agent of a host says when it starts: its bridges, and what each of them can carry."""
    bridges = {physnet: f"br-{physnet}" for physnet in physnets}
    configurations: dict[str, Any] = {
        "bridge_mappings": bridges,
        "integration_bridge": "br-int",
        "tunnel_types": ["vxlan"],
        "tunneling_ip": "127.0.0.1",
        "l2_population": False,
        "datapath_type": "system",
        "ovs_hybrid_plug": False,
        "extensions": ["qos"],
    }
    if kbps:
        devices = [*bridges.values(), TUNNELS]
        configurations |= {
            "resource_provider_bandwidths": {device: {"egress": kbps, "ingress": kbps // 2} for device in devices},
            "resource_provider_hypervisors": dict.fromkeys(devices, host),
            "resource_provider_inventory_defaults": STOCK,
            "resource_provider_packet_processing_without_direction": {host: {"any": kpps}},
            "resource_provider_packet_processing_inventory_defaults": STOCK,
        }
    names = {"binary": "neutron-openvswitch-agent", "agent_type": AGENT, "topic": "N/A", "host": host}
    return {**names, "configurations": configurations, "start_flag": True}


@pytest.fixture
async def config(real_stack: Stack, tmp_path: Path) -> AsyncIterator[Config]:
    """Moorage where the catalog says it is: `host1` and `host3` are wired to physnet4, `host2` and `host4` to physnet5."""
    wires = (("physnet1", "physnet4"), ("physnet2", "physnet5"))
    site = real_stack.site
    async with moorage_with_real_services(
        real_stack,
        tmp_path,
        Hosts(count=4, physical_networks=wires),
        compute_port=site.our_compute_port,
        placement_port=site.our_placement_port,
        reported=True,
    ) as started:
        yield started


@pytest.fixture
async def admin(real_stack: Stack, config: Config) -> AsyncIterator[ServicesClient]:
    context = ServicesClient(real_stack, config, "admin")
    yield context
    await context.close()


async def report(admin: ServicesClient, said: dict[str, Any]) -> None:
    """The agent's report reaches Neutron as every agent's does."""
    assert (await admin("agents", "POST", "", said))["agent_status"] in {"new", "alive", "revived"}


async def tree(admin: ServicesClient, host: str) -> dict[str, dict[str, Any]]:
    """The host's providers by name: their parent's name, traits and inventories."""
    root = (await admin("placement", "GET", f"/resource_providers?name={host}"))["resource_providers"][0]["uuid"]
    found = (await admin("placement", "GET", f"/resource_providers?in_tree={root}"))["resource_providers"]
    names = {each["uuid"]: each["name"] for each in found}
    seen: dict[str, dict[str, Any]] = {}
    for each in found:
        assert each["root_provider_uuid"] == root
        path = f"/resource_providers/{each['uuid']}"
        seen[each["name"]] = {
            "parent": names.get(each["parent_provider_uuid"]),
            "traits": set((await admin("placement", "GET", f"{path}/traits"))["traits"]),
            "inventories": (await admin("placement", "GET", f"{path}/inventories"))["inventories"],
        }
    return seen


async def assert_reported(admin: ServicesClient, said: dict[str, Any]) -> None:
    """The agent's report reached Neutron, and Placement knows what it says.

    An agent's `resources_synced` is no sign of it: Neutron may have said that of an earlier report, to another Placement.
    """
    await report(admin, said)
    agent, shares = f"{said['host']}:{AGENT}", said["configurations"]
    rates = shares["resource_provider_packet_processing_without_direction"]
    wanted = {
        **{
            f"{agent}:{device}": {
                "NET_BW_EGR_KILOBIT_PER_SEC": each["egress"],
                "NET_BW_IGR_KILOBIT_PER_SEC": each["ingress"],
            }
            for device, each in shares["resource_provider_bandwidths"].items()
        },
        agent: {"NET_PACKET_RATE_KILOPACKET_PER_SEC": rates[said["host"]]["any"]},
    }

    async def known() -> dict[str, dict[str, int]]:
        below = await tree(admin, said["host"])
        return {
            name: {kind: each["total"] for kind, each in below[name]["inventories"].items()}
            for name in wanted
            if name in below
        }

    await until(known, lambda seen: seen == wanted)


def stock(total: int) -> dict[str, Any]:
    return {**STOCK, "total": total, "max_unit": NO_LIMIT}


async def test_an_agents_report_becomes_bandwidth_under_the_hosts_provider(admin: ServicesClient) -> None:
    before = await tree(admin, "host1")
    assert not any(AGENT in name for name in before)
    await assert_reported(admin, state("host1", "physnet1", "physnet4", kbps=10_000_000, kpps=2_000))
    agent = f"host1:{AGENT}"
    expected = {
        **before,
        agent: {
            "parent": "host1",
            "traits": VNIC_TRAITS,
            "inventories": {"NET_PACKET_RATE_KILOPACKET_PER_SEC": stock(2_000)},
        },
        **{
            f"{agent}:{device}": {
                "parent": agent,
                "traits": VNIC_TRAITS | {trait},
                "inventories": {
                    "NET_BW_EGR_KILOBIT_PER_SEC": stock(10_000_000),
                    "NET_BW_IGR_KILOBIT_PER_SEC": stock(5_000_000),
                },
            }
            for device, trait in (
                ("br-physnet1", "CUSTOM_PHYSNET_PHYSNET1"),
                ("br-physnet4", "CUSTOM_PHYSNET_PHYSNET4"),
                (TUNNELS, "CUSTOM_NETWORK_TUNNEL_PROVIDER"),
            )
        },
    }
    assert await tree(admin, "host1") == expected
    asked = {
        "resources_host": "VCPU:1",
        "resources_port": "NET_BW_EGR_KILOBIT_PER_SEC:1000,NET_BW_IGR_KILOBIT_PER_SEC:1000",
        "required_port": "CUSTOM_PHYSNET_PHYSNET4,CUSTOM_VNIC_TYPE_NORMAL",
        "resources_rate": "NET_PACKET_RATE_KILOPACKET_PER_SEC:10",
        "same_subtree": "_port,_rate",
        "group_policy": "none",
    }
    found = await admin("placement", "GET", f"/allocation_candidates?{urlencode(asked)}")
    assert [
        {group: len(where) for group, where in each["mappings"].items()} for each in found["allocation_requests"]
    ] == [{"_host": 1, "_port": 1, "_rate": 1}]
    await report(
        admin, state("host1", "physnet1", "physnet4", kbps=4_000_000, kpps=1_000)
    )  # it started again, with less

    async def egress() -> Any:
        return (await tree(admin, "host1"))[f"{agent}:br-physnet4"]["inventories"]["NET_BW_EGR_KILOBIT_PER_SEC"]

    assert await until(egress, lambda now: now["total"] != 10_000_000) == stock(4_000_000)


class Routed:
    """A network on physnet4, its segment, and what our side says of that segment."""

    def __init__(self, admin: ServicesClient, network: str, segment: str) -> None:
        self.admin, self.network, self.segment = admin, network, segment

    async def subnet(self, cidr: str, *, dhcp: bool) -> str:
        asked = {"network_id": self.network, "ip_version": 4, "cidr": cidr, "segment_id": self.segment}
        made = await self.admin("network", "POST", "/subnets", {"subnet": {**asked, "enable_dhcp": dhcp}})
        return str(made["subnet"]["id"])

    async def addresses(self) -> Any:
        """The segment's inventory as (total, reserved), or the status instead of it."""
        path = f"/resource_providers/{self.segment}/inventories/IPV4_ADDRESS"
        reply = await self.admin.ask("placement", "GET", path)
        return (reply.json()["total"], reply.json()["reserved"]) if reply.is_success else reply.status_code

    async def until_addresses(self, wanted: object) -> None:
        await until(self.addresses, lambda seen: seen == wanted)

    async def aggregate(self) -> Any:
        """The aggregate of the Compute API that Neutron made for the segment."""
        found = (await self.admin("compute", "GET", "/os-aggregates"))["aggregates"]
        return next((each for each in found if each["name"] == f"Neutron segment id {self.segment}"), None)

    async def hosts(self) -> set[str]:
        return set((await self.aggregate())["hosts"])

    async def members(self, aggregate: str) -> set[str]:
        """Names of the providers that Placement has in an aggregate."""
        found = await self.admin("placement", "GET", f"/resource_providers?member_of={aggregate}")
        return {each["name"] for each in found["resource_providers"]}


@pytest.fixture
async def routed(admin: ServicesClient) -> AsyncIterator[Routed]:
    for host in ("host1", "host3"):
        await report(admin, state(host, "physnet1", "physnet4"))
    for host in ("host2", "host4"):
        await report(admin, state(host, "physnet2"))
    provider = {"provider:network_type": "vlan", "provider:physical_network": "physnet4"}
    asked = {"network": {"name": "reported", "shared": True, **provider}}
    network = (await admin("network", "POST", "/networks", asked))["network"]["id"]
    segment = (await admin("network", "GET", f"/segments?network_id={network}"))["segments"][0]["id"]
    yield Routed(admin, network, segment)
    await admin("network", "DELETE", f"/networks/{network}")


async def test_a_subnet_on_a_segment_becomes_provider_aggregate_hosts_and_addresses(
    admin: ServicesClient, routed: Routed
) -> None:
    subnet = await routed.subnet("10.40.0.0/28", dhcp=True)
    await routed.until_addresses((14, 2))  # 13 and the gateway; the gateway and a DHCP port are not for servers
    path = f"/resource_providers/{routed.segment}"
    provider = await admin("placement", "GET", path)
    assert provider["name"] == f"Neutron segment id {routed.segment}"
    inventory = (await admin("placement", "GET", f"{path}/inventories"))["inventories"]
    assert inventory == {"IPV4_ADDRESS": {**STOCK, "total": 14, "reserved": 2, "max_unit": 1}}
    aggregate = await routed.aggregate()
    assert set(aggregate["hosts"]) == {"host1", "host3"}
    assert (await admin("placement", "GET", f"{path}/aggregates"))["aggregates"] == [aggregate["uuid"]]
    assert await routed.members(aggregate["uuid"]) == {provider["name"], "host1", "host3"}

    fixed = [{"subnet_id": subnet, "ip_address": "10.40.0.9"}]
    port = {"network_id": routed.network, "fixed_ips": fixed, "device_owner": "network:router_gateway"}
    made = (await admin("network", "POST", "/ports", {"port": port}))["port"]["id"]
    await routed.until_addresses((14, 3))
    await admin("network", "DELETE", f"/ports/{made}")
    await routed.until_addresses((14, 2))

    second = await routed.subnet("10.40.1.0/28", dhcp=False)
    await routed.until_addresses((28, 3))
    await admin("network", "DELETE", f"/subnets/{second}")
    await routed.until_addresses((14, 2))

    await report(admin, state("host2", "physnet2", "physnet4"))
    await until(routed.hosts, lambda seen: seen == {"host1", "host2", "host3"})
    assert "host2" in await routed.members(aggregate["uuid"])
    await report(admin, state("host2", "physnet2"))
    await until(routed.hosts, lambda seen: seen == {"host1", "host3"})

    await admin("network", "DELETE", f"/subnets/{subnet}")
    await routed.until_addresses(404)
    await until(routed.aggregate, lambda seen: seen is None)
    assert (await admin.ask("placement", "GET", path)).status_code == 404
    assert await routed.members(aggregate["uuid"]) == set()


async def test_a_server_takes_one_of_the_addresses_neutron_reported(
    real_stack: Stack, config: Config, admin: ServicesClient, routed: Routed
) -> None:
    subnet = await routed.subnet("10.41.0.0/29", dhcp=False)
    await routed.until_addresses((6, 1))
    alice = ServicesClient(real_stack, config, "alice")
    image = await alice.upload("tiny")
    flavor = (await alice("compute", "GET", "/flavors"))["flavors"][0]["id"]
    order = {"name": "one", "imageRef": image, "flavorRef": flavor, "networks": [{"uuid": routed.network}]}
    server = (await alice("compute", "POST", "/servers", {"server": order}))["server"]["id"]
    await until_server(alice, server, "ACTIVE")
    shown = (await admin("compute", "GET", f"/servers/{server}"))["server"]
    assert shown["OS-EXT-SRV-ATTR:host"] in {"host1", "host3"}
    held = (await admin("placement", "GET", f"/allocations/{server}"))["allocations"]
    assert held[routed.segment]["resources"] == {"IPV4_ADDRESS": 1}
    assert await routed.addresses() == (6, 1)  # a server's port is claimed here, and not reserved by Neutron
    await alice("compute", "DELETE", f"/servers/{server}")
    await until(lambda: alice("network", "GET", f"/ports?network_id={routed.network}"), lambda left: not left["ports"])
    await until(lambda: admin("placement", "GET", f"/allocations/{server}"), lambda seen: not seen["allocations"])
    await admin("network", "DELETE", f"/subnets/{subnet}")
    await routed.until_addresses(404)
    await alice.close()


async def test_a_guaranteed_port_is_served_from_the_bandwidth_neutron_reported(
    real_stack: Stack, config: Config, admin: ServicesClient, routed: Routed
) -> None:
    """Of the two hosts on the segment one has bandwidth; the port's guarantee is claimed there, and Neutron binds with it."""
    await report(admin, state("host3", "physnet1", "physnet4", kbps=1_000_000, kpps=100))
    bridge = f"host3:{AGENT}:br-physnet4"
    below = await until(lambda: tree(admin, "host3"), lambda seen: bool(seen.get(bridge, {}).get("inventories")))
    assert below[bridge]["inventories"]["NET_BW_EGR_KILOBIT_PER_SEC"]["total"] == 1_000_000
    alice = ServicesClient(real_stack, config, "alice")
    image = await alice.upload("tiny")
    flavor = (await alice("compute", "GET", "/flavors"))["flavors"][0]["id"]
    subnet = await routed.subnet("10.42.0.0/29", dhcp=False)
    await routed.until_addresses((6, 1))
    policy = (await admin("network", "POST", "/qos/policies", {"policy": {"name": "sure", "shared": True}}))["policy"][
        "id"
    ]
    rule = {"minimum_bandwidth_rule": {"min_kbps": 700_000, "direction": "egress"}}
    await admin("network", "POST", f"/qos/policies/{policy}/minimum_bandwidth_rules", rule)

    async def boot(name: str) -> tuple[str, str]:
        asked = {"port": {"network_id": routed.network, "qos_policy_id": policy}}
        port = str((await alice("network", "POST", "/ports", asked))["port"]["id"])
        order = {"name": name, "imageRef": image, "flavorRef": flavor, "networks": [{"port": port}]}
        return port, str((await alice("compute", "POST", "/servers", {"server": order}))["server"]["id"])

    port, server = await boot("one")
    await until_server(alice, server, "ACTIVE")
    held = (await admin("placement", "GET", f"/allocations/{server}"))["allocations"]
    named = f"/resource_providers?name={bridge.replace(' ', '%20')}"
    provider = (await admin("placement", "GET", named))["resource_providers"][0]["uuid"]
    assert held[provider]["resources"] == {"NET_BW_EGR_KILOBIT_PER_SEC": 700_000}
    assert held[routed.segment]["resources"] == {"IPV4_ADDRESS": 1}
    bound = (await admin("network", "GET", f"/ports/{port}"))["port"]
    assert (bound["binding:host_id"], bound["binding:vif_type"]) == ("host3", "ovs")
    assert set(bound["binding:profile"]["allocation"].values()) == {provider}

    second, refused = await boot("two")  # 300,000 are left, and nowhere else are any

    async def status() -> Any:
        return (await alice("compute", "GET", f"/servers/{refused}"))["server"]["status"]

    assert await until(status, lambda seen: seen != "BUILD") == "ERROR"
    for each in (server, refused):
        await alice("compute", "DELETE", f"/servers/{each}")
    await until(lambda: admin("placement", "GET", f"/allocations/{server}"), lambda seen: not seen["allocations"])
    for each in (port, second):
        await alice("network", "DELETE", f"/ports/{each}")
    await admin("network", "DELETE", f"/subnets/{subnet}")
    await routed.until_addresses(404)
    await alice.close()
