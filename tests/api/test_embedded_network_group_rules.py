"""Rules of security groups: their stored form, when two are duplicates, and the address groups that they may name."""

from typing import Any

import pytest
from tests.helpers.embedded_network_cloud import Cloud, cloud

__all__ = ["cloud"]


async def _group(cloud: Cloud, **more: Any) -> str:
    made = await cloud.ok("POST", "/security-groups", {"security_group": {"name": "g"} | more}, token="member")
    return str(made["security_group"]["id"])


def _body(group: str, **said: Any) -> Any:
    return {"security_group_rule": {"security_group_id": group, "direction": "ingress"} | said}


async def _refused(cloud: Cloud, method: str, path: str, body: Any = None, token: str = "member") -> tuple[int, str]:
    answer = await cloud.call(method, path, body, token=token)
    return answer.status_code, answer.json()["NeutronError"]["type"]


TCP = {"protocol": "tcp", "port_range_min": 22, "port_range_max": 22}


async def test_rules_are_stored_in_canonical_form(cloud: Cloud) -> None:
    group = await _group(cloud)
    for said, kept in (
        ({**TCP, "remote_ip_prefix": "192.0.2.5"}, {"remote_ip_prefix": "192.0.2.5/32", "normalized_cidr": "192.0.2.5/32"}),
        ({"protocol": "udp", "port_range_min": 1, "port_range_max": 65535}, {"port_range_min": None, "port_range_max": None}),
        ({"protocol": "ICMP", "ethertype": "ipv6"}, {"protocol": "ipv6-icmp", "ethertype": "IPv6"}),
        ({"protocol": "any", "remote_ip_prefix": ""}, {"protocol": None, "remote_ip_prefix": None}),
    ):  # fmt: skip
        made = await cloud.ok("POST", "/security-group-rules", _body(group, **said), token="member")
        rule = made["security_group_rule"]
        assert {name: rule[name] for name in kept} == kept


async def test_equivalent_rules_are_duplicates(cloud: Cloud) -> None:
    """The clients say `0.0.0.0/0` where a person says nothing, and a new group lets everything out already."""
    group = await _group(cloud)
    out = _body(group, direction="egress", remote_ip_prefix="0.0.0.0/0")
    exists = (409, "SecurityGroupRuleExists")
    assert await _refused(cloud, "POST", "/security-group-rules", out) == exists
    await cloud.ok("POST", "/security-group-rules", _body(group, **TCP), token="member")
    for same in ({"remote_ip_prefix": "0.0.0.0/0"}, {"protocol": "6"}):
        assert await _refused(cloud, "POST", "/security-group-rules", _body(group, **(TCP | same))) == exists
    both = [_body(group, **said)["security_group_rule"] for said in ({"protocol": "ah"}, {"protocol": "51"})]
    assert await _refused(cloud, "POST", "/security-group-rules", {"security_group_rules": both}) == exists
    other = _body(await _group(cloud), protocol="esp")["security_group_rule"]
    two = {"security_group_rules": [both[0], other]}
    assert await _refused(cloud, "POST", "/security-group-rules", two) == (400, "SecurityGroupNotSingleGroupRules")
    assert len((await cloud.get(f"/security-groups/{group}"))["security_group"]["security_group_rules"]) == 3


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"protocol": "tcp", "port_range_min": 0, "port_range_max": 9}, "SecurityGroupInvalidPortValue"),
        ({"protocol": "udp", "port_range_min": 9}, "SecurityGroupInvalidPortRange"),
        ({"protocol": "vrrp", "port_range_min": 9, "port_range_max": 9}, "SecurityGroupInvalidProtocolForPort"),
        ({"protocol": "256"}, "SecurityGroupRuleInvalidProtocol"),
        ({"protocol": "ipv6-route"}, "SecurityGroupEthertypeConflictWithProtocol"),
        ({"remote_ip_prefix": "nonsense"}, "InvalidCIDR"),
        ({"remote_ip_prefix": "fd00::/8"}, "SecurityGroupRuleParameterConflict"),
        ({"remote_ip_prefix": "192.0.2.0/24", "remote_address_group_id": "x"}, "SecurityGroupMultipleRemoteEntites"),
    ],
)
async def test_rules_that_cannot_be(cloud: Cloud, said: dict[str, Any], kind: str) -> None:
    body = _body(await _group(cloud), **said)
    assert await _refused(cloud, "POST", "/security-group-rules", body) == (400, kind)


async def test_a_port_has_only_stateful_or_only_stateless_groups(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network()
    groups = [await _group(cloud), await _group(cloud, stateful=False)]
    port = {"port": {"network_id": net["id"], "security_groups": groups}}
    assert await _refused(cloud, "POST", "/ports", port) == (409, "SecurityGroupConflict")


async def test_address_groups(cloud: Cloud) -> None:
    body = {"name": "a", "addresses": ["192.0.2.5/24", "198.51.100.7/32"]}
    made = (await cloud.ok("POST", "/address-groups", {"address_group": body}, token="member"))["address_group"]
    assert (made["addresses"], made["project_id"]) == (["192.0.2.0/24", "198.51.100.7/32"], "p1")
    at = f"/address-groups/{made['id']}"
    more = await cloud.ok("PUT", f"{at}/add_addresses", {"addresses": ["fd00::/8"]}, token="member")
    assert more["address_group"]["addresses"] == ["192.0.2.0/24", "198.51.100.7/32", "fd00::/8"]
    for verb, address, wanted in (
        ("add_addresses", "fd00::/8", (400, "AddressesAlreadyExist")),
        ("add_addresses", "nonsense", (400, "HTTPBadRequest")),
        ("remove_addresses", "192.0.2.1", (404, "AddressesNotFound")),
        ("remove_addresses", "10.0.0.0/8", (404, "AddressesNotFound")),
    ):
        assert await _refused(cloud, "PUT", f"{at}/{verb}", {"addresses": [address]}) == wanted
    less = await cloud.ok("PUT", f"{at}/remove_addresses", {"addresses": ["fd00::/8"]}, token="member")
    assert less["address_group"]["addresses"] == ["192.0.2.0/24", "198.51.100.7/32"]
    alone = {"address_group": {"name": "b", "addresses": ["192.0.2.1"]}}
    assert await _refused(cloud, "POST", "/address-groups", alone) == (400, "HTTPBadRequest")
    changed = await cloud.ok("PUT", at, {"address_group": {"name": "b"}}, token="member")
    assert changed["address_group"]["name"] == "b"
    assert [each["id"] for each in (await cloud.get("/address-groups", name="b"))["address_groups"]] == [made["id"]]
    assert await _refused(cloud, "GET", at, token="stranger") == (404, "AddressGroupNotFound")
    share = {"object_type": "address_group", "object_id": made["id"], "action": "access_as_shared"}
    await cloud.ok("POST", "/rbac-policies", {"rbac_policy": share | {"target_tenant": "p2"}}, token="member")
    assert len((await cloud.ok("GET", "/address-groups", token="stranger"))["address_groups"]) == 1
    assert await _refused(cloud, "DELETE", at, token="stranger") == (404, "AddressGroupNotFound")
    group = await _group(cloud)
    rule = _body(group, **TCP, remote_address_group_id=made["id"])
    kept = (await cloud.ok("POST", "/security-group-rules", rule, token="member"))["security_group_rule"]
    assert kept["remote_address_group_id"] == made["id"]
    assert await _refused(cloud, "DELETE", at) == (409, "AddressGroupInUse")
    await cloud.ok("DELETE", f"/security-groups/{group}", token="member")
    await cloud.ok("DELETE", at, token="member")
    assert (await cloud.get("/rbac-policies"))["rbac_policies"] == []
    lost = _body(await _group(cloud), remote_address_group_id=made["id"])
    assert await _refused(cloud, "POST", "/security-group-rules", lost) == (404, "AddressGroupNotFound")


async def test_a_limit_below_what_is_used_is_forced(cloud: Cloud) -> None:
    await cloud.flat_network()
    await cloud.service.seed_network("another", "p1")
    for said in ({"network": 1}, {"network": 1, "check_limit": True}):
        refused = await cloud.call("PUT", "/quotas/p1", {"quota": said})
        assert refused.status_code == 400
        assert "must be greater than or equal to already used 2" in refused.text
    forced = await cloud.ok("PUT", "/quotas/p1", {"quota": {"network": 1, "force": True}})
    assert forced["quota"]["network"] == 1


async def test_shared_resources_in_use_stay_shared(cloud: Cloud) -> None:
    """A policy may go when nobody needs it, or when everybody may use the thing from now on."""
    net, _ = await cloud.flat_network()
    group = await _group(cloud)
    made = await cloud.ok("POST", "/address-groups", {"address_group": {"name": "a"}}, token="member")
    addresses = made["address_group"]["id"]
    policies = []
    for kind, id in (("security_group", group), ("address_group", addresses)):
        body = {"object_type": kind, "object_id": id, "action": "access_as_shared", "target_tenant": "p2"}
        assert await _refused(cloud, "POST", "/rbac-policies", {"rbac_policy": body}, "stranger") == (
            400,
            "InvalidInput",
        )
        shown = (await cloud.ok("POST", "/rbac-policies", {"rbac_policy": body}, token="member"))["rbac_policy"]
        assert "target_project" not in shown
        policies.append(f"/rbac-policies/{shown['id']}")
    assert await _refused(cloud, "PUT", f"/address-groups/{addresses}", {"address_group": {"name": "x"}}, "stranger") == (
        404, "AddressGroupNotFound"
    )  # fmt: skip
    port = await cloud.port(net["id"], project_id="p2", security_groups=[group])
    body = {"security_group": {"name": "theirs"}}
    theirs = (await cloud.ok("POST", "/security-groups", body, token="stranger"))["security_group"]["id"]
    rule = _body(theirs, remote_address_group_id=addresses)
    rule = (await cloud.ok("POST", "/security-group-rules", rule, token="stranger"))["security_group_rule"]["id"]
    for path in policies:
        assert await _refused(cloud, "DELETE", path) == (409, "RbacPolicyInUse")
        assert await _refused(cloud, "PUT", path, {"rbac_policy": {"target_tenant": "p3"}}) == (409, "RbacPolicyInUse")
        await cloud.ok("PUT", path, {"rbac_policy": {"target_tenant": "*"}})
    await cloud.ok("DELETE", f"/ports/{port['id']}")
    await cloud.ok("DELETE", f"/security-group-rules/{rule}", token="stranger")
    for path in policies:
        await cloud.ok("DELETE", path)


async def test_refusals_of_networks_and_routers(cloud: Cloud) -> None:
    net, subnet = await cloud.flat_network()
    groups = [await _group(cloud)] * 2
    twice = {"port": {"network_id": net["id"], "security_groups": groups}}
    assert await _refused(cloud, "POST", "/ports", twice) == (400, "HTTPBadRequest")
    router = (await cloud.ok("POST", "/routers", {"router": {"name": "r"}}, token="member"))["router"]["id"]
    add = f"/routers/{router}/add_router_interface"
    assert await _refused(cloud, "PUT", add, {"port_id": "no-uuid"}) == (400, "HTTPBadRequest")
    await cloud.ok("PUT", add, {"subnet_id": subnet["id"]}, token="member")
    for gateway in ("10.0.0.9", None):
        body = {"subnet": {"gateway_ip": gateway}}
        assert await _refused(cloud, "PUT", f"/subnets/{subnet['id']}", body) == (409, "GatewayIpInUse")
    assert await _refused(cloud, "POST", "/networks", {"network": {"mtu": 1501}}) == (400, "InvalidInput")
    small = (await cloud.ok("POST", "/networks", {"network": {"mtu": 1279}}, token="member"))["network"]["id"]
    six = {"subnet": {"network_id": small, "ip_version": 6, "cidr": "fd00::/64"}}
    assert await _refused(cloud, "POST", "/subnets", six) == (409, "NetworkMTUSubnetConflict")
    assert await _refused(cloud, "PUT", f"/networks/{net['id']}", {"network": {"mtu": 67}}) == (
        409, "NetworkMTUSubnetConflict"
    )  # fmt: skip
    ports = [await cloud.port(id) for id in (small, net["id"])]
    sub = {"port_id": ports[1]["id"], "segmentation_type": "vlan", "segmentation_id": 7}
    trunk = {"trunk": {"port_id": ports[0]["id"], "sub_ports": [sub]}}
    assert await _refused(cloud, "POST", "/trunks", trunk) == (409, "SubPortMtuGreaterThanTrunkPortMtu")
    shown = (await cloud.ok("GET", f"/networks/{net['id']}", fields="project_id"))["network"]
    assert shown == {"project_id": "p1"}
    await cloud.ok("PUT", "/quotas/p1", {"quota": {"security_group_rule": 7}})
    assert await _refused(cloud, "POST", "/security-groups", {"security_group": {"name": "g"}}) == (409, "OverQuota")


async def test_sharing_with_somebody_makes_a_network_external(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network()
    body = {"object_type": "network", "object_id": net["id"], "action": "access_as_external"}
    every = await cloud.ok("POST", "/rbac-policies", {"rbac_policy": body | {"target_tenant": "*"}})
    every = f"/rbac-policies/{every['rbac_policy']['id']}"
    shown = (await cloud.get(f"/networks/{net['id']}"))["network"]
    assert shown["router:external"]
    assert shown["revision_number"] > net["revision_number"]
    router = {"router": {"name": "r", "external_gateway_info": {"network_id": net["id"]}}}
    door = (await cloud.ok("POST", "/routers", router, token="stranger"))["router"]["id"]
    assert await _refused(cloud, "DELETE", every, token="admin") == (409, "RbacPolicyInUse")
    await cloud.ok("PUT", every, {"rbac_policy": {"target_tenant": "p2"}})  # the one who uses it
    third = {"rbac_policy": {"target_tenant": "p3"}}
    assert await _refused(cloud, "PUT", every, third, "admin") == (409, "RbacPolicyInUse")
    await cloud.ok("DELETE", f"/routers/{door}", token="stranger")
    other = await cloud.ok("POST", "/rbac-policies", {"rbac_policy": body | {"target_tenant": "p3"}})
    await cloud.ok("DELETE", every)
    assert (await cloud.get(f"/networks/{net['id']}"))["network"]["router:external"]
    await cloud.ok("DELETE", f"/rbac-policies/{other['rbac_policy']['id']}")
    assert not (await cloud.get(f"/networks/{net['id']}"))["network"]["router:external"]


async def test_policies_of_other_projects_and_kinds_of_rules(cloud: Cloud) -> None:
    policy = (await cloud.ok("POST", "/qos/policies", {"policy": {"name": "gold"}}))["policy"]["id"]
    net = {"network": {"qos_policy_id": policy}}
    assert await _refused(cloud, "POST", "/networks", net) == (404, "QosPolicyNotFound")
    kind = (await cloud.get("/qos/rule-types/minimum_packet_rate"))["rule_type"]
    assert kind["type"] == "minimum_packet_rate"
    (driver,) = kind["drivers"]
    assert [each["parameter_name"] for each in driver["supported_parameters"]] == ["min_kpps", "direction"]
    assert await _refused(cloud, "GET", "/qos/rule-types/dscp_marking") == (403, "PolicyNotAuthorized")
    assert (await cloud.call("GET", "/qos/rule-types/nothing")).status_code == 404


async def test_lists_and_bodies_have_neutrons_forms(cloud: Cloud) -> None:
    net, subnet = await cloud.flat_network(shared=True)
    other = await cloud.service.seed_network("other", "p1")
    own = await cloud.service.seed_subnet("own", other, "10.9.0.0/24")
    for said, ids in (("True", [subnet["id"]]), ("False", [own["id"]])):
        assert [each["id"] for each in (await cloud.get("/subnets", shared=said))["subnets"]] == ids
    wrapped = [{"port": {"network_id": net["id"], "project_id": "p1"}}, {"network_id": net["id"], "project_id": "p1"}]
    assert len((await cloud.ok("POST", "/ports", {"ports": wrapped}))["ports"]) == 2
    pages, path = [], "/v2.0/ports?limit=1"
    while path:
        page = (await cloud.http.get(path, headers={"X-Auth-Token": "service"})).json()
        pages.append(page)
        onward = {each["rel"]: each["href"] for each in page["ports_links"]}
        path = onward.get("next", "")
    assert [len(page["ports"]) for page in pages] == [1, 1, 0], "every full page leads on"
    last = (await cloud.http.get(onward["previous"], headers={"X-Auth-Token": "service"})).json()
    assert last["ports"] == pages[1]["ports"]
    pool = {"subnetpool": {"name": "p", "prefixes": ["10.11.12.0/24"], "project_id": "p1"}}
    made = (await cloud.ok("POST", "/subnetpools", pool))["subnetpool"]
    assert (made["min_prefixlen"], made["max_prefixlen"]) == ("8", "32")
    wider = {"subnetpool": {"prefixes": ["10.11.0.0/16", "10.11.12.0/24"]}}
    at = f"/subnetpools/{made['id']}"
    assert (await cloud.ok("PUT", at, wider))["subnetpool"]["prefixes"] == ["10.11.0.0/16"]
    less = {"subnetpool": {"prefixes": ["10.11.12.0/26"]}}
    assert await _refused(cloud, "PUT", at, less) == (400, "IllegalSubnetPoolPrefixUpdate")
    default = await cloud.service.seed_network("out", "ops", is_default=True, **{"router:external": True})
    (every,) = (await cloud.get("/rbac-policies", object_id=default["id"]))["rbac_policies"]
    assert await _refused(cloud, "DELETE", f"/rbac-policies/{every['id']}", token="admin") == (409, "RbacPolicyInUse")
