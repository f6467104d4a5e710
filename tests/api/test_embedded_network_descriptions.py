"""Port descriptions that the embedded network service gives to a host: complete, only newer ones, and updated with everything they depend on."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.helpers.embedded_network_cloud import Cloud, cloud

from moorage.clients.network.decoding import devices_of
from moorage.model.network_providers import TUNNELLED, known
from moorage.model.port_description import (
    ADDRESSES_PER_PART,
    AllowedAddresses,
    ChangedHosts,
    FilterRule,
    HostDescriptions,
    PacketRate,
    PortDescription,
    Rate,
)
from moorage.model.route_description import SubnetHints
from moorage_embedded.network import port_descriptions, route_descriptions
from moorage_embedded.network.hosts import HostNetworks

__all__ = ["cloud"]
HERE, THERE = "real1", "real2"
BYTES_WITHOUT, BYTES_OF_NEIGHBOUR = 3_000, 60


async def described(cloud: Cloud, host: str = HERE, after: int = 0) -> HostDescriptions:
    body = await cloud.ok("GET", f"/port-descriptions?host={host}&after={after}")
    return msgspec.convert(body, HostDescriptions)


async def of_port(cloud: Cloud, port: str, host: str = HERE) -> PortDescription:
    return next(each for each in (await described(cloud, host)).ports if each.port == port)


async def group(cloud: Cloud, name: str = "g", **more: Any) -> str:
    made = await cloud.ok("POST", "/security-groups", {"security_group": {"name": name, "project_id": "p1"} | more})
    return str(made["security_group"]["id"])


async def rule(cloud: Cloud, **said: Any) -> str:
    made = await cloud.ok("POST", "/security-group-rules", {"security_group_rule": said})
    return str(made["security_group_rule"]["id"])


@pytest.fixture
async def network(cloud: Cloud) -> str:
    await cloud.service.declare_hosts(
        [
            HostNetworks(each, ("physnet1",), 1_000_000, plugs_into_bridges=True, filters_ports=True)
            for each in (HERE, THERE)
        ]
    )
    made = await cloud.ok("POST", "/networks", {"network": {"name": "n", "project_id": "p1"}})
    network: str = made["network"]["id"]
    subnet = {"network_id": network, "cidr": "10.9.0.0/24", "ip_version": 4, "project_id": "p1"}
    await cloud.ok("POST", "/subnets", {"subnet": subnet})
    return network


async def test_a_bound_port_has_a_description_and_its_binding_says_that_it_is_filtered(
    cloud: Cloud, network: str
) -> None:
    web = await group(cloud)
    await rule(cloud, security_group_id=web, direction="ingress", protocol="tcp", port_range_min=80, port_range_max=81)
    await rule(cloud, security_group_id=web, direction="ingress", remote_group_id=web, ethertype="IPv6")
    pairs = [{"ip_address": "10.9.0.128/25", "mac_address": "02:00:00:00:00:09"}, {"ip_address": "fd00::7"}]
    port = await cloud.port(network, security_groups=[web], allowed_address_pairs=pairs)
    assert (await described(cloud)).ports == ()
    bound = await cloud.bind(port["id"], HERE)
    assert bound["binding:vif_details"]["port_filter"] is True
    found = await of_port(cloud, port["id"])
    assert found.filter is not None
    assert found.filter.stateful
    assert found.up
    assert found.filter.allowed == tuple(
        sorted(
            (
                AllowedAddresses("02:00:00:00:00:09", ("10.9.0.128/25",)),
                AllowedAddresses(port["mac_address"], tuple(sorted((port["fixed_ips"][0]["ip_address"], "fd00::7")))),
            ),
            key=lambda each: each.mac,
        )
    )
    assert set(found.filter.rules) == {
        FilterRule("ingress", 4, 6, 80, 81),
        FilterRule("ingress", 6, members=web),
        FilterRule("egress", 4),
        FilterRule("egress", 6),
    }
    sets = (await described(cloud)).sets
    assert [(each.id, set(each.addresses)) for each in sets] == [
        (web, {port["fixed_ips"][0]["ip_address"], "fd00::7", "10.9.0.128/25"})
    ]
    assert (await described(cloud, THERE)).present.ports == ()


async def test_a_change_of_a_subnets_dhcp_options_is_described(cloud: Cloud, network: str) -> None:
    port = await cloud.port(network)
    await cloud.bind(port["id"], HERE)
    before, subnet = await described(cloud), port["fixed_ips"][0]["subnet_id"]
    assert before.ports[0].subnets == (SubnetHints(subnet),)
    said = {"dns_nameservers": ["9.8.7.6"], "host_routes": [{"destination": "10.1.0.0/16", "nexthop": "10.9.0.7"}]}
    await cloud.ok("PUT", f"/subnets/{subnet}", {"subnet": said})
    [now] = (await described(cloud, after=before.version)).ports
    assert now.subnets == (SubnetHints(subnet, ("9.8.7.6",), (("10.1.0.0/16", "10.9.0.7"),)),)


async def test_only_changed_ports_get_a_newer_version(cloud: Cloud, network: str) -> None:
    web = await group(cloud)
    first, second = [await cloud.port(network, security_groups=[each]) for each in (web, await group(cloud, "other"))]
    for each in (first, second):
        await cloud.bind(each["id"], HERE)
    before = await described(cloud)
    assert {each.port for each in before.ports} == {first["id"], second["id"]} == set(before.present.ports)
    assert (await described(cloud, after=before.version)).ports == ()
    added = await rule(cloud, security_group_id=web, direction="ingress", protocol="icmp")
    after = await described(cloud, after=before.version)
    assert [each.port for each in after.ports] == [first["id"]]
    assert after.version > before.version
    assert set(after.present.ports) == set(before.present.ports)
    await cloud.ok("DELETE", f"/security-group-rules/{added}")
    again = await described(cloud, after=after.version)
    assert again.version > after.version
    assert [each.port for each in again.ports] == [first["id"]]
    await cloud.ok("PUT", f"/ports/{second['id']}", {"port": {"name": "another"}})
    assert (await described(cloud, after=again.version)).ports == ()


async def test_group_members_on_other_hosts_are_added_and_removed(cloud: Cloud, network: str) -> None:
    web = await group(cloud)
    await rule(cloud, security_group_id=web, direction="ingress", remote_group_id=web)
    mine = await cloud.port(network, security_groups=[web])
    await cloud.bind(mine["id"], HERE)
    before = await described(cloud)
    other = await cloud.port(network, security_groups=[web])
    await cloud.bind(other["id"], THERE)
    after = await described(cloud, after=before.version)
    addresses = {each["fixed_ips"][0]["ip_address"] for each in (mine, other)}
    assert after.ports == ()
    assert [set(each.addresses) for each in after.sets] == [addresses]
    await cloud.ok("DELETE", f"/ports/{other['id']}")
    assert (await described(cloud, THERE)).version > 0, "that a port went is newer too"
    gone = await described(cloud, after=after.version)
    assert [set(each.addresses) for each in gone.sets] == [{mine["fixed_ips"][0]["ip_address"]}]


async def test_large_groups_are_sent_in_parts(cloud: Cloud, network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_descriptions, "ADDRESSES_PER_PART", 10)
    listed = [f"192.0.2.{number}/32" for number in range(25)]
    made = await cloud.ok(
        "POST", "/address-groups", {"address_group": {"name": "a", "addresses": listed, "project_id": "p1"}}
    )
    web = await group(cloud)
    await rule(cloud, security_group_id=web, direction="ingress", remote_address_group_id=made["address_group"]["id"])
    port = await cloud.port(network, security_groups=[web])
    await cloud.bind(port["id"], HERE)
    sets = (await described(cloud)).sets
    assert [(each.part, each.parts, len(each.addresses)) for each in sets] == [(0, 3, 10), (1, 3, 10), (2, 3, 5)]
    assert {address for each in sets for address in each.addresses} == set(listed)
    assert ADDRESSES_PER_PART * 48 < 512 * 1024, "a part is to stay well below what the broker lets through"


async def test_port_security_state_and_qos_follow(cloud: Cloud, network: str) -> None:
    port = await cloud.port(network)
    await cloud.bind(port["id"], HERE)
    path = f"/ports/{port['id']}"
    await cloud.ok("PUT", path, {"port": {"security_groups": [], "port_security_enabled": False}})
    assert (await of_port(cloud, port["id"])).filter is None
    await cloud.ok("PUT", path, {"port": {"port_security_enabled": True, "admin_state_up": False}})
    found = await of_port(cloud, port["id"])
    assert found.filter is not None
    assert not found.up
    assert found.filter.rules == ()

    policy = (await cloud.ok("POST", "/qos/policies", {"policy": {"name": "q", "project_id": "p1"}}))["policy"]["id"]
    rules = f"/qos/policies/{policy}"
    limit = {"max_kbps": 5000, "max_burst_kbps": 400, "direction": "ingress"}
    made = await cloud.ok("POST", f"{rules}/bandwidth_limit_rules", {"bandwidth_limit_rule": limit})
    packets = {"max_kpps": 3, "max_burst_kpps": 1, "direction": "egress"}
    await cloud.ok("POST", f"{rules}/packet_rate_limit_rules", {"packet_rate_limit_rule": packets})
    await cloud.ok("POST", f"{rules}/dscp_marking_rules", {"dscp_marking_rule": {"dscp_mark": 26}})
    await cloud.ok("PUT", f"/networks/{network}", {"network": {"qos_policy_id": policy}})
    found = await of_port(cloud, port["id"])
    assert found.bandwidth is not None
    assert found.bandwidth.ingress == Rate(5000, 400)
    assert found.bandwidth.dscp == 26
    assert found.bandwidth.egress_packets == PacketRate(3_000, 1_000)
    assert found.bandwidth.ingress_packets == PacketRate()
    changed = f"{rules}/bandwidth_limit_rules/{made['bandwidth_limit_rule']['id']}"
    await cloud.ok("PUT", changed, {"bandwidth_limit_rule": {"max_kbps": 9000}})
    found = await of_port(cloud, port["id"])
    assert found.bandwidth is not None
    assert found.bandwidth.ingress == Rate(9000, 400)


async def test_a_port_that_waits_for_its_guest_is_described_at_both_hosts(cloud: Cloud, network: str) -> None:
    port = await cloud.port(network)
    await cloud.bind(port["id"], HERE)
    await cloud.ok("POST", f"/ports/{port['id']}/bindings", {"binding": {"host": THERE}})
    assert [(await described(cloud, each)).present.ports for each in (HERE, THERE)] == [(port["id"],)] * 2
    await cloud.ok("PUT", f"/ports/{port['id']}/bindings/{THERE}/activate", {})
    assert [(await described(cloud, each)).present.ports for each in (HERE, THERE)] == [(), (port["id"],)]


async def test_the_hosts_inventory_is_reported_to_placement(cloud: Cloud, network: str) -> None:
    rows = (await cloud.get("/agents", host=HERE))["agents"]
    (found,) = [devices_of(row) for row in rows]
    assert known(found.kind)
    assert found.hypervisors == dict.fromkeys(found.bandwidths, HERE)
    assert set(found.bandwidths) == {"br-physnet1", TUNNELLED}
    assert found.bandwidths[TUNNELLED] == {"egress": 1_000_000, "ingress": 1_000_000}


async def test_ports_that_an_earlier_release_bound_are_described_too(cloud: Cloud, network: str) -> None:
    await cloud.service.declare_hosts([HostNetworks(HERE, ("physnet1",), plugs_into_bridges=True)])
    port = await cloud.port(network)
    assert (await cloud.bind(port["id"], HERE))["binding:vif_details"]["port_filter"] is False
    assert (await described(cloud)).present.ports == ()
    await cloud.service.declare_hosts([HostNetworks(HERE, ("physnet1",), plugs_into_bridges=True, filters_ports=True)])
    assert (await described(cloud)).present.ports == (port["id"],)


async def a_router_between(cloud: Cloud, *networks: str) -> str:
    made = (await cloud.ok("POST", "/routers", {"router": {"name": "r", "project_id": "p1"}}))["router"]["id"]
    for each in networks:
        subnets = (await cloud.get("/subnets", network_id=each))["subnets"]
        await cloud.ok("PUT", f"/routers/{made}/add_router_interface", {"subnet_id": subnets[0]["id"]})
    return str(made)


async def another_network(cloud: Cloud, cidr: str = "10.8.0.0/16") -> str:
    made = (await cloud.ok("POST", "/networks", {"network": {"name": "m", "project_id": "p1"}}))["network"]["id"]
    subnet = {"network_id": made, "cidr": cidr, "ip_version": 4, "project_id": "p1"}
    await cloud.ok("POST", "/subnets", {"subnet": subnet})
    return str(made)


def neighbours_in(found: HostDescriptions) -> dict[str, str]:
    return {one.address: one.mac for each in found.sets for one in each.arp_entries}


async def test_routers_bring_the_neighbours_of_their_networks(cloud: Cloud, network: str) -> None:
    other = await another_network(cloud)
    here, far = await cloud.port(network), await cloud.port(other)
    await cloud.bind(here["id"], HERE)
    await cloud.bind(far["id"], THERE)
    assert neighbours_in(await described(cloud)) == {}, "they have no router"
    await a_router_between(cloud, network, other)
    found = await described(cloud)
    told = {each["fixed_ips"][0]["ip_address"]: each["mac_address"] for each in (here, far)}
    assert neighbours_in(found) == neighbours_in(await described(cloud, THERE)) == told
    [router] = found.ports[0].routers
    assert {each.network for each in router.subnets} == {network, other}
    assert all(each.segmentation_id and each.mtu for each in router.subnets)
    assert found.ports[0].bound

    # Who comes is in one set that changes, and so is who goes; ports that nobody has are in none.
    await cloud.port(other)
    more = await cloud.port(other)
    assert neighbours_in(await described(cloud, after=found.version)) == {}
    await cloud.bind(more["id"], THERE)
    after = await described(cloud, after=found.version)
    assert len([each for each in after.sets if each.arp_entries]) == 1
    assert more["fixed_ips"][0]["ip_address"] in neighbours_in(after)
    assert after.ports == ()
    await cloud.ok("DELETE", f"/ports/{more['id']}")
    assert more["fixed_ips"][0]["ip_address"] not in neighbours_in(await described(cloud))

    # Nobody else is anywhere else: the host knows its own guests.
    await cloud.ok("DELETE", f"/ports/{far['id']}")
    gone = await described(cloud)
    assert neighbours_in(gone) == {}
    assert gone.present.sets == tuple(each for each in gone.present.sets if "neighbours" not in each)


async def test_a_port_that_is_on_its_way_is_bound_at_one_host(cloud: Cloud, network: str) -> None:
    port = await cloud.port(network)
    await cloud.bind(port["id"], HERE)
    await cloud.ok("POST", f"/ports/{port['id']}/bindings", {"binding": {"host": THERE}})
    assert [(await of_port(cloud, port["id"], each)).bound for each in (HERE, THERE)] == [True, False]
    await cloud.ok("PUT", f"/ports/{port['id']}/bindings/{THERE}/activate", {})
    assert (await of_port(cloud, port["id"], THERE)).bound


@pytest.mark.parametrize("count", [10, 300, 3_000])
async def test_neighbours_are_limited_and_a_change_is_small(cloud: Cloud, network: str, count: int) -> None:
    """What a host is told at first grows with the network, and what it is told of a change does not."""
    await cloud.ok("PUT", "/quotas/p1", {"quota": {"port": -1}})
    other = await another_network(cloud)
    here = await cloud.port(network)
    await cloud.bind(here["id"], HERE)
    body = {"network_id": other, "project_id": "p1", "binding:host_id": THERE, "security_groups": []}
    for at in range(0, count, 100):
        ports = [body] * min(100, count - at)
        await cloud.ok("POST", "/ports", {"ports": ports})
    await a_router_between(cloud, network, other)
    first = await described(cloud)
    assert len(neighbours_in(first)) == count + 1
    await cloud.bind((await cloud.port(other, security_groups=[]))["id"], THERE)
    change = await described(cloud, after=first.version)
    assert len(neighbours_in(change)) <= 256
    whole, small = (len(msgspec.json.encode(each)) for each in (first, change))
    print(f"{count} neighbours: {whole} bytes at first, {small} of a change")  # noqa: T201 - a measure
    assert whole < BYTES_WITHOUT + count * BYTES_OF_NEIGHBOUR
    assert small < BYTES_WITHOUT + 256 * BYTES_OF_NEIGHBOUR


async def test_the_number_of_neighbours_of_a_network_is_limited(
    cloud: Cloud, network: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(route_descriptions, "ARP_ENTRIES_MAX", 2)
    other = await another_network(cloud)
    await cloud.bind((await cloud.port(network))["id"], HERE)
    for _ in range(3):
        await cloud.bind((await cloud.port(other))["id"], THERE)
    await a_router_between(cloud, network, other)
    assert len(neighbours_in(await described(cloud))) == 3
    assert "has 3 neighbours, of which hosts are told 2" in caplog.text


async def changed(cloud: Cloud, after: int, wait_s: int = 0) -> ChangedHosts:
    return msgspec.convert(await cloud.get("/port-descriptions", after=after, wait_s=wait_s), ChangedHosts)


async def test_changed_hosts_are_returned_at_once_or_waited_for(cloud: Cloud, network: str) -> None:
    port = await cloud.port(network)
    await cloud.bind(port["id"], HERE)
    first = await changed(cloud, 0)
    assert first.hosts == (HERE, THERE), "those that wire by descriptions, at first"
    assert (await described(cloud, HERE)).version <= first.version
    assert await changed(cloud, first.version) == ChangedHosts(first.version)
    waiting = asyncio.create_task(changed(cloud, first.version, 20))
    await cloud.ok("POST", "/networks", {"network": {"name": "unused", "project_id": "p1"}})
    await cloud.ok("PUT", f"/ports/{port['id']}", {"port": {"admin_state_up": False}})
    async with asyncio.timeout(15):
        second = await waiting
    assert second.hosts == (HERE,), "the other network is on no host"
    assert second.version > first.version
    [told] = (await described(cloud, after=first.version)).ports
    assert not told.up
    assert await changed(cloud, second.version) == ChangedHosts(second.version), "it was not described anew since"


async def test_waiting_requests_end_when_the_service_stops(cloud: Cloud, network: str) -> None:
    first = await changed(cloud, 0)
    waiting = asyncio.create_task(changed(cloud, first.version, 25))
    cloud.service.end_waits()
    async with asyncio.timeout(15):
        assert (await waiting).hosts == ()


async def test_who_may_read_descriptions(cloud: Cloud, network: str) -> None:
    for query in (
        "",
        "?host=",
        "?host=&wait_s=1",
        "?wait_s=x",
        "?wait_s=1000",
        "?wait_s=1&after=x",
        "?host=a&after=x",
        "?host=a&after=-1",
        f"?host={'a' * 300}",
    ):
        assert (await cloud.call("GET", f"/port-descriptions{query}")).status_code == 400
    for token in ("member", "reader", "stranger"):
        for query in ("host=a", "wait_s=0"):
            assert (await cloud.call("GET", f"/port-descriptions?{query}", token=token)).status_code == 403


@pytest.mark.parametrize(
    "said",
    [
        {"remote_ip_prefix": "fe80::1%x", "ethertype": "IPv6"},
        {"remote_ip_prefix": "fe80::1%x/64", "ethertype": "IPv6"},
        {"protocol": "0001000"},
        {"protocol": "256"},
        {"protocol": "9" * 5000},
    ],
)
async def test_a_rule_that_no_host_could_express_is_refused(cloud: Cloud, network: str, said: dict[str, Any]) -> None:
    body = {"security_group_rule": {"security_group_id": await group(cloud), "direction": "ingress"} | said}
    assert (await cloud.call("POST", "/security-group-rules", body)).status_code == 400


async def test_addresses_with_a_zone_are_refused_everywhere(cloud: Cloud, network: str) -> None:
    for address in ("fe80::1%x", "fe80::1%x/128"):
        pair = {"port": {"network_id": network, "project_id": "p1", "allowed_address_pairs": [{"ip_address": address}]}}
        assert (await cloud.call("POST", "/ports", pair)).status_code == 400
    body = {"address_group": {"name": "a", "addresses": ["fe80::%x/64"], "project_id": "p1"}}
    assert (await cloud.call("POST", "/address-groups", body)).status_code == 400
