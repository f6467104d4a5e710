"""What the embedded network service tells a host about routers and floating addresses of its ports."""

from typing import Any

import pytest
from tests.api.test_embedded_network_descriptions import HERE, THERE, of_port
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
    body = await cloud.ok("POST", f"/{noun}s", {noun: said})
    return str(body[noun]["id"])


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
