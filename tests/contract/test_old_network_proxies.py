"""What the Compute API passes on to the network service below 2.36 and 2.44: the same answers over the embedded one and a real one."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.contract_services import Ground, server_id
from tests.helpers.proxy_compute_app import OldNet, old_net

GROUP = {"security_group": {"name": "web", "description": "the web's"}}


@pytest.fixture
async def context(ground: Ground, tmp_path: Path) -> AsyncIterator[OldNet]:
    (tmp_path / "desk").mkdir()
    async with old_net(ground, tmp_path / "desk") as made:
        yield made


def rule(group: str, **more: Any) -> Any:
    plain = {"parent_group_id": group, "ip_protocol": "tcp", "from_port": 22, "to_port": "22", "cidr": "10.0.0.0/8"}
    return {"security_group_rule": {**plain, **more}}


async def test_security_groups_are_created_changed_and_deleted(context: OldNet) -> None:
    made = (await context.ok("POST", "/os-security-groups", GROUP))["security_group"]
    assert (made["name"], made["description"], made["rules"]) == ("web", "the web's", [])
    assert set(made) == {"id", "name", "description", "rules", "tenant_id"}
    path = f"/os-security-groups/{made['id']}"
    assert (await context.ok("GET", path))["security_group"] == made
    listed = (await context.ok("GET", "/os-security-groups"))["security_groups"]
    assert [group["name"] for group in listed] == ["default", "web"]
    assert (await context.ok("GET", "/os-security-groups?limit=1&offset=1"))["security_groups"][0] in listed
    changed = {"security_group": {"name": "web2", "description": "x", "colour": "unknown fields are taken"}}
    assert (await context.ok("PUT", path, changed))["security_group"]["name"] == "web2"
    await context.ok("DELETE", path, status=202)
    status, sentence = await context.refused("DELETE", path)
    assert (status, made["id"] in sentence) == (404, True)
    assert (await context.refused("GET", path))[0] == 404
    assert (await context.refused("PUT", path, changed))[0] == 404
    assert await context.refused("GET", "/os-security-groups/17") == (400, "Security group id should be uuid")
    assert (await context.refused("POST", "/os-security-groups", {"security_group": {"name": "x"}}))[0] == 400
    assert (await context.ask("GET", "/os-security-groups", at="2.36")).status_code == 404


async def test_the_default_group_is_shown_in_the_old_format(context: OldNet) -> None:
    (group,) = (await context.ok("GET", "/os-security-groups"))["security_groups"]
    itself = {"name": "default", "tenant_id": context.tenant.project}
    assert len(group["rules"]) == 2  # of four: only what comes in is shown
    for each in group["rules"]:
        assert each.pop("id")
        assert each == {
            "parent_group_id": group["id"], "ip_protocol": None, "from_port": None, "to_port": None,
            "group": itself, "ip_range": {},
        }  # fmt: skip


async def test_rules(context: OldNet) -> None:
    group = (await context.ok("POST", "/os-security-groups", GROUP))["security_group"]["id"]
    made = (await context.ok("POST", "/os-security-group-rules", rule(group)))["security_group_rule"]
    one = made.pop("id")
    assert made == {
        "parent_group_id": group, "ip_protocol": "tcp", "from_port": 22, "to_port": 22, "group": {},
        "ip_range": {"cidr": "10.0.0.0/8"},
    }  # fmt: skip
    again = await context.refused("POST", "/os-security-group-rules", rule(group))
    assert again == (400, f"This rule already exists in group {group}")
    ping = rule(group, ip_protocol="icmp", from_port=-1, to_port=-1, cidr=None)
    pinged = (await context.ok("POST", "/os-security-group-rules", ping))["security_group_rule"]
    assert (pinged["from_port"], pinged["to_port"], pinged["ip_range"]) == (-1, -1, {"cidr": "0.0.0.0/0"})
    by_group = rule(group, group_id=group, from_port=None, to_port=None, cidr=None)
    named = (await context.ok("POST", "/os-security-group-rules", by_group))["security_group_rule"]
    assert named["group"] == {"name": "web", "tenant_id": context.tenant.project}
    assert (named["from_port"], named["to_port"], named["ip_range"]) == (1, 65535, {})
    assert (await context.refused("POST", "/os-security-group-rules", by_group))[
        0
    ] == 403  # the service says it is there
    shown = (await context.ok("GET", f"/os-security-groups/{group}"))["security_group"]
    assert len(shown["rules"]) == 3
    await context.ok("DELETE", f"/os-security-group-rules/{one}", status=202)
    assert (await context.refused("DELETE", f"/os-security-group-rules/{one}"))[0] == 404


@pytest.mark.parametrize(
    ("more", "status", "sentence"),
    [
        ({"ip_protocol": None}, 400, "Not enough parameters to build a valid rule."),
        ({"from_port": None}, 400, "Not enough parameters to build a valid rule."),
        ({"ip_protocol": "wings"}, 400, "Invalid IP protocol wings."),
        ({"from_port": "x"}, 400, "Invalid input received: To and From ports must be integers"),
        ({"from_port": 23}, 400, "Invalid port range 23:22. Former value cannot be greater than the later"),
        ({"to_port": 65536}, 400, "Invalid port range 22:65536. Valid TCP ports should be between 1-65535"),
        ({"ip_protocol": "icmp", "to_port": 256}, 400, "Invalid port range 22:256. For ICMP, the type:code must be valid"),
        ({"cidr": "10.0.0.0"}, 400, "10.0.0.0 is not a valid IP network."),
        ({"cidr": "10.0.0.0/0"}, 400, "Bad prefix for network in cidr 10.0.0.0/0"),
        ({"parent_group_id": "17"}, 400, "Invalid input for field/attribute parent_group_id. Value: 17. '17' is not a 'uuid'"),
    ],
)  # fmt: skip
async def test_rules_that_cannot_be(context: OldNet, more: Any, status: int, sentence: str) -> None:
    group = (await context.ok("POST", "/os-security-groups", GROUP))["security_group"]["id"]
    assert await context.refused("POST", "/os-security-group-rules", rule(group, **more)) == (status, sentence)
    nowhere = await context.refused("POST", "/os-security-group-rules", rule(server_id()))
    assert nowhere[0] == 404


async def test_groups_of_a_server(context: OldNet) -> None:
    network = (await context.ground.flat(context.tenant))["id"]
    server = await context.server(network, network)
    made = (await context.ok("POST", "/os-security-groups", GROUP))["security_group"]
    for _ in range(2):  # what is there already is no harm
        assert (await context.act(server.id, {"addSecurityGroup": {"name": "web"}}, "2.104")).status_code == 202
    ports = await context.ground.network.ports_of(server.id)
    assert all(made["id"] in port.security_groups and len(port.security_groups) == 2 for port in ports)
    shown = (await context.ok("GET", f"/servers/{server.id}", at="2.104"))["server"]
    assert sorted(each["name"] for each in shown["security_groups"]) == ["default", "web"]
    listed = (await context.ok("GET", f"/servers/{server.id}/os-security-groups", at="2.104"))["security_groups"]
    assert [group["name"] for group in listed] == ["default", "web"]
    in_use = await context.refused("DELETE", f"/os-security-groups/{made['id']}")
    assert (in_use[0], "in use" in in_use[1]) == (400, True)
    assert (await context.act(server.id, {"removeSecurityGroup": {"name": made["id"]}})).status_code == 202
    shown = (await context.ok("GET", f"/servers/{server.id}", at="2.104"))["server"]
    assert [each["name"] for each in shown["security_groups"]] == ["default"]
    path = f"/servers/{server.id}/action"
    gone = await context.refused("POST", path, {"removeSecurityGroup": {"name": "web"}})
    assert gone == (404, f"Security group web not associated with the instance {server.id}")
    nobody = await context.refused("POST", path, {"addSecurityGroup": {"name": "nobody"}})
    assert nobody == (404, f"Security group nobody is not found for project {context.tenant.project}")
    await context.ok("POST", "/os-security-groups", GROUP)
    assert (await context.refused("POST", path, {"addSecurityGroup": {"name": "web"}}))[0] == 409  # two of that name
    blank = await context.refused("POST", path, {"addSecurityGroup": {"name": " "}})
    assert blank == (400, "Security group name cannot be empty")


async def test_groups_need_ports_with_port_security(context: OldNet) -> None:
    bare = await context.server()
    body = {"addSecurityGroup": {"name": "default"}}
    status, sentence = await context.refused("POST", f"/servers/{bare.id}/action", body)
    assert (status, sentence) == (404, f"instance_id {bare.id} could not be found as device id on any ports")
    open_net = (await context.ground.flat(context.tenant, port_security_enabled=False))["id"]
    closed = (await context.ground.flat(context.tenant, "10.8.0.0/24"))["id"]
    server = await context.server(closed, open_net)
    await context.ok("POST", "/os-security-groups", GROUP)
    status, sentence = await context.refused(
        "POST", f"/servers/{server.id}/action", {"addSecurityGroup": {"name": "web"}}
    )
    assert (status, "port_security_enabled" in sentence) == (400, True)
    ports = await context.ground.network.ports_of(server.id)
    assert sorted(len(port.security_groups) for port in ports) == [0, 1]  # neither was touched


async def test_networks(context: OldNet) -> None:
    network = (await context.ground.flat(context.tenant))["id"]
    listed = (await context.ok("GET", "/os-networks"))["networks"]
    (mine,) = (each for each in listed if each["id"] == network)
    assert mine.pop("label") == "flat"
    assert mine.pop("id") == network
    assert len(mine) == 9
    assert set(mine.values()) == {None}
    assert (await context.ok("GET", f"/os-networks/{network}"))["network"]["label"] == "flat"
    tenants = (await context.ok("GET", "/os-tenant-networks"))["networks"]
    assert {"id": network, "cidr": "None", "label": "flat"} in tenants
    shown = (await context.ok("GET", f"/os-tenant-networks/{network}"))["network"]
    assert shown == {"id": network, "cidr": "None", "label": "flat"}
    for noun in ("os-networks", "os-tenant-networks"):
        assert await context.refused("GET", f"/{noun}/{server_id()}") == (404, "Network not found")
        assert (await context.ask("POST", f"/{noun}", {}, at="2.1")).status_code == 410
        assert (await context.ask("GET", f"/{noun}", at="2.36")).status_code == 404
    administrators = await context.ask("GET", f"/os-networks/{network}", by=context.ground.admin)
    assert len(administrators.json()["network"]) == 32


async def outside(context: OldNet, inside: str, cidr: str = "172.31.7.0/29") -> str:
    """An external network behind a router, named as the pool without a name is."""
    found = await context.ground.make("network", name="nova", **{"router:external": True})
    await context.ground.make("subnet", network_id=found["id"], ip_version=4, cidr=cidr, enable_dhcp=False)
    gateway = {"network_id": found["id"]}
    router = await context.ground.make("router", project_id=context.tenant.project, external_gateway_info=gateway)
    subnet = (await context.ground.net("GET", f"/subnets?network_id={inside}"))["subnets"][0]["id"]
    await context.ground.net("PUT", f"/routers/{router['id']}/add_router_interface", {"subnet_id": subnet})
    context.routers.append((router["id"], subnet, found["id"]))
    return str(found["id"])


async def put_away(context: OldNet) -> None:
    """The pool's name is free for the next test."""
    for router, subnet, network in context.routers:
        for floating in (await context.ground.net("GET", f"/floatingips?floating_network_id={network}"))["floatingips"]:
            await context.ground.net("DELETE", f"/floatingips/{floating['id']}")
        await context.ground.net("PUT", f"/routers/{router}/remove_router_interface", {"subnet_id": subnet})
        await context.ground.net("DELETE", f"/routers/{router}")
        await context.ground.net("DELETE", f"/networks/{network}")


async def kinds_of(context: OldNet, server: str) -> dict[str, str]:
    """Address → fixed or floating, as the server is shown."""
    shown = (await context.ok("GET", f"/servers/{server}", at="2.104"))["server"]["addresses"]
    return {each["addr"]: each["OS-EXT-IPS:type"] for rows in shown.values() for each in rows}


async def test_floating_addresses(context: OldNet) -> None:
    network = (await context.ground.flat(context.tenant))["id"]
    pool = await outside(context, network)
    try:
        assert {"name": "nova"} in (await context.ok("GET", "/os-floating-ip-pools"))["floating_ip_pools"]
        made = (await context.ok("POST", "/os-floating-ips"))["floating_ip"]
        assert (made["pool"], made["fixed_ip"], made["instance_id"]) == ("nova", None, None)
        other = (await context.ok("POST", "/os-floating-ips", {"pool": pool}))["floating_ip"]
        listed = (await context.ok("GET", "/os-floating-ips"))["floating_ips"]
        assert sorted(row["id"] for row in listed) == sorted([made["id"], other["id"]])
        server = await context.server(network)
        fixed, act = server.nics[0].addresses[0].address, f"/servers/{server.id}/action"
        await context.ok("POST", act, {"addFloatingIp": {"address": made["ip"]}}, at="2.43", status=202)
        shown = (await context.ok("GET", f"/os-floating-ips/{made['id']}"))["floating_ip"]
        assert (shown["fixed_ip"], shown["instance_id"]) == (fixed, server.id)
        assert await kinds_of(context, server.id) == {fixed: "fixed", made["ip"]: "floating"}
        taken = await context.refused("POST", act, {"addFloatingIp": {"address": other["ip"], "fixed_address": fixed}})
        assert taken[0] == 400
        for wrong in ({"address": other["ip"], "fixed_address": "10.9.0.250"}, {"address": "x"}, {"adress": "x"}):
            assert (await context.refused("POST", act, {"addFloatingIp": wrong}))[0] == 400
        nobodys = await context.refused("POST", act, {"addFloatingIp": {"address": "192.0.2.9"}})
        assert nobodys == (404, "floating IP not found")
        loose = await context.refused("POST", act, {"removeFloatingIp": {"address": other["ip"]}})
        assert loose == (409, f"Floating IP {other['ip']} is not associated with instance {server.id}.")
        unknown = await context.refused("POST", act, {"removeFloatingIp": {"address": "192.0.2.9"}})
        assert unknown == (404, "Floating IP not found for address 192.0.2.9.")
        await context.ok("POST", act, {"removeFloatingIp": {"address": made["ip"]}}, at="2.43", status=202)
        assert (await context.ok("GET", f"/os-floating-ips/{made['id']}"))["floating_ip"]["instance_id"] is None
        assert await kinds_of(context, server.id) == {fixed: "fixed"}
        assert (
            await context.ask("POST", act, {"addFloatingIp": {"address": made["ip"]}}, at="2.44")
        ).status_code == 404
        await context.ok("DELETE", f"/os-floating-ips/{made['id']}", status=202)
        gone = await context.refused("GET", f"/os-floating-ips/{made['id']}")
        assert gone == (404, f"Floating IP not found for ID {made['id']}")
        bare = await context.server()
        unready = await context.refused(
            "POST", f"/servers/{bare.id}/action", {"addFloatingIp": {"address": other["ip"]}}
        )
        assert unready == (400, "Instance network is not ready yet")
    finally:
        await put_away(context)


async def test_an_unknown_pool_and_an_empty_pool(context: OldNet) -> None:
    unknown = await context.refused("POST", "/os-floating-ips", {"pool": "wings"})
    assert unknown == (404, "Floating IP pool not found.")
    network = (await context.ground.flat(context.tenant))["id"]
    pool = await outside(context, network, "172.31.8.0/30")  # its gateway and the router have both addresses
    try:
        empty = await context.refused("POST", "/os-floating-ips", {"pool": pool})
        assert empty == (404, f"No more floating IPs in pool {pool}.")
        assert await context.refused("POST", "/os-floating-ips") == (404, "No more floating IPs available.")
        full = {"quota": {"floatingip": 0}}
        await context.ground.net("PUT", f"/quotas/{context.tenant.project}", full)
        over = await context.refused("POST", "/os-floating-ips", {"pool": pool})
        assert over == (403, f"IP allocation over quota in pool {pool}.")
    finally:
        await put_away(context)


async def test_resources_of_other_projects_are_hidden(context: OldNet) -> None:
    stranger = await context.ground.tenant()
    made = (await context.ok("POST", "/os-security-groups", GROUP))["security_group"]
    assert (await context.ask("GET", f"/os-security-groups/{made['id']}", by=stranger.token)).status_code == 404
    network = (await context.ground.flat(context.tenant))["id"]
    assert (await context.ask("GET", f"/os-networks/{network}", by=stranger.token)).status_code == 404
    reader = await context.ground.tenant("reader")
    assert (await context.ask("POST", "/os-security-groups", GROUP, by=reader.token)).status_code == 403
    assert (await context.ask("GET", "/os-security-groups", by=reader.token)).status_code == 200
