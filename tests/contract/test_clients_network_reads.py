"""The network client reads networks, subnets, security groups and guarantees. The suite runs against the embedded service and against a real Neutron."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.helpers.contract_services import Ground, asks, server_id, with_macs

from moorage.model.errors import (
    Conflict,
    Forbidden,
    Invalid,
    Problem,
)
from moorage.model.network import NicAsk
from moorage.operations.steps.groups import expected


async def test_resources_of_another_project_are_refused(ground: Ground) -> None:
    tenant, other = await ground.tenant(), await ground.tenant()
    network = (await ground.flat(other))["id"]
    port = (await ground.make("port", other.token, network_id=network))["id"]
    group = (await ground.make("security-group", other.token, name="theirs"))["id"]
    mine = (await ground.flat(tenant))["id"]
    await ground.network.check(other.token, other.project, [NicAsk(index=0, network=network)])  # kept for the other
    for nic, groups, code in (
        (NicAsk(index=0, network=network), [], "network_not_found"),
        (NicAsk(index=0, network="", port=port), [], "port_not_found"),
        (NicAsk(index=0, network=mine), [group], "security_group_not_found"),
        (NicAsk(index=0, network="no-such-network"), [], "network_not_found"),
    ):
        with pytest.raises(Invalid) as refused:
            await ground.network.check(tenant.token, tenant.project, [nic], security_groups=groups)
        assert refused.value.code == code


async def test_a_requested_address_must_be_in_the_subnet_and_free(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    for address, code in (("192.0.2.1", "fixed_ip_outside"), ("nonsense", "bad_address")):
        with pytest.raises(Invalid) as refused:
            await ground.network.check(
                tenant.token, tenant.project, [NicAsk(index=0, network=network, address=address)]
            )
        assert refused.value.code == code
    wish = [NicAsk(index=0, network=network, address="10.9.0.77")]
    nics = with_macs(server, (await ground.network.check(tenant.token, tenant.project, wish)).nics)
    (port,) = await ground.network.ensure_ports(server, tenant.project, nics)
    assert [each.address for each in port.fixed_ips] == ["10.9.0.77"]
    with pytest.raises(Problem) as used:
        await ground.network.check(tenant.token, tenant.project, wish)
    assert used.value.code == "fixed_ip_in_use"
    rival = server_id()
    with pytest.raises(Conflict):
        await ground.network.ensure_ports(rival, tenant.project, with_macs(rival, nics))


async def test_facts_of_a_routed_network(ground: Ground) -> None:
    tenant = await ground.tenant()
    routed = await ground.routed(tenant)
    checked = await ground.network.check(tenant.token, tenant.project, [NicAsk(index=0, network=routed.network)])
    facts = checked.networks[routed.network]
    assert facts.routed
    assert {each.id: each.physical_network for each in facts.segments} == dict(
        zip(routed.segments, ("physnet1", "physnet2"), strict=True)
    )
    assert {each.id: each.segment for each in facts.subnets} == dict(zip(routed.subnets, routed.segments, strict=True))
    counted = await ground.network.availability(routed.network)
    assert {each.subnet: (each.total, each.used) for each in counted} == dict.fromkeys(routed.subnets, (5, 0))
    ground.raw_network.calls.clear()
    await ground.network.check(tenant.token, tenant.project, [NicAsk(index=0, network=routed.network)])
    assert not ground.raw_network.calls  # warm: nothing is asked


async def test_auto_uses_the_only_network_and_refuses_to_choose(ground: Ground) -> None:
    tenant = await ground.tenant()
    with pytest.raises(Conflict) as refused:
        await ground.network.check(tenant.token, tenant.project, "auto")
    assert refused.value.code == "auto_allocate_refused"
    assert "Unable to automatically allocate a network" in str(refused.value)
    assert (await ground.network.check(tenant.token, tenant.project, "unspecified")).nics == ()
    network = (await ground.flat(tenant))["id"]
    for how in ("auto", "unspecified"):
        checked = await ground.network.check(tenant.token, tenant.project, how)  # type: ignore[arg-type]
        assert [nic.network for nic in checked.nics] == [network]
    await ground.flat(tenant)
    with pytest.raises(Conflict) as ambiguous:
        await ground.network.check(tenant.token, tenant.project, "auto")
    assert ambiguous.value.code == "network_ambiguous"
    assert (await ground.network.check(tenant.token, tenant.project, "none")).nics == ()


async def test_security_groups_are_named_by_name_or_id(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    group = (await ground.make("security-group", tenant.token, name="web"))["id"]
    for name in ("web", group):
        checked = await ground.network.check(
            tenant.token, tenant.project, [NicAsk(index=0, network=network)], security_groups=[name]
        )
        assert checked.security_groups == (group,)
    (port,) = await ground.network.ensure_ports(
        server, tenant.project, asks(server, network), security_groups=checked.security_groups
    )
    assert port.security_groups == (group,)


async def test_a_port_of_a_network_with_a_policy_shows_its_request(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    policy = (await ground.net("POST", "/qos/policies", {"policy": {"name": "gold", "project_id": tenant.project}}))[
        "policy"
    ]
    rule = {"minimum_bandwidth_rule": {"min_kbps": 1000, "direction": "egress"}}
    await ground.net("POST", f"/qos/policies/{policy['id']}/minimum_bandwidth_rules", rule)
    fields = {"provider:network_type": "vlan", "provider:physical_network": "physnet1", "qos_policy_id": policy["id"]}
    network = (await ground.flat(tenant, **fields))["id"]
    (port,) = await ground.network.ensure_ports(server, tenant.project, asks(server, network))
    assert port.resource_request is not None
    (group,) = port.resource_request["request_groups"]
    assert group["resources"] == {"NET_BW_EGR_KILOBIT_PER_SEC": 1000}
    assert sorted(group["required"]) == ["CUSTOM_PHYSNET_PHYSNET1", "CUSTOM_VNIC_TYPE_NORMAL"]
    assert port.resource_request["same_subtree"] == [group["id"]]
    held = (await ground.network.held_by_ports())[server][port.id]
    assert (held.resource_request, held.fixed_ips, held.mac) == (port.resource_request, port.fixed_ips, port.mac)


@pytest.mark.parametrize("wire", ["physnet1", None])
async def test_the_request_of_a_port_is_known_before_it_is_made(ground: Ground, wire: str | None) -> None:
    """From the rules of the network's policy: the amounts and traits that the port, once made, asks in its `resource_request`."""
    tenant = await ground.tenant()
    policy = (await ground.net("POST", "/qos/policies", {"policy": {"name": "all", "project_id": tenant.project}}))[
        "policy"
    ]
    rules = f"/qos/policies/{policy['id']}"
    for kind, rule in (
        ("minimum_bandwidth", {"min_kbps": 3_000, "direction": "egress"}),
        ("minimum_bandwidth", {"min_kbps": 2_000, "direction": "ingress"}),
        ("minimum_packet_rate", {"min_kpps": 7, "direction": "any"}),
        ("bandwidth_limit", {"max_kbps": 9_000}),
    ):
        await ground.net("POST", f"{rules}/{kind}_rules", {f"{kind}_rule": rule})
    where: dict[str, Any] = {"provider:network_type": "vxlan"} if wire is None else {
        "provider:network_type": "vlan", "provider:physical_network": wire,
    }  # fmt: skip
    network = await ground.flat(tenant, qos_policy_id=policy["id"], **where)
    facts = await ground.network.network(network["id"])
    server = server_id()
    (made,) = await ground.network.ensure_ports(server, tenant.project, asks(server, network["id"]))
    known = expected(made, facts, await ground.network.rules_of(facts.qos_policy or ""))
    assert known is not None
    assert made.resource_request is not None

    def said(request: Mapping[str, Any]) -> list[tuple[list[str], dict[str, int]]]:
        return sorted((sorted(each["required"]), each["resources"]) for each in request["request_groups"])

    assert said(known) == said(made.resource_request)
    assert len(known["same_subtree"]) == len(made.resource_request["same_subtree"]) == 2
    assert await ground.network.rules_of(server_id()) == ()


async def test_networks_and_host_links_are_read_in_three_lists(ground: Ground) -> None:
    tenant = await ground.tenant()
    routed, flat = await ground.routed(tenant), await ground.flat(tenant)
    found = {network.id: network for network in await ground.network.networks()}
    assert {each.id for each in found[routed.network].segments} == set(routed.segments)
    assert found[routed.network].routed
    assert not found[flat["id"]].routed
    assert found[flat["id"]] == await ground.network.network(flat["id"])
    wired = {each.host: each.physical_networks for each in await ground.network.wirings() if each.alive}
    assert wired["cmp1"] == ("physnet1",)
    assert wired["both1"] == ("physnet1", "physnet2")
    assert {"segment", "qos", "auto-allocated-topology", "revision-if-match"} <= await ground.network.extensions()


async def test_an_external_network_needs_permission(ground: Ground) -> None:
    tenant = await ground.tenant()
    network = (await ground.flat(tenant, **{"router:external": True}))["id"]
    wish = [NicAsk(index=0, network=network)]
    with pytest.raises(Forbidden):
        await ground.network.check(tenant.token, tenant.project, wish)
    assert (await ground.network.check(tenant.token, tenant.project, wish, external_allowed=True)).nics[
        0
    ].network == network


async def test_a_network_without_addresses_is_refused(ground: Ground) -> None:
    tenant = await ground.tenant()
    network = (await ground.make("network", tenant.token, name="bare"))["id"]
    with pytest.raises(Invalid) as refused:
        await ground.network.check(tenant.token, tenant.project, [NicAsk(index=0, network=network)])
    assert refused.value.code == "network_requires_subnet"


async def test_auto_creates_the_topology_when_the_service_offers_it(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    outside = await ground.make("network", name="outside", **{"router:external": True, "is_default": True})
    await ground.make("subnet", network_id=outside["id"], ip_version=4, cidr="203.0.113.0/24")
    pool = await ground.make(
        "subnetpool", name="pool", prefixes=["10.200.0.0/16"], default_prefixlen=26, is_default=True, shared=True
    )
    try:
        checked = await ground.network.check(tenant.token, tenant.project, "auto")
        assert checked.auto
        nics = with_macs(server, checked.nics)
        (port,) = await ground.network.ensure_ports(server, tenant.project, nics)
        (again,) = await ground.network.ensure_ports(server, tenant.project, nics, unsure=True)
        assert again.id == port.id
        assert port.project == tenant.project
        next_time = await ground.network.check(tenant.token, tenant.project, "auto")
        assert (next_time.auto, next_time.nics[0].network) == (False, port.network)
        await ground.network.delete_made_ports(server)
    finally:
        await ground.net("DELETE", f"/auto-allocated-topology/{tenant.project}")
        await ground.net("DELETE", f"/subnetpools/{pool['id']}")
        await ground.net("DELETE", f"/networks/{outside['id']}")


async def test_a_topology_of_another_project_is_hidden(ground: Ground) -> None:
    tenant, other = await ground.tenant(), await ground.tenant()
    for method in ("GET", "DELETE"):
        with pytest.raises(Problem):
            await ground.net(method, f"/auto-allocated-topology/{other.project}", token=tenant.token)
