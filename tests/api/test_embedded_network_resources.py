"""Networks, subnets, segments, groups, quotas, sharing, QoS and lists of the embedded network service."""

from typing import Any

import pytest
from tests.helpers.embedded_network_cloud import Cloud, cloud

from moorage_embedded.network.app import HostNetworks

__all__ = ["cloud"]


async def test_version_documents_and_extensions(cloud: Cloud) -> None:
    versions = (await cloud.http.get("/")).json()["versions"]
    assert versions[0]["id"] == "v2.0"
    assert {each["collection"] for each in (await cloud.get(""))["resources"]} >= {"networks", "ports"}
    aliases = {each["alias"] for each in (await cloud.get("/extensions"))["extensions"]}
    assert aliases >= {"binding-extended", "segment", "revision-if-match", "port-resource-request-groups"}
    assert (await cloud.get("/extensions/segment"))["extension"]["alias"] == "segment"
    assert (await cloud.call("GET", "/extensions/nothing")).status_code == 404


async def test_a_project_sees_its_own_and_shared_resources(cloud: Cloud) -> None:
    made = await cloud.ok("POST", "/networks", {"network": {"name": "mine"}}, token="member")
    net = made["network"]
    assert (net["project_id"], net["status"], net["subnets"], net["revision_number"]) == ("p1", "ACTIVE", [], 1)
    assert not [name for name in net if name.startswith("provider:")]
    assert (await cloud.call("GET", f"/networks/{net['id']}", token="stranger")).status_code == 404
    refused = await cloud.call("POST", "/networks", {"network": {"shared": True}}, token="member")
    assert refused.status_code == 403
    policy = {"object_type": "network", "object_id": net["id"], "action": "access_as_shared", "target_tenant": "p2"}
    rbac = (await cloud.ok("POST", "/rbac-policies", {"rbac_policy": policy}, token="member"))["rbac_policy"]
    theirs = await cloud.ok("GET", "/networks", token="stranger")
    assert [(each["id"], each["shared"]) for each in theirs["networks"]] == [(net["id"], True)]
    await cloud.ok("DELETE", f"/rbac-policies/{rbac['id']}", token="member")
    assert (await cloud.ok("GET", "/networks", token="stranger"))["networks"] == []


async def test_provider_networks_hold_their_tag(cloud: Cloud) -> None:
    body = {"network": {"provider:network_type": "vlan", "provider:physical_network": "physnet1",
                        "provider:segmentation_id": 200}}  # fmt: skip
    net = (await cloud.ok("POST", "/networks", body))["network"]
    assert net["provider:segmentation_id"] == 200
    again = await cloud.call("POST", "/networks", body)
    assert (again.status_code, again.json()["NeutronError"]["type"]) == (409, "VlanIdInUse")
    await cloud.ok("DELETE", f"/networks/{net['id']}")
    await cloud.ok("POST", "/networks", body)


@pytest.mark.parametrize(
    ("said", "status", "kind"),
    [
        ({"cidr": "10.0.0.0/25"}, 400, "InvalidInput"),
        ({"cidr": "10.1.0.5/24"}, 201, None),
        ({"cidr": "10.1.0.0/24", "ip_version": 6}, 400, "InvalidInput"),
        ({"cidr": "nonsense"}, 400, "HTTPBadRequest"),
        ({"cidr": "10.1.0.0/24", "gateway_ip": "10.2.0.1"}, 201, None),
        ({"cidr": "10.1.0.0/24", "gateway_ip": "10.1.0.255"}, 400, "InvalidInput"),
        ({"cidr": "10.1.0.0/24", "allocation_pools": [{"start": "10.1.0.1", "end": "10.1.0.9"}]}, 409,
         "GatewayConflictWithAllocationPools"),
        ({"cidr": "10.1.0.0/24", "allocation_pools": [{"start": "10.9.0.1", "end": "10.9.0.9"}]}, 400,
         "OutOfBoundsAllocationPool"),
        ({}, 400, "HTTPBadRequest"),
    ],
)  # fmt: skip
async def test_subnets_are_checked(cloud: Cloud, said: dict[str, Any], status: int, kind: str | None) -> None:
    net, _ = await cloud.flat_network()
    answer = await cloud.call("POST", "/subnets", {"subnet": {"network_id": net["id"], "ip_version": 4} | said})
    assert answer.status_code == status, answer.text
    assert (answer.json().get("NeutronError") or {}).get("type") == kind


async def test_cidrs_may_overlap_between_networks_and_ipv6_follows_the_mac(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network()
    other = await cloud.service.seed_network("other", "p2")
    await cloud.service.seed_subnet("same", other, "10.0.0.0/24")
    await cloud.service.seed_subnet("six", net, "fd00::/64", ipv6_address_mode="slaac", ipv6_ra_mode="slaac")
    await cloud.service.seed_subnet("stateful", other, "fd01::/64")
    port = await cloud.port(net["id"], mac_address="fa:16:3e:aa:bb:01")
    assert port["fixed_ips"][1]["ip_address"] == "fd00::f816:3eff:feaa:bb01"
    assert (await cloud.port(other["id"]))["fixed_ips"][1]["ip_address"] == "fd01::2"


async def test_resources_in_use_cannot_be_deleted(cloud: Cloud) -> None:
    net, subnet = await cloud.flat_network()
    port = await cloud.port(net["id"])
    group = port["security_groups"][0]
    for path, kind in ((f"/networks/{net['id']}", "NetworkInUse"), (f"/subnets/{subnet['id']}", "SubnetInUse"),
                       (f"/security-groups/{group}", "SecurityGroupInUse")):  # fmt: skip
        answer = await cloud.call("DELETE", path)
        assert (answer.status_code, answer.json()["NeutronError"]["type"]) == (409, kind)
    await cloud.ok("DELETE", f"/ports/{port['id']}")
    await cloud.ok("DELETE", f"/networks/{net['id']}")
    assert (await cloud.get("/subnets"))["subnets"] == []
    used = (await cloud.get("/quotas/p1/details"))["quota"]
    assert (used["network"]["used"], used["subnet"]["used"], used["port"]["used"]) == (0, 0, 0)


async def test_group_rules(cloud: Cloud) -> None:
    group = (await cloud.ok("POST", "/security-groups", {"security_group": {"name": "web"}}, token="member"))[
        "security_group"
    ]
    assert {each["direction"] for each in group["security_group_rules"]} == {"egress"}
    rule = {"security_group_id": group["id"], "direction": "ingress", "protocol": "tcp", "port_range_min": 80,
            "port_range_max": 80, "remote_ip_prefix": "10.0.0.5/24"}  # fmt: skip
    made = (await cloud.ok("POST", "/security-group-rules", {"security_group_rule": rule}, token="member"))[
        "security_group_rule"
    ]
    assert (made["ethertype"], made["normalized_cidr"]) == ("IPv4", "10.0.0.0/24")
    again = await cloud.call("POST", "/security-group-rules", {"security_group_rule": rule}, token="member")
    assert (again.status_code, again.json()["NeutronError"]["type"]) == (409, "SecurityGroupRuleExists")
    bad = await cloud.call("POST", "/security-group-rules", {"security_group_rule": rule | {"protocol": None}})
    assert (bad.status_code, bad.json()["NeutronError"]["type"]) == (400, "SecurityGroupProtocolRequiredWithPorts")
    assert (await cloud.call("GET", f"/security-groups/{group['id']}", token="stranger")).status_code == 404
    await cloud.ok("DELETE", f"/security-group-rules/{made['id']}", token="member")
    await cloud.ok("DELETE", f"/security-groups/{group['id']}", token="member")


async def test_lists_filter_sort_page_and_choose_fields(cloud: Cloud) -> None:
    net, subnet = await cloud.flat_network()
    made = [await cloud.port(net["id"], name=f"p{n}", device_id=f"d{n % 2}", tags=[f"t{n}", "all"]) for n in range(5)]
    query = [("name", "p1"), ("name", "p3"), ("fields", "name"), ("sort_key", "name"), ("sort_dir", "desc")]
    answer = await cloud.http.get("/v2.0/ports", params=query, headers={"X-Auth-Token": "service"})
    assert answer.json()["ports"] == [{"name": "p3"}, {"name": "p1"}]
    assert len((await cloud.get("/ports", device_id="d0"))["ports"]) == 3
    assert [p["name"] for p in (await cloud.get("/ports", tags="t2,all"))["ports"]] == ["p2"]
    assert len((await cloud.get("/ports", **{"not-tags": "t2"}))["ports"]) == 4
    ip = made[4]["fixed_ips"][0]["ip_address"]
    assert [p["id"] for p in (await cloud.get("/ports", fixed_ips=f"ip_address={ip}"))["ports"]] == [made[4]["id"]]
    assert len((await cloud.get("/ports", fixed_ips=f"subnet_id={subnet['id']}"))["ports"]) == 5
    assert len((await cloud.get("/ports", ip_address_substr="10.0.0."))["ports"]) == 5
    seen, path = [], "/v2.0/ports?limit=2"
    while path:
        page = (await cloud.http.get(path, headers={"X-Auth-Token": "service"})).json()
        seen += [each["id"] for each in page["ports"]]
        path = next((each["href"] for each in page.get("ports_links", ()) if each["rel"] == "next"), "")
    assert sorted(seen) == sorted(each["id"] for each in made)
    assert (await cloud.call("GET", "/ports", nothing="x")).status_code == 400
    assert (await cloud.call("GET", "/ports", limit="x")).status_code == 400


async def test_tags(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network()
    url = f"/networks/{net['id']}/tags"
    await cloud.ok("PUT", url, {"tags": ["a", "b"]})
    assert (await cloud.call("PUT", f"{url}/c")).status_code == 201
    assert (await cloud.get(url))["tags"] == ["a", "b", "c"]
    assert (await cloud.call("GET", f"{url}/c")).status_code == 204
    await cloud.ok("DELETE", f"{url}/a")
    assert (await cloud.call("DELETE", f"{url}/a")).status_code == 404
    await cloud.ok("DELETE", url)
    assert (await cloud.get(url))["tags"] == []


async def test_availability_agents_and_zones(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network("10.0.0.0/29")
    await cloud.port(net["id"])
    found = (await cloud.get(f"/network-ip-availabilities/{net['id']}"))["network_ip_availability"]
    assert (found["total_ips"], found["used_ips"]) == (5, 1)
    agents = (await cloud.get("/agents"))["agents"]
    assert {each["host"] for each in agents} == {"cmp1", "cmp2"}
    assert agents[0]["configurations"]["bridge_mappings"]
    down = {"agent": {"admin_state_up": False}}
    assert (await cloud.ok("PUT", f"/agents/{agents[0]['id']}", down))["agent"]["admin_state_up"] is False
    assert (await cloud.call("GET", f"/agents/{agents[0]['id']}", token="member")).status_code == 404
    assert (await cloud.get("/availability_zones"))["availability_zones"]
    segments = await cloud.service.inventories()
    assert segments == []


async def test_segment_inventories_reserve_unusable_addresses(cloud: Cloud) -> None:
    net, subnets, segments = await cloud.routed_network("10.1.0.0/29", "10.2.0.0/29")
    await cloud.port(net["id"], fixed_ips=[{"subnet_id": subnets[0]["id"]}], device_owner="network:dhcp")
    server = await cloud.port(net["id"], device_id="srv")
    await cloud.bind(server["id"], "cmp1")
    found = {each.segment: each for each in await cloud.service.inventories()}
    first = found[segments[0]["id"]]
    assert (first.total, first.reserved, first.hosts) == (5, 1, ("cmp1",))
    assert found[segments[1]["id"]].reserved == 0
    assert (await cloud.call("GET", "/segments", token="member")).json() == {"segments": []}
    busy = await cloud.call("DELETE", f"/segments/{segments[0]['id']}")
    assert (busy.status_code, busy.json()["NeutronError"]["type"]) == (409, "SegmentInUse")


async def test_quality_of_service_becomes_request_groups(cloud: Cloud) -> None:
    body = {"network": {"project_id": "p1", "provider:network_type": "vlan", "provider:physical_network": "physnet1"}}
    net = (await cloud.ok("POST", "/networks", body))["network"]
    await cloud.service.seed_subnet("sub", net, "10.0.0.0/24")
    policy = (await cloud.ok("POST", "/qos/policies", {"policy": {"name": "gold", "shared": True}}))["policy"]
    url = f"/qos/policies/{policy['id']}"
    rule = {"minimum_bandwidth_rule": {"min_kbps": 1000, "direction": "egress"}}
    made = (await cloud.ok("POST", f"{url}/minimum_bandwidth_rules", rule))["minimum_bandwidth_rule"]
    packets = {"minimum_packet_rate_rule": {"min_kpps": 7, "direction": "any"}}
    await cloud.ok("POST", f"{url}/minimum_packet_rate_rules", packets)
    twice = await cloud.call("POST", f"{url}/minimum_bandwidth_rules", rule)
    assert (twice.status_code, twice.json()["NeutronError"]["type"]) == (409, "QoSRulesConflict")
    port = await cloud.port(net["id"], qos_policy_id=policy["id"], device_id="srv")
    groups = port["resource_request"]["request_groups"]
    assert groups[0]["resources"] == {"NET_BW_EGR_KILOBIT_PER_SEC": 1000}
    assert groups[0]["required"] == ["CUSTOM_PHYSNET_PHYSNET1", "CUSTOM_VNIC_TYPE_NORMAL"]
    assert groups[1]["resources"] == {"NET_PACKET_RATE_KILOPACKET_PER_SEC": 7}
    assert port["resource_request"]["same_subtree"] == [each["id"] for each in groups]
    changed = {"minimum_bandwidth_rule": {"min_kbps": 500}}
    await cloud.ok("PUT", f"{url}/minimum_bandwidth_rules/{made['id']}", changed)
    shown = (await cloud.get(f"/ports/{port['id']}"))["port"]
    assert shown["resource_request"]["request_groups"][0]["resources"] == {"NET_BW_EGR_KILOBIT_PER_SEC": 500}
    await cloud.bind(port["id"], "cmp1")
    allocation = {"binding:profile": {"allocation": {groups[0]["id"]: "bridge", groups[1]["id"]: "agent"}}}
    await cloud.ok("PUT", f"/ports/{port['id']}", {"port": allocation}, token="service")
    for change in (
        ("PUT", f"{url}/minimum_bandwidth_rules/{made['id']}", {"minimum_bandwidth_rule": {"min_kbps": 5}}),
        ("PUT", f"/ports/{port['id']}", {"port": {"qos_policy_id": None}}),
        ("PUT", f"/ports/{port['id']}", {"port": {"binding:vnic_type": "direct"}}),
    ):  # claimed, and there is no placement here that the claim could follow in
        refused = await cloud.call(*change)
        assert (refused.status_code, refused.json()["NeutronError"]["type"]) == (409, "QosRuleNotSupported")
    assert (await cloud.call("DELETE", url)).json()["NeutronError"]["type"] == "QosPolicyInUse"
    await cloud.service.declare_hosts([HostNetworks(host, ("physnet1",)) for host in ("cmp1", "cmp3")])
    bindings, there = f"/ports/{port['id']}/bindings", {"allocation": {groups[0]["id"]: "bridge of another host"}}
    await cloud.ok("POST", bindings, {"binding": {"host": "cmp3", "profile": there}}, token="service")
    refused = await cloud.call("PUT", f"/ports/{port['id']}", {"port": {"qos_policy_id": None}})
    assert (refused.status_code, refused.json()["NeutronError"]["type"]) == (409, "QosRuleNotSupported")
    assert "is being moved" in refused.json()["NeutronError"]["message"]
    await cloud.ok("PUT", f"{bindings}/cmp3/activate", {}, token="service")
    shown = (await cloud.get(f"/ports/{port['id']}"))["port"]
    assert (shown["binding:profile"], shown["resource_request"]["request_groups"][1]) == (there, groups[1])


async def test_a_networks_policy_reaches_the_ports_without_one(cloud: Cloud) -> None:
    body = {"network": {"project_id": "p1", "provider:network_type": "vlan", "provider:physical_network": "physnet1"}}
    net = (await cloud.ok("POST", "/networks", body))["network"]
    policy = (await cloud.ok("POST", "/qos/policies", {"policy": {"name": "gold"}}))["policy"]
    rule = {"minimum_bandwidth_rule": {"min_kbps": 9, "direction": "ingress"}}
    await cloud.ok("POST", f"/qos/policies/{policy['id']}/minimum_bandwidth_rules", rule)
    port = await cloud.port(net["id"])
    await cloud.ok("PUT", f"/networks/{net['id']}", {"network": {"qos_policy_id": policy["id"]}})
    for id in (port["id"], (await cloud.port(net["id"]))["id"]):
        shown = (await cloud.get(f"/ports/{id}"))["port"]
        assert shown["qos_network_policy_id"] == policy["id"]
        assert shown["resource_request"]["request_groups"][0]["resources"] == {"NET_BW_IGR_KILOBIT_PER_SEC": 9}


async def test_shared_use_is_counted_and_released(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network(shared=True)
    used = (await cloud.get("/quotas/p1/details"))["quota"]["rbac_policy"]["used"]
    assert used == 1
    (rbac,) = (await cloud.get("/rbac-policies", object_id=net["id"]))["rbac_policies"]
    await cloud.ok("DELETE", f"/rbac-policies/{rbac['id']}")
    assert (await cloud.get(f"/networks/{net['id']}"))["network"]["shared"] is False
    assert (await cloud.get("/quotas/p1/details"))["quota"]["rbac_policy"]["used"] == 0


async def test_get_me_a_network(cloud: Cloud) -> None:
    url = "/auto-allocated-topology/p1"
    not_yet = await cloud.call("GET", url, fields="dry-run", token="member")
    assert (not_yet.status_code, not_yet.json()["NeutronError"]["type"]) == (409, "AutoAllocationFailure")
    outside = await cloud.service.seed_network("outside", "ops", is_default=True, **{"router:external": True})
    await cloud.service.seed_subnet("outside-v4", outside, "203.0.113.0/24")
    pool = {"name": "pool", "prefixes": ["10.64.0.0/16"], "default_prefixlen": 26, "is_default": True, "shared": True}
    await cloud.ok("POST", "/subnetpools", {"subnetpool": pool})
    ready = await cloud.ok("GET", url, fields="dry-run", token="member")
    assert ready["auto_allocated_topology"]["id"] == "dry-run=pass"
    made = (await cloud.ok("GET", url, token="member"))["auto_allocated_topology"]["id"]
    assert (await cloud.ok("GET", url, token="member"))["auto_allocated_topology"]["id"] == made
    subnets = (await cloud.get("/subnets", network_id=made))["subnets"]
    assert [each["cidr"] for each in subnets] == ["10.64.0.0/26"]
    routers = (await cloud.get("/routers", project_id="p1"))["routers"]
    assert routers[0]["external_gateway_info"]["network_id"] == outside["id"]
    await cloud.ok("DELETE", url, token="member")
    assert (await cloud.get("/networks", project_id="p1"))["networks"] == []
    assert (await cloud.get("/routers"))["routers"] == (await cloud.get("/ports"))["ports"] == []


async def test_routers_and_floating_ips(cloud: Cloud) -> None:
    net, subnet = await cloud.flat_network()
    outside = await cloud.service.seed_network("outside", "ops", **{"router:external": True})
    await cloud.service.seed_subnet("outside-v4", outside, "203.0.113.0/24")
    body = {"router": {"name": "r", "external_gateway_info": {"network_id": outside["id"]}}}
    router = (await cloud.ok("POST", "/routers", body, token="member"))["router"]
    assert router["external_gateway_info"]["external_fixed_ips"][0]["ip_address"] == "203.0.113.2"
    port = await cloud.port(net["id"], device_id="srv")
    await cloud.bind(port["id"], "cmp1")
    floating = {"floatingip": {"floating_network_id": outside["id"], "port_id": port["id"]}}
    lost = await cloud.call("POST", "/floatingips", floating, token="member")
    assert (lost.status_code, lost.json()["NeutronError"]["type"]) == (404, "ExternalGatewayForFloatingIPNotFound")
    url = f"/routers/{router['id']}"
    added = await cloud.ok("PUT", f"{url}/add_router_interface", {"subnet_id": subnet["id"]}, token="member")
    assert added["subnet_ids"] == [subnet["id"]]
    doors = (await cloud.get("/ports", device_id=router["id"]))["ports"]
    assert [port["status"] for port in doors] == ["ACTIVE", "ACTIVE"]  # no agent is waited for
    made = (await cloud.ok("POST", "/floatingips", floating, token="member"))["floatingip"]
    assert (made["fixed_ip_address"], made["status"], made["router_id"]) == ("10.0.0.2", "ACTIVE", router["id"])
    await cloud.heard({"name": "network-changed", "server_uuid": "srv", "tag": port["id"], "status": "completed"})
    assert [f["id"] for f in (await cloud.get("/floatingips", port_id=port["id"]))["floatingips"]] == [made["id"]]
    blank = (await cloud.ok("PUT", f"/floatingips/{made['id']}", {"floatingip": {}}, token="member"))["floatingip"]
    assert blank["port_id"] is None, "an update that says nothing ends the association"
    joined = {"floatingip": {"port_id": port["id"]}}
    await cloud.ok("PUT", f"/floatingips/{made['id']}", joined, token="member")
    held = await cloud.call("PUT", f"{url}/remove_router_interface", {"subnet_id": subnet["id"]}, token="member")
    assert held.status_code == 409
    assert (await cloud.call("DELETE", url, token="member")).status_code == 409
    await cloud.ok("DELETE", f"/ports/{port['id']}")
    assert (await cloud.get(f"/floatingips/{made['id']}"))["floatingip"]["port_id"] is None
    await cloud.ok("DELETE", f"/floatingips/{made['id']}", token="member")
    await cloud.ok("PUT", f"{url}/remove_router_interface", {"subnet_id": subnet["id"]}, token="member")
    await cloud.ok("DELETE", url, token="member")
    assert (await cloud.get("/ports"))["ports"] == []


async def test_trunks(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network()
    parent, one, two = [await cloud.port(net["id"]) for _ in range(3)]
    sub = {"port_id": one["id"], "segmentation_type": "vlan", "segmentation_id": 7}
    body = {"trunk": {"port_id": parent["id"], "sub_ports": [sub]}}
    trunk = (await cloud.ok("POST", "/trunks", body, token="member"))["trunk"]
    shown = (await cloud.get(f"/ports/{parent['id']}"))["port"]["trunk_details"]
    assert shown == {"trunk_id": trunk["id"], "sub_ports": [sub | {"mac_address": one["mac_address"]}]}
    clash = {"sub_ports": [{"port_id": two["id"], "segmentation_type": "vlan", "segmentation_id": 7}]}
    assert (await cloud.call("PUT", f"/trunks/{trunk['id']}/add_subports", clash, token="member")).status_code == 409
    gone = await cloud.ok("PUT", f"/trunks/{trunk['id']}/remove_subports", {"sub_ports": [sub]}, token="member")
    assert gone["sub_ports"] == []
    assert (await cloud.call("DELETE", f"/ports/{parent['id']}")).status_code == 409
    await cloud.ok("DELETE", f"/trunks/{trunk['id']}", token="member")
    await cloud.ok("DELETE", f"/ports/{parent['id']}")


async def test_deleting_an_external_network_deletes_its_unused_addresses(cloud: Cloud) -> None:
    outside = (await cloud.ok("POST", "/networks", {"network": {"name": "ext", "router:external": True}}))["network"]
    subnet = {"subnet": {"network_id": outside["id"], "ip_version": 4, "cidr": "203.0.113.0/24"}}
    shown = (await cloud.ok("POST", "/subnets", subnet))["subnet"]
    assert shown["router:external"]
    assert [row["id"] for row in (await cloud.get("/subnets", network_id=outside["id"]))["subnets"]] == [shown["id"]]
    floating = {"floatingip": {"floating_network_id": outside["id"]}}
    made = (await cloud.ok("POST", "/floatingips", floating, token="member"))["floatingip"]
    await cloud.ok("DELETE", f"/networks/{outside['id']}")
    assert (await cloud.call("GET", f"/floatingips/{made['id']}", token="member")).status_code == 404
    quota = (await cloud.get("/quotas/p1/details"))["quota"]["floatingip"]
    assert quota["used"] == 0


async def test_an_invalid_icmp_rule_is_refused_with_type_and_code(cloud: Cloud) -> None:
    group = await cloud.ok("POST", "/security-groups", {"security_group": {"name": "g"}}, token="member")
    plain = {"security_group_id": group["security_group"]["id"], "direction": "ingress", "protocol": "icmp"}
    for ports, what in (((300, 1), "type (port_range_min) 300"), ((1, 256), "code (port_range_max) 256")):
        rule = {**plain, "port_range_min": ports[0], "port_range_max": ports[1]}
        bad = await cloud.call("POST", "/security-group-rules", {"security_group_rule": rule}, token="member")
        assert bad.status_code == 400
        assert f"Invalid value for ICMP {what}" in bad.json()["NeutronError"]["message"]


async def test_supported_calls_are_listed_as_extensions(cloud: Cloud) -> None:
    for alias in ("agent", "allowed-address-pairs"):
        assert (await cloud.get(f"/extensions/{alias}"))["extension"]["alias"] == alias
    router = (await cloud.ok("POST", "/routers", {"router": {"name": "r", "project_id": "p1"}}))["router"]
    assert not {"ha", "distributed"} & router.keys(), "neither extension is listed"
    refused = await cloud.call("POST", "/routers", {"router": {"name": "r", "project_id": "p1", "ha": True}})
    assert refused.status_code == 400


async def test_service_providers_are_the_configured_ones(cloud: Cloud) -> None:
    assert len((await cloud.get("/service-providers"))["service_providers"]) == 1
    assert (await cloud.get("/service-providers", service_type="VPN"))["service_providers"] == []
    routers = (await cloud.get("/service-providers", service_type="L3_ROUTER_NAT"))["service_providers"]
    assert [each["service_type"] for each in routers] == ["L3_ROUTER_NAT"]


async def test_tags_are_sorted_and_policy_tags_have_their_own_path(cloud: Cloud) -> None:
    net = (await cloud.ok("POST", "/networks", {"network": {"project_id": "p1", "tags": ["b", "a"]}}))["network"]
    assert net["tags"] == ["a", "b"]
    policy = (await cloud.ok("POST", "/qos/policies", {"policy": {"name": "gold", "shared": True}}))["policy"]
    for path in (f"/networks/{net['id']}/tags", f"/policies/{policy['id']}/tags", f"/qos/policies/{policy['id']}/tags"):
        assert (await cloud.ok("PUT", path, {"tags": ["red", "blue"]}))["tags"] == ["blue", "red"]
        await cloud.ok("PUT", f"{path}/green")
        assert (await cloud.get(path))["tags"] == ["blue", "green", "red"]
        await cloud.ok("DELETE", f"{path}/green")
    assert (await cloud.get(f"/qos/policies/{policy['id']}"))["policy"]["tags"] == ["blue", "red"]


@pytest.mark.parametrize("id", ["%2F", "%2F%2F", "%2Fports", "x%2Fy"])
async def test_an_id_of_slashes_is_nobodys(cloud: Cloud, id: str) -> None:
    """It was passed over, and what was answered was the list."""
    for noun in ("networks", "floatingips", "ports"):
        assert (await cloud.call("GET", f"/{noun}/{id}")).status_code == 404
        assert (await cloud.call("DELETE", f"/{noun}/{id}")).status_code == 404
