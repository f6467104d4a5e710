"""Gateways of routers, subports of trunks, and texts that hosts write into files, in the embedded network service."""

from typing import Any

import pytest
from tests.helpers.embedded_network_cloud import Cloud, cloud

__all__ = ["cloud"]


async def _router(cloud: Cloud) -> tuple[Any, Any, Any]:
    """A router of p1 with a gateway, the subnet of that, and a floating address that goes through it."""
    net, subnet = await cloud.flat_network()
    outside = await cloud.service.seed_network("outside", "ops", **{"router:external": True})
    on = await cloud.service.seed_subnet("outside-v4", outside, "203.0.113.0/24")
    body = {"router": {"external_gateway_info": {"network_id": outside["id"]}}}
    router = (await cloud.ok("POST", "/routers", body, token="member"))["router"]
    await cloud.ok("PUT", f"/routers/{router['id']}/add_router_interface", {"subnet_id": subnet["id"]}, token="member")
    port = await cloud.port(net["id"])
    said = {"floatingip": {"floating_network_id": outside["id"], "port_id": port["id"]}}
    return router, on, (await cloud.ok("POST", "/floatingips", said, token="member"))["floatingip"]


async def _door(cloud: Cloud, router: Any) -> Any:
    asked = {"device_id": router["id"], "device_owner": "network:router_gateway"}
    (port,) = (await cloud.get("/ports", **asked))["ports"]
    return port


async def test_a_gateway_on_the_same_network_keeps_its_port(cloud: Cloud) -> None:
    router, on, _ = await _router(cloud)
    first = await _door(cloud, router)
    (held,) = router["external_gateway_info"]["external_fixed_ips"]
    other = {"subnet_id": on["id"], "ip_address": "203.0.113.60"}
    body: dict[str, Any] = {}
    for asked, expected in (
        ([held], [held]),
        ([held, {"subnet_id": on["id"]}], [held]),  # an entry without an address says nothing new
        ([{"subnet_id": on["id"]}], None),  # its own is not named: it may get another
        ([other], [other]),
        ([], [other]),
    ):
        info = {"network_id": on["network_id"], "external_fixed_ips": asked}
        body = {"router": {"external_gateway_info": info}}
        shown = (await cloud.ok("PUT", f"/routers/{router['id']}", body))["router"]["external_gateway_info"]
        now = await _door(cloud, router)
        assert now["id"] == first["id"]
        assert now["fixed_ips"] == shown["external_fixed_ips"]
        if expected is not None:
            assert now["fixed_ips"] == expected
    unchanged = (await _door(cloud, router))["revision_number"]
    await cloud.ok("PUT", f"/routers/{router['id']}", body)
    assert (await _door(cloud, router))["revision_number"] == unchanged


async def test_a_gateway_with_floating_addresses_does_not_leave_its_network(cloud: Cloud) -> None:
    router, _, floating = await _router(cloud)
    other = await cloud.service.seed_network("other", "ops", **{"router:external": True})
    await cloud.service.seed_subnet("other-v4", other, "198.51.100.0/24")
    path = f"/routers/{router['id']}"
    for info in (None, {"network_id": other["id"]}):
        refused = await cloud.call("PUT", path, {"router": {"external_gateway_info": info}})
        kind = refused.json()["NeutronError"]["type"]
        assert (refused.status_code, kind) == (409, "RouterExternalGatewayInUseByFloatingIp")
    await cloud.ok("DELETE", f"/floatingips/{floating['id']}")
    first = await _door(cloud, router)
    await cloud.ok("PUT", path, {"router": {"external_gateway_info": {"network_id": other["id"]}}}, token="member")
    now = await _door(cloud, router)
    assert (now["id"] != first["id"], now["network_id"]) == (True, other["id"])


async def test_who_may_say_what_of_a_gateway(cloud: Cloud) -> None:
    router, on, _ = await _router(cloud)
    path, info = f"/routers/{router['id']}", {"network_id": on["network_id"]}
    for more in ({"enable_snat": False}, {"external_fixed_ips": [{"subnet_id": on["id"]}]}):
        body = {"router": {"external_gateway_info": info | more}}
        refused = await cloud.call("PUT", path, body, token="member")
        assert (refused.status_code, "update_router:external_gateway_info" in refused.text) == (403, True)
    shown = (await cloud.ok("PUT", path, {"router": {"external_gateway_info": info | {"enable_snat": False}}}))[
        "router"
    ]
    assert shown["external_gateway_info"]["enable_snat"] is False
    shown = (await cloud.ok("PUT", path, {"router": {"external_gateway_info": info}}, token="member"))["router"]
    assert shown["external_gateway_info"]["enable_snat"] is True  # what is not said is the default
    said = info | {"external_fixed_ips": [{"ip_address": on["gateway_ip"]}]}
    refused = await cloud.call("PUT", path, {"router": {"external_gateway_info": said}})
    assert (refused.status_code, "same as the gateway IP" in refused.text) == (400, True)


async def test_policies_that_nothing_would_follow_are_refused(cloud: Cloud) -> None:
    """The extensions qos-gateway-ip and qos-fip are not there; so Neutron does not know the key."""
    router, on, _ = await _router(cloud)
    policy = (await cloud.ok("POST", "/qos/policies", {"policy": {"name": "q"}}))["policy"]["id"]
    info = {"network_id": on["network_id"], "qos_policy_id": policy}
    refused = await cloud.call("POST", "/routers", {"router": {"external_gateway_info": info}})
    assert (refused.status_code, "Unexpected keys supplied: qos_policy_id" in refused.text) == (400, True)
    assert (await cloud.call("PUT", f"/routers/{router['id']}", {"router": {"external_gateway_info": info}})).is_error
    said = {"floatingip": {"floating_network_id": on["network_id"], "qos_policy_id": policy}}
    refused = await cloud.call("POST", "/floatingips", said)
    assert (refused.status_code, "Unrecognized attribute(s) 'qos_policy_id'" in refused.text) == (400, True)


@pytest.mark.parametrize("ready", [True, False], ids=["bound first", "trunk first"])
async def test_subports_are_bound_where_their_trunk_is(cloud: Cloud, ready: bool) -> None:
    net, _ = await cloud.flat_network()
    parent, one, two = [await cloud.port(net["id"]) for _ in range(3)]
    subs = [
        {"port_id": port["id"], "segmentation_type": "vlan", "segmentation_id": n}
        for n, port in enumerate((one, two), 7)
    ]
    said = {"trunk": {"port_id": parent["id"], "sub_ports": [] if ready else subs[:1]}}
    trunk = (await cloud.ok("POST", "/trunks", said, token="member"))["trunk"]
    assert trunk["status"] == "DOWN"
    await cloud.ok("PUT", f"/ports/{parent['id']}", {"port": {"device_id": "srv"}})
    await cloud.bind(parent["id"], "cmp1")
    added = {"sub_ports": subs if ready else subs[1:]}
    await cloud.ok("PUT", f"/trunks/{trunk['id']}/add_subports", added, token="member")

    async def seen(port: Any) -> tuple[str, ...]:
        now = (await cloud.get(f"/ports/{port['id']}"))["port"]
        return tuple(now[name] for name in ("binding:host_id", "status", "device_owner", "device_id"))

    assert (await cloud.get(f"/trunks/{trunk['id']}"))["trunk"]["status"] == "ACTIVE"
    assert await seen(one) == await seen(two) == ("cmp1", "ACTIVE", "trunk:subport", "")
    await cloud.ok("PUT", f"/trunks/{trunk['id']}/remove_subports", {"sub_ports": subs[1:]}, token="member")
    assert await seen(two) == ("", "DOWN", "", "")
    second = {"binding": {"host": "cmp2"}}
    await cloud.ok("POST", f"/ports/{parent['id']}/bindings", second)
    assert (await seen(one))[0] == "cmp1"
    await cloud.ok("PUT", f"/ports/{parent['id']}/bindings/cmp2/activate")
    assert (await seen(one))[0] == "cmp2"  # a move of the server takes them along
    released = {"port": {"binding:host_id": "", "device_id": "", "device_owner": ""}}
    await cloud.ok("PUT", f"/ports/{parent['id']}", released)
    assert await seen(one) == ("", "DOWN", "trunk:subport", "")
    assert (await cloud.get(f"/trunks/{trunk['id']}"))["trunk"]["status"] == "DOWN"
    await cloud.ok("DELETE", f"/trunks/{trunk['id']}", token="member")


@pytest.mark.parametrize(
    "said",
    [
        {"dns_name": "a\n"},
        {"dns_domain": "example.org.\ndhcp-script=/x"},
        {"device_owner": "mine\n"},
        {"device_id": "a\rb"},
        {"extra_dhcp_opts": [{"opt_name": "mtu\n", "opt_value": "1400"}]},
        {"extra_dhcp_opts": [{"opt_name": "mtu", "opt_value": "1400\nserver-ip-address=1.2.3.4"}]},
    ],
)
async def test_texts_that_hosts_write_into_files_have_one_line(cloud: Cloud, said: dict[str, Any]) -> None:
    net, _ = await cloud.flat_network()
    assert (await cloud.call("POST", "/ports", {"port": {"network_id": net["id"]} | said})).status_code == 400
    port = await cloud.port(net["id"])
    assert (await cloud.call("PUT", f"/ports/{port['id']}", {"port": said})).status_code == 400


async def test_a_gateway_may_lie_outside_of_its_subnet(cloud: Cloud) -> None:
    """Neutron's `check_gateway_invalid_in_subnet` judges only the addresses of the subnet itself."""
    net = await cloud.service.seed_network("net", "p1")
    said = {"network_id": net["id"], "ip_version": 4, "cidr": "10.1.0.0/24"}
    for gateway in ("10.1.0.0", "10.1.0.255"):
        refused = await cloud.call("POST", "/subnets", {"subnet": said | {"gateway_ip": gateway}}, token="member")
        assert refused.status_code == 400, refused.text
    made = {"subnet": said | {"gateway_ip": "10.10.11.1"}}
    subnet = (await cloud.ok("POST", "/subnets", made, token="member"))["subnet"]
    assert subnet["allocation_pools"] == [{"start": "10.1.0.1", "end": "10.1.0.254"}]
    path = f"/subnets/{subnet['id']}"
    for gateway, status in (("10.9.0.1", 200), ("10.1.0.255", 400)):
        assert (
            await cloud.call("PUT", path, {"subnet": {"gateway_ip": gateway}}, token="member")
        ).status_code == status
    router = (await cloud.ok("POST", "/routers", {"router": {}}, token="member"))["router"]["id"]
    body = {"subnet_id": subnet["id"]}
    refused = await cloud.call("PUT", f"/routers/{router}/add_router_interface", body, token="member")
    assert refused.status_code == 400  # no port has that address
