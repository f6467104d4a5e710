"""Networks of hosts, from the records of agents in the format of Neutron 29: Open vSwitch, SR-IOV, Macvtap, and OVN's chassis."""

from typing import Any, cast

import httpx
import pytest

from moorage.clients.http import ServiceClient
from moorage.clients.network import NetworkClient
from moorage.conductor.reconcilers.segments import Segments
from moorage.model.network import NetworkFacts, Port, SegmentFacts, SubnetFacts
from moorage_testing.region_fixture import SmallRegion

ROW: dict[str, Any] = {"alive": True, "admin_state_up": True, "topic": "n/a", "description": "", "start_flag": True}


def chassis(host: str, mappings: str, kind: str = "OVN Controller agent") -> dict[str, Any]:
    """As `NeutronAgent.as_dict` of ML2/OVN makes it; `other_config:ovn-bridge-mappings` of the chassis is passed on as it is."""
    configurations = {"chassis_name": f"chassis-{host}", "bridge-mappings": mappings}
    return ROW | {
        "id": f"{kind}-{host}", "binary": "ovn-controller", "host": host, "agent_type": kind,
        "availability_zone": "", "heartbeat_timestamp": "2026-01-01 00:00:00", "configurations": configurations,
    }  # fmt: skip


AGENTS = [
    chassis("host1", "physnet1:br-ex,physnet2:br-2"),
    chassis("host1", "physnet1:br-ex,physnet2:br-2", "OVN Metadata agent"),
    chassis("host2", " physnet2:br-2 "),
    chassis("host3", "", "OVN Controller Gateway agent"),
    ROW | {"id": "ovs", "host": "host4", "agent_type": "Open vSwitch agent", "configurations": {
        "bridge_mappings": {"physnet1": "br-1"}, "tunnel_types": ["vxlan"]}},
    ROW | {"id": "sriov", "host": "host4", "agent_type": "NIC Switch agent", "configurations": {
        "device_mappings": {"physnet3": ["ens5", "ens6"]}}},
    ROW | {"id": "macvtap", "host": "host5", "agent_type": "Macvtap agent", "configurations": {
        "interface_mappings": {"physnet1": "eth1"}}},
]  # fmt: skip


def network() -> NetworkClient:
    way = httpx.MockTransport(lambda request: httpx.Response(200, json={"agents": AGENTS}))
    return NetworkClient(ServiceClient("network", "http://network", transport=way))


async def test_each_kind_of_agent_reports_its_hosts_networks() -> None:
    client = network()
    wired: dict[str, set[str]] = {}
    for each in await client.wirings():
        wired.setdefault(each.host, set()).update(each.physical_networks)
    assert wired == {
        "host1": {"physnet1", "physnet2"},
        "host2": {"physnet2"},
        "host3": set(),
        "host4": {"physnet1", "physnet3"},
        "host5": {"physnet1"},
    }
    await client.close()


@pytest.mark.parametrize(
    ("vnic_type", "dead", "nothing"),
    [
        ("normal", {"ovs"}, True),
        ("normal", {"sriov"}, False),
        ("direct", {"ovs"}, False),
        ("direct", {"ovs", "sriov"}, True),
    ],
)
async def test_ports_are_not_bound_when_all_agents_are_dead(vnic_type: str, dead: set[str], nothing: bool) -> None:
    """A DHCP agent that lives binds nothing; of a host without agents something else does."""
    rows = [each | {"alive": each["id"] not in dead} for each in AGENTS]
    rows.append(ROW | {"id": "dhcp", "host": "host4", "agent_type": "DHCP agent", "configurations": {"networks": 1}})
    way = httpx.MockTransport(lambda request: httpx.Response(200, json={"agents": rows}))
    client = NetworkClient(ServiceClient("network", "http://network", transport=way))
    port = Port(id="port1", network="network1", mac="fa:16:3e:00:00:01", vnic_type=vnic_type)
    assert await client.binds_nothing("host4", [port]) is nothing
    assert not await client.binds_nothing("host4", [])
    assert not await client.binds_nothing("host9", [port])
    await client.close()


async def test_ovn_hosts_are_linked_to_segments_by_their_agents() -> None:
    small, client = await SmallRegion.open(), network()
    segments = tuple(
        SegmentFacts(f"segment-{each}", name=each, physical_network=each, network="routed")
        for each in ("physnet1", "physnet2")
    )
    subnets = tuple(
        SubnetFacts(f"subnet-{each.name}", "10.0.0.0/24", segment=each.id, pools=(("10.0.0.10", "10.0.0.13"),))
        for each in segments
    )

    class Routed:
        """A routed network of two segments, beside the agents."""

        async def networks(self) -> list[NetworkFacts]:
            return [NetworkFacts(id="routed", name="routed", segments=segments, subnets=subnets)]

        async def ports_on(self, network: str) -> list[Any]:
            return []

        async def segments_gone(self, segments: Any) -> frozenset[str]:
            return frozenset()

        wirings = client.wirings

    await Segments(cast("Any", Routed()), small.engine).run()
    world = small.engine.world()
    wired = {
        each.name: {world.names[slot] for slot in range(world.size) if world.present[slot] and each.wired[slot]}
        for each in world.segments.values()
    }
    assert wired == {"routed/physnet1": {"host1"}, "routed/physnet2": {"host1", "host2"}}
    await client.close()
    await small.close()
