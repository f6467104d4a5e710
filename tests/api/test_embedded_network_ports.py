"""Ports of the embedded network service: created, in bulk, bound, on routed networks, and the permissions for it."""

import asyncio
from collections import Counter

import pytest
from tests.helpers.embedded_network_cloud import Cloud, cloud

__all__ = ["cloud"]


async def test_a_port_has_a_mac_an_address_and_the_default_group(cloud: Cloud) -> None:
    net, subnet = await cloud.flat_network()
    port = await cloud.port(net["id"], device_id="srv", tags=["ours"])
    assert port["fixed_ips"] == [{"subnet_id": subnet["id"], "ip_address": "10.0.0.2"}]
    assert port["ip_allocation"] == "immediate"
    assert port["revision_number"] == 1
    assert port["resource_request"] is None
    assert port["tags"] == ["ours"]
    assert port["status"] == "DOWN"
    groups = await cloud.get("/security-groups", project_id="p1")
    assert port["security_groups"] == [groups["security_groups"][0]["id"]]
    assert len(groups["security_groups"][0]["security_group_rules"]) == 4


async def test_a_mac_is_unique_in_its_network(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network()
    mac = "fa:16:3e:aa:bb:01"
    first = await cloud.port(net["id"], mac_address=mac, device_id="srv-1")
    again = await cloud.call(
        "POST", "/ports", {"port": {"network_id": net["id"], "project_id": "p1", "mac_address": mac}}
    )
    assert (again.status_code, again.json()["NeutronError"]["type"]) == (409, "MacAddressInUse")
    bulk = [{"network_id": net["id"], "project_id": "p1", "mac_address": m} for m in ("fa:16:3e:aa:bb:11", mac)]
    refused = await cloud.call("POST", "/ports", {"ports": bulk})
    assert (refused.status_code, refused.json()["NeutronError"]["type"]) == (409, "MacAddressInUse")
    found = await cloud.get("/ports", network_id=net["id"])
    assert [each["id"] for each in found["ports"]] == [first["id"]]
    assert (await cloud.get("/quotas/p1/details"))["quota"]["port"]["used"] == 1
    assert (await cloud.get("/ports", network_id=net["id"], mac_address=mac))["ports"][0]["device_id"] == "srv-1"


async def test_a_line_feed_is_no_part_of_a_mac(cloud: Cloud) -> None:
    """It would be another MAC than the same without it, and stands in files of lines on the port's host."""
    net, _ = await cloud.flat_network()
    for wrong in ("fa:16:3e:aa:bb:01\n", "fa:16:3e:aa:bb:01 ", "\nfa:16:3e:aa:bb:01", "fa:16:3e:aa:bb"):
        body = {"port": {"network_id": net["id"], "project_id": "p1", "mac_address": wrong}}
        assert (await cloud.call("POST", "/ports", body)).status_code == 400, wrong


async def test_a_bulk_request_creates_all_ports(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network()
    bulk = [{"network_id": net["id"], "project_id": "p1", "name": f"p{n}"} for n in range(5)]
    made = await cloud.ok("POST", "/ports", {"ports": bulk})
    assert [each["name"] for each in made["ports"]] == ["p0", "p1", "p2", "p3", "p4"]
    assert len({each["fixed_ips"][0]["ip_address"] for each in made["ports"]}) == 5


async def test_a_bind_answers_like_open_vswitch_and_compute_gets_an_event(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network()
    port = await cloud.port(net["id"], device_id="srv")
    bound = await cloud.bind(port["id"], "cmp1")
    assert bound["binding:vif_type"] == "ovs"
    assert bound["binding:vif_details"]["port_filter"] is True
    assert bound["status"] == "ACTIVE"
    await cloud.heard({"name": "network-vif-plugged", "server_uuid": "srv", "tag": port["id"], "status": "completed"})
    nowhere = await cloud.bind(port["id"], "nohost")
    assert (nowhere["binding:vif_type"], nowhere["status"]) == ("binding_failed", "DOWN")
    unbound = await cloud.ok("PUT", f"/ports/{port['id']}", {"port": {"binding:host_id": None, "device_id": ""}})
    assert unbound["port"]["binding:vif_type"] == "unbound"


async def test_if_match(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network()
    port = await cloud.port(net["id"])
    url = f"/ports/{port['id']}"
    good = await cloud.call("PUT", url, {"port": {"name": "a"}}, headers={"If-Match": "revision_number=1"})
    assert (good.status_code, good.json()["port"]["revision_number"]) == (200, 2)
    stale = await cloud.call("PUT", url, {"port": {"name": "b"}}, headers={"If-Match": "revision_number=1"})
    assert (stale.status_code, stale.json()["NeutronError"]["type"]) == (412, "RevisionNumberConstraintFailed")
    assert (await cloud.get(url))["port"]["name"] == "a"
    assert (await cloud.call("DELETE", url, headers={"If-Match": "revision_number=1"})).status_code == 412
    assert (await cloud.call("DELETE", url, headers={"If-Match": "revision_number=2"})).status_code == 204


async def test_a_routed_network_answers_as_neutron_does(cloud: Cloud) -> None:
    net, (one, two), _ = await cloud.routed_network("10.1.0.0/29", "10.2.0.0/29")
    port = await cloud.port(net["id"], device_id="srv-1", mac_address="fa:16:3e:aa:bb:01")
    assert (port["fixed_ips"], port["ip_allocation"]) == ([], "deferred")
    url = f"/ports/{port['id']}"
    bound = await cloud.bind(port["id"], "cmp1")
    assert [each["subnet_id"] for each in bound["fixed_ips"]] == [one["id"]]
    refused = await cloud.call("PUT", url, {"port": {"binding:host_id": "cmp2"}})
    assert (refused.status_code, refused.json()["NeutronError"]["type"]) == (409, "HostNotCompatibleWithFixedIps")
    moved = await cloud.ok("PUT", url, {"port": {"binding:host_id": "cmp2", "fixed_ips": [{"subnet_id": two["id"]}]}})
    assert [each["subnet_id"] for each in moved["port"]["fixed_ips"]] == [two["id"]]
    assert (moved["port"]["binding:vif_type"], moved["port"]["mac_address"]) == ("ovs", "fa:16:3e:aa:bb:01")
    fresh = await cloud.port(net["id"], device_id="srv-2")
    lost = await cloud.call("PUT", f"/ports/{fresh['id']}", {"port": {"binding:host_id": "nohost"}})
    assert (lost.status_code, lost.json()["NeutronError"]["type"]) == (409, "HostNotConnectedToAnySegment")
    cleared = await cloud.ok("PUT", url, {"port": {"binding:host_id": "", "fixed_ips": []}})
    assert cleared["port"]["fixed_ips"] == []
    again = await cloud.bind(port["id"], "cmp1")
    assert [each["subnet_id"] for each in again["fixed_ips"]] == [one["id"]]


async def test_an_exhausted_segment_is_a_conflict_and_freed_addresses_are_reused(cloud: Cloud) -> None:
    net, _, _ = await cloud.routed_network("10.1.0.0/29", "10.2.0.0/29")
    ports = [await cloud.port(net["id"], device_id=f"s{n}") for n in range(6)]
    for port in ports[:5]:
        await cloud.bind(port["id"], "cmp1")
    body = {"port": {"binding:host_id": "cmp1", "device_owner": "compute:nova"}}
    full = await cloud.call("PUT", f"/ports/{ports[5]['id']}", body)
    assert (full.status_code, full.json()["NeutronError"]["type"]) == (409, "IpAddressGenerationFailure")
    assert (await cloud.get(f"/ports/{ports[5]['id']}"))["port"]["binding:host_id"] == ""
    await cloud.ok("DELETE", f"/ports/{ports[2]['id']}")
    bound = await cloud.bind(ports[5]["id"], "cmp1")
    assert bound["fixed_ips"][0]["ip_address"] == "10.1.0.4"


async def test_concurrent_requests_never_get_the_same_address(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network("10.0.0.0/26")
    body = {"port": {"network_id": net["id"], "project_id": "p1", "device_id": "x"}}
    answers = await asyncio.gather(*(cloud.call("POST", "/ports", body) for _ in range(80)))
    assert Counter(each.status_code for each in answers) == {201: 61, 409: 19}
    made = [each.json()["port"]["fixed_ips"][0]["ip_address"] for each in answers if each.status_code == 201]
    assert len(set(made)) == 61
    assert {each.json()["NeutronError"]["type"] for each in answers if each.status_code == 409} == {
        "IpAddressGenerationFailure"
    }
    assert (await cloud.get("/quotas/p1/details"))["quota"]["port"]["used"] == 61


async def test_the_last_unit_of_a_quota_is_given_once(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network()
    await cloud.ok("PUT", "/quotas/p1", {"quota": {"port": 3}})
    body = {"port": {"network_id": net["id"], "project_id": "p1"}}
    answers = await asyncio.gather(*(cloud.call("POST", "/ports", body) for _ in range(10)))
    assert Counter(each.status_code for each in answers) == {201: 3, 409: 7}
    assert {each.json()["NeutronError"]["type"] for each in answers if each.status_code == 409} == {"OverQuota"}


@pytest.mark.parametrize(
    ("fixed_ips", "status", "kind"),
    [
        ([{"ip_address": "10.0.0.9"}], 201, None),
        ([{"ip_address": "10.0.0.2"}], 409, "IpAddressAlreadyAllocated"),
        ([{"ip_address": "10.9.9.9"}], 400, "InvalidIpForNetwork"),
        ([{"ip_address": "nonsense"}], 400, "HTTPBadRequest"),
        ([{"subnet_id": "3a06dfc7-d239-4aad-9a57-21cd171c72e5"}], 400, "InvalidInput"),
        ([], 201, None),
    ],
)
async def test_requested_addresses(
    cloud: Cloud, fixed_ips: list[dict[str, str]], status: int, kind: str | None
) -> None:
    net, _ = await cloud.flat_network()
    await cloud.port(net["id"])
    body = {"port": {"network_id": net["id"], "project_id": "p1", "fixed_ips": fixed_ips}}
    answer = await cloud.call("POST", "/ports", body)
    assert answer.status_code == status, answer.text
    assert (answer.json().get("NeutronError") or {}).get("type") == kind
    if not fixed_ips:
        assert answer.json()["port"]["ip_allocation"] == "none"


async def test_inactive_bindings_of_a_port(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network()
    port = await cloud.port(net["id"], device_id="srv")
    url = f"/ports/{port['id']}/bindings"
    early = await cloud.call("POST", url, {"binding": {"host": "cmp1"}})
    assert early.status_code == 400
    await cloud.bind(port["id"], "cmp1")
    made = await cloud.ok("POST", url, {"binding": {"host": "cmp2", "profile": {"allocation": "rp"}}})
    assert (made["binding"]["status"], made["binding"]["vif_type"]) == ("INACTIVE", "ovs")
    again = await cloud.call("POST", url, {"binding": {"host": "cmp2"}})
    assert (again.status_code, again.json()["NeutronError"]["type"]) == (409, "PortBindingAlreadyExists")
    failed = await cloud.call("POST", url, {"binding": {"host": "nohost"}})
    assert (failed.status_code, failed.json()["NeutronError"]["type"]) == (500, "PortBindingError")
    active = await cloud.ok("PUT", f"{url}/cmp2/activate", {})
    assert (active["status"], active["profile"]) == ("ACTIVE", {"allocation": "rp"})
    assert (await cloud.get(f"/ports/{port['id']}"))["port"]["binding:host_id"] == "cmp2"
    assert {b["host"]: b["status"] for b in (await cloud.get(url))["bindings"]} == {
        "cmp1": "INACTIVE",
        "cmp2": "ACTIVE",
    }
    assert (await cloud.call("PUT", f"{url}/cmp2/activate", {})).status_code == 409
    await cloud.ok("DELETE", f"{url}/cmp1")
    assert (await cloud.call("GET", f"{url}/cmp1")).status_code == 404
    assert (await cloud.call("GET", f"{url}/cmp2", token="member")).status_code == 403
    assert (await cloud.call("GET", url, token="member")).json() == {"bindings": []}


async def test_bindings_that_block_a_port_do_so_as_in_neutron(cloud: Cloud) -> None:
    """As Neutron 29: who relies on a kinder answer is found out here, and not beside a real one."""
    net, _ = await cloud.flat_network()
    port = await cloud.port(net["id"], device_id="srv")
    url = f"/ports/{port['id']}/bindings"
    await cloud.bind(port["id"], "cmp1")
    await cloud.ok("POST", url, {"binding": {"host": "cmp2"}})
    for _ in range(2):
        onto = await cloud.call("PUT", f"/ports/{port['id']}", {"port": {"binding:host_id": "cmp2"}})
        assert onto.status_code == 500
    assert {b["host"]: b["status"] for b in (await cloud.get(url))["bindings"]} == {
        "cmp1": "ACTIVE",
        "cmp2": "INACTIVE",
    }
    await cloud.ok("DELETE", f"{url}/cmp1")
    assert [b["host"] for b in (await cloud.get(url))["bindings"]] == ["cmp2"]
    assert (await cloud.call("PUT", f"{url}/cmp2/activate", {})).status_code == 500
    unknown = await cloud.call("PUT", f"/ports/{port['id']}", {"port": {"binding:host_id": "cmp1"}})
    assert (unknown.status_code, unknown.json()["NeutronError"]["type"]) == (404, "PortNotFound")
    made = await cloud.ok("POST", url, {"binding": {"host": "cmp1"}})
    assert made["binding"]["status"] == "ACTIVE"
    assert (await cloud.get(f"/ports/{port['id']}"))["port"]["binding:host_id"] == "cmp1"


async def test_permissions_on_ports(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network()
    port = await cloud.port(net["id"])
    mine = (await cloud.call("GET", f"/ports/{port['id']}", token="member")).json()["port"]
    assert not [name for name in mine if name.startswith("binding:") and name != "binding:vnic_type"]
    assert "resource_request" not in mine
    for said in ({"binding:host_id": "cmp1"}, {"binding:profile": {"a": 1}}):
        answer = await cloud.call("PUT", f"/ports/{port['id']}", {"port": said}, token="member")
        assert (answer.status_code, answer.json()["NeutronError"]["type"]) == (403, "PolicyNotAuthorized")
    for method, body in (("GET", None), ("PUT", {"port": {"name": "x"}}), ("DELETE", None)):
        assert (await cloud.call(method, f"/ports/{port['id']}", body, token="stranger")).status_code == 404
    assert (await cloud.call("GET", "/ports", token="stranger")).json() == {"ports": []}
    foreign = await cloud.call("POST", "/ports", {"port": {"network_id": net["id"]}}, token="stranger")
    assert foreign.status_code == 404
    reader = await cloud.call("PUT", f"/ports/{port['id']}", {"port": {"name": "x"}}, token="reader")
    assert reader.status_code == 403
    admin = await cloud.call("PUT", f"/ports/{port['id']}", {"port": {"binding:profile": {"a": 1}}}, token="admin")
    assert admin.status_code == 403
    assert (await cloud.call("GET", "/ports", token="nobody")).status_code == 401


async def test_shared_networks_accept_foreign_ports_without_fixed_addresses(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network(shared=True)
    port = await cloud.call("POST", "/ports", {"port": {"network_id": net["id"]}}, token="stranger")
    assert port.status_code == 201
    for said in ({"mac_address": "fa:16:3e:00:00:01"}, {"fixed_ips": [{"ip_address": "10.0.0.50"}]},
                 {"device_owner": "network:dhcp"}):  # fmt: skip
        answer = await cloud.call("POST", "/ports", {"port": {"network_id": net["id"]} | said}, token="stranger")
        assert answer.status_code == 403, said
    closed = await cloud.call("PUT", f"/networks/{net['id']}", {"network": {"shared": False}})
    assert (closed.status_code, closed.json()["NeutronError"]["type"]) == (409, "InvalidSharedSetting")


async def test_bodies_are_read_strictly(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network()
    unknown = await cloud.call("POST", "/ports", {"port": {"network_id": net["id"], "x": 1}})
    assert (unknown.status_code, unknown.json()["NeutronError"]["message"]) == (400, "Unrecognized attribute(s) 'x'")
    missing = await cloud.call("POST", "/ports", {"port": {}})
    assert "Required attribute 'network_id'" in missing.json()["NeutronError"]["message"]
    assert (await cloud.call("POST", "/ports", {})).status_code == 400
    fixed = await cloud.call("PUT", f"/networks/{net['id']}", {"network": {"id": "x"}})
    assert fixed.json()["NeutronError"]["message"] == "Cannot update read-only attribute id"
    large = await cloud.call("POST", "/ports", {"port": {"network_id": net["id"], "name": "x" * 2_000_000}})
    assert large.status_code == 413
    assert (await cloud.call("PATCH", "/ports", {})).status_code == 405
    nul = await cloud.call("POST", "/ports", {"port": {"network_id": net["id"], "device_id": "a\0b"}})
    assert nul.status_code == 400
    assert (await cloud.call("GET", "/ports/a%00b")).status_code == 400
    assert (await cloud.call("GET", "/ports", name="a\0b")).status_code == 400


async def test_a_filter_reveals_no_hidden_resource(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network()
    port = await cloud.port(net["id"], device_id="srv")
    await cloud.bind(port["id"], "cmp1")
    query = {"binding:host_id": "cmp1"}
    assert (await cloud.ok("GET", "/ports", token="member", **query))["ports"] == []
    assert len((await cloud.get("/ports", **query))["ports"]) == 1


async def test_a_port_becomes_active_when_its_host_reports_it(cloud: Cloud) -> None:
    net, _ = await cloud.flat_network()
    port = await cloud.port(net["id"], device_id="srv")
    await cloud.bind(port["id"], "cmp1")
    await cloud.service.set_port_status(port["id"], "DOWN")
    await cloud.heard({"name": "network-vif-unplugged", "server_uuid": "srv", "tag": port["id"], "status": "completed"})
    assert (await cloud.get(f"/ports/{port['id']}"))["port"]["status"] == "DOWN"
    await cloud.service.set_host_alive("cmp1", False)
    assert (await cloud.bind(port["id"], "cmp1"))["binding:vif_type"] == "ovs"  # nothing changed, nothing is bound anew
    other = await cloud.port(net["id"], device_id="srv")
    assert (await cloud.bind(other["id"], "cmp1"))["binding:vif_type"] == "binding_failed"
    await cloud.ok("DELETE", f"/ports/{port['id']}")
    await cloud.heard({"name": "network-vif-deleted", "server_uuid": "srv", "tag": port["id"], "status": "completed"})


async def test_dhcp_options_are_set_one_by_one(cloud: Cloud) -> None:
    """Others stay as they are; one without a value goes."""
    net, _ = await cloud.flat_network()
    first = [{"opt_name": "bootfile-name", "opt_value": "a"}, {"opt_name": "tftp-server", "opt_value": ""}]
    port = await cloud.port(net["id"], extra_dhcp_opts=first)
    assert port["extra_dhcp_opts"] == [{"opt_name": "bootfile-name", "opt_value": "a", "ip_version": 4}]
    url = f"/ports/{port['id']}"
    more = [{"opt_name": "router", "opt_value": ""}, {"opt_name": "bootfile-name", "opt_value": "b", "ip_version": "6"}]
    shown = (await cloud.ok("PUT", url, {"port": {"extra_dhcp_opts": more}}))["port"]["extra_dhcp_opts"]
    assert [(each["opt_name"], each["opt_value"], each["ip_version"]) for each in shown] == [
        ("bootfile-name", "a", 4), ("router", "", 4), ("bootfile-name", "b", 6)
    ]  # fmt: skip
    gone = [{"opt_name": each["opt_name"], "opt_value": None, "ip_version": each["ip_version"]} for each in shown[:2]]
    shown = (await cloud.ok("PUT", url, {"port": {"extra_dhcp_opts": gone}}))["port"]["extra_dhcp_opts"]
    assert [each["opt_value"] for each in shown] == ["b"]
    assert (await cloud.ok("PUT", url, {"port": {"extra_dhcp_opts": []}}))["port"]["extra_dhcp_opts"] == shown


@pytest.mark.parametrize("address", [[], {}, 7, ["10.0.0.9"]])
async def test_an_address_that_is_no_text_is_refused(cloud: Cloud, address: object) -> None:
    net, _ = await cloud.flat_network()
    body = {"port": {"network_id": net["id"], "fixed_ips": [{"ip_address": address}]}}
    answer = await cloud.call("POST", "/ports", body)
    assert (answer.status_code, "is not a valid IP address" in answer.text) == (400, True)
