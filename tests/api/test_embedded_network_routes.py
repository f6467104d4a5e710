"""What the embedded network service tells a host about routers and floating addresses of its ports."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.api.test_embedded_network_descriptions import HERE, THERE, described, neighbours_in, of_port
from tests.helpers.embedded_network_cloud import Cloud, cloud

from moorage.model.ids import NetworkId
from moorage.model.route_description import (
    ExternalNetwork,
    FloatingAddress,
    RoutedSubnet,
    RouterDescription,
    StaticRoute,
)
from moorage_embedded.network.hosts import HostNetworks

__all__ = ["cloud"]


async def made(cloud: Cloud, noun: str, **said: Any) -> str:
    key = noun.replace("-", "_")
    body = await cloud.ok("POST", f"/{noun}s", {key: said})
    return str(body[key]["id"])


async def routed_subnet(cloud: Cloud, network: str, cidr: str, gateway: str) -> RoutedSubnet:
    """As other hosts reach it: by the number and the MTU of its network."""
    shown = (await cloud.ok("GET", f"/networks/{network}", None))["network"]
    return RoutedSubnet(NetworkId(network), cidr, gateway, shown["provider:segmentation_id"], shown["mtu"])


@pytest.fixture
async def inside(cloud: Cloud) -> tuple[str, str]:
    """A network and its subnet, and two hosts that filter."""
    hosts = [
        HostNetworks(each, ("physnet1",), 1_000_000, plugs_into_bridges=True, filters_ports=True)
        for each in (HERE, THERE)
    ]
    await cloud.service.declare_hosts(hosts)
    network = await made(cloud, "network", name="n")
    return network, await made(cloud, "subnet", network_id=network, cidr="10.9.0.0/24", ip_version=4)


async def test_routers_and_floating_addresses_are_created_and_deleted(cloud: Cloud, inside: tuple[str, str]) -> None:
    network, subnet = inside
    port = await cloud.port(network)
    await cloud.bind(port["id"], HERE)
    plain = await of_port(cloud, port["id"])
    assert (plain.floating, plain.routers) == ((), ())

    outer: dict[str, Any] = {
        "router:external": True,
        "provider:network_type": "flat",
        "provider:physical_network": "physnet1",
    }
    public = await made(cloud, "network", name="public", **outer)
    await made(cloud, "subnet", network_id=public, cidr="203.0.113.0/24", ip_version=4, enable_dhcp=False)
    other = await made(cloud, "network", name="other")
    other_subnet = await made(cloud, "subnet", network_id=other, cidr="10.8.0.0/24", ip_version=4)
    routes = [{"destination": "10.7.0.0/16", "nexthop": "10.8.0.9"}]
    router = await made(cloud, "router", external_gateway_info={"network_id": public})
    for each in (subnet, other_subnet):
        await cloud.ok("PUT", f"/routers/{router}/add_router_interface", {"subnet_id": each})
    told = (await cloud.ok("PUT", f"/routers/{router}", {"router": {"routes": routes}}))["router"]
    external = ExternalNetwork(NetworkId(public), "physnet1", "203.0.113.0/24", "203.0.113.1")
    expected = RouterDescription(
        router,
        (
            await routed_subnet(cloud, other, "10.8.0.0/24", "10.8.0.1"),
            await routed_subnet(cloud, network, "10.9.0.0/24", "10.9.0.1"),
        ),
        external,
        told["external_gateway_info"]["external_fixed_ips"][0]["ip_address"],
        True,
        (StaticRoute("10.7.0.0/16", "10.8.0.9"),),
    )
    routed = await of_port(cloud, port["id"])
    assert routed.routers == (expected,)
    assert routed.version > plain.version

    floating = (
        await cloud.ok("POST", "/floatingips", {"floatingip": {"floating_network_id": public, "port_id": port["id"]}})
    )["floatingip"]
    found = await of_port(cloud, port["id"])
    fixed = port["fixed_ips"][0]["ip_address"]
    assert found.floating == (FloatingAddress(floating["floating_ip_address"], fixed, external),)

    # A guest that is on its way has its address where it still is, and then where it is.
    binding = {"host": THERE, "vnic_type": "normal"}
    await cloud.ok("POST", f"/ports/{port['id']}/bindings", {"binding": binding})
    coming = await of_port(cloud, port["id"], THERE)
    assert (coming.floating, coming.routers) == ((), (expected,))
    await cloud.ok("PUT", f"/ports/{port['id']}/bindings/{THERE}/activate", None)
    assert (await of_port(cloud, port["id"], THERE)).floating == found.floating

    await cloud.ok("PUT", f"/floatingips/{floating['id']}", {"floatingip": {"port_id": None}})
    assert (await of_port(cloud, port["id"], THERE)).floating == ()
    await cloud.ok("PUT", f"/routers/{router}", {"router": {"admin_state_up": False}})
    assert (await of_port(cloud, port["id"], THERE)).routers == ()


async def test_the_way_by_ipv6_is_told_to_one_host(cloud: Cloud, inside: tuple[str, str]) -> None:
    """The first by name that has a guest of the router's; it is told who the others are, and by IPv6 alone."""
    network, _ = inside
    slaac = {"ip_version": 6, "ipv6_address_mode": "slaac", "ipv6_ra_mode": "slaac"}
    subnet = await made(cloud, "subnet", network_id=network, cidr="2001:db8:77::/64", **slaac)
    public = await made(cloud, "network", name="public", **{"router:external": True, "provider:network_type": "flat", "provider:physical_network": "physnet1"})  # fmt: skip
    four = await made(cloud, "subnet", network_id=public, cidr="203.0.113.0/24", ip_version=4, enable_dhcp=False)
    await made(cloud, "subnet", network_id=public, cidr="2001:db8::/64", ip_version=6, enable_dhcp=False)
    assert four
    routes = [{"destination": "2001:db8:99::/48", "nexthop": "2001:db8:77::9"}]
    router = await made(cloud, "router", external_gateway_info={"network_id": public})
    here, there = await cloud.port(network), await cloud.port(network)
    await cloud.bind(here["id"], HERE)
    await cloud.bind(there["id"], THERE)
    await cloud.ok("PUT", f"/routers/{router}/add_router_interface", {"subnet_id": subnet})
    told = (await cloud.ok("PUT", f"/routers/{router}", {"router": {"routes": routes}}))["router"]
    own = [each["ip_address"] for each in told["external_gateway_info"]["external_fixed_ips"]]
    expected = RouterDescription(
        router,
        (),
        ExternalNetwork(NetworkId(public), "physnet1", "203.0.113.0/24", "203.0.113.1", "2001:db8::/64", "2001:db8::1"),
        next(each for each in own if ":" not in each),
        True,
        (StaticRoute("2001:db8:99::/48", "2001:db8:77::9"),),
        (await routed_subnet(cloud, network, "2001:db8:77::/64", "2001:db8:77::1"),),
        next(each for each in own if ":" in each),
    )
    ports = {HERE: here, THERE: there}
    first, second = sorted(ports)
    [one], [two] = [(await of_port(cloud, ports[each]["id"], each)).routers for each in (first, second)]
    since = one.subnets6[0].since
    assert since > 0
    expected = replace(expected, subnets6=(replace(expected.subnets6[0], since=since),))
    assert one == expected
    assert two == replace(expected, address6="")
    six = {
        each["ip_address"]: port["mac_address"]
        for port in (here, there)
        for each in port["fixed_ips"]
        if ":" in each["ip_address"]
    }
    assert len(six) == 2
    assert neighbours_in(await described(cloud)) == neighbours_in(await described(cloud, THERE)) == six

    # It has no guest any more, and the next one has the address.
    await cloud.ok("DELETE", f"/ports/{ports[first]['id']}")
    assert (await of_port(cloud, ports[second]["id"], second)).routers == (expected,)
    assert neighbours_in(await described(cloud, second)) == {}, "nobody else is anywhere else"


async def test_an_address_scope_of_the_outside_decides_what_is_routed_there(
    cloud: Cloud, inside: tuple[str, str]
) -> None:
    """By IPv6, which is not translated; as it is when the scope comes."""
    network, _ = inside
    six = {"ip_version": 6, "ipv6_address_mode": "slaac", "ipv6_ra_mode": "slaac"}
    shared = await made(cloud, "subnetpool", name="p", prefixes=["2001:db8::/48"], default_prefixlen=64, shared=True)
    public = await made(cloud, "network", name="public", **{"router:external": True, "provider:network_type": "flat", "provider:physical_network": "physnet1"})  # fmt: skip
    await made(cloud, "subnet", network_id=public, subnetpool_id=shared, ip_version=6, enable_dhcp=False)
    other = await made(cloud, "network", name="of the pool")
    subnets = [
        await made(cloud, "subnet", network_id=network, cidr="2001:db8:77::/64", **six),
        await made(cloud, "subnet", network_id=other, subnetpool_id=shared, **six),
    ]
    router = await made(cloud, "router", external_gateway_info={"network_id": public})
    for each in subnets:
        await cloud.ok("PUT", f"/routers/{router}/add_router_interface", {"subnet_id": each})
    port = await cloud.port(network)
    await cloud.bind(port["id"], HERE)

    async def outside() -> dict[str, bool]:
        [told] = (await of_port(cloud, port["id"])).routers
        return {each.network: each.outside for each in told.subnets6}

    assert await outside() == {network: True, other: True}, "nobody has a scope"
    scope = await made(cloud, "address-scope", name="s", ip_version=6, shared=True)
    await cloud.ok("PUT", f"/subnetpools/{shared}", {"subnetpool": {"address_scope_id": scope}})
    assert await outside() == {network: False, other: True}


async def test_a_router_has_the_addresses_that_it_is_given(cloud: Cloud, inside: tuple[str, str]) -> None:
    """On a subnet whose addresses are made of MACs it is the gateway, whatever its MAC is, and it has none there by itself."""
    network, four = inside
    slaac = {"ip_version": 6, "ipv6_address_mode": "slaac", "ipv6_ra_mode": "slaac"}
    six = await made(cloud, "subnet", network_id=network, cidr="fd77::/64", **slaac)
    router = await made(cloud, "router", name="r")
    for subnet, address in ((four, "10.9.0.1"), (six, "fd77::1")):
        found = await cloud.ok("PUT", f"/routers/{router}/add_router_interface", {"subnet_id": subnet})
        port = (await cloud.get(f"/ports/{found['port_id']}"))["port"]
        assert port["fixed_ips"] == [{"subnet_id": subnet, "ip_address": address}]
    refused = await cloud.call("DELETE", f"/subnets/{six}", None)
    assert refused.status_code == 409
    assert refused.json()["NeutronError"]["type"] == "SubnetInUse"
    await cloud.ok("PUT", f"/routers/{router}/remove_router_interface", {"subnet_id": six})
    await cloud.ok("DELETE", f"/subnets/{six}")
