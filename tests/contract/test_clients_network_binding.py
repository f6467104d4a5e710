"""The network client binds ports: host, addresses, revisions and lost answers. The suite runs against the embedded service and against a real Neutron."""

import msgspec
import pytest
from tests.helpers.contract_services import Ground, asks, server_id

from moorage.clients.network import BindRefused
from moorage.model.errors import (
    PreconditionFailed,
    Problem,
    Stale,
    UnknownOutcome,
)
from moorage.model.network import BindOptions, FixedIp, NicAsk, OtherSubnets
from moorage.operations.steps.ports import other_subnets


async def test_binding_sets_the_host_and_a_rebind_keeps_port_and_mac(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, network, network))
    ground.raw_network.calls.clear()
    bound = await ground.network.bind_ports(server, "cmp1", "nova", made)
    assert ground.raw_network.calls == {"PUT ports": 2}
    assert {port.host for port in bound} == {"cmp1"}
    assert {port.vif_type for port in bound} == {"ovs"}
    assert {port.device_owner for port in bound} == {"compute:nova"}
    moved = await ground.network.bind_ports(server, "cmp3", "nova", made)  # from the journal: with stale revisions
    assert [(port.id, port.mac, port.host) for port in moved] == [(port.id, port.mac, "cmp3") for port in made]


async def test_a_deferred_address_comes_from_the_claimed_segment(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    routed = await ground.routed(tenant)
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, routed.network))
    assert made[0].ip_allocation == "deferred"
    assert made[0].fixed_ips == ()
    for host, subnet in (("cmp1", 0), ("cmp3", 1), ("cmp4", 1), ("cmp2", 0)):
        (bound,) = await ground.network.bind_ports(
            server, host, "nova", made, BindOptions(subnets={0: routed.subnets[subnet]})
        )
        assert [each.subnet for each in bound.fixed_ips] == [routed.subnets[subnet]]
        assert (bound.host, bound.mac) == (host, made[0].mac)


async def test_a_rebind_within_a_segment_keeps_the_address(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    routed = await ground.routed(tenant)
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, routed.network))
    (first,) = await ground.network.bind_ports(
        server, "cmp1", "nova", made, BindOptions(subnets={0: routed.subnets[0]})
    )
    (second,) = await ground.network.bind_ports(
        server, "cmp2", "nova", (first,), BindOptions(subnets={0: routed.subnets[0]})
    )
    assert second.fixed_ips == first.fixed_ips


async def test_a_port_that_changes_segments_keeps_its_address_until_release(ground: Ground) -> None:
    """Wherever it is tried, and put back on no host with what it had: all by what was read before it left."""
    tenant, server = await ground.tenant(), server_id()
    routed = await ground.routed(tenant)
    own, other = routed.subnets[:2]
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, routed.network))
    (before,) = await ground.network.bind_ports(server, "cmp1", "nova", made, BindOptions(subnets={0: own}))
    had = set(before.fixed_ips)

    async def across(host: str, *, away: bool = True) -> set[FixedIp]:
        subnets, keeps = {0: other} if away else None, {0: before.fixed_ips}
        (bound,) = await ground.network.bind_ports(
            server, host, "nova", (before,), BindOptions(subnets=subnets or {}, keeps=keeps)
        )
        assert (bound.host, bound.id, bound.mac) == (host, before.id, before.mac)
        return set(bound.fixed_ips)

    async def now() -> tuple[str, set[FixedIp]]:
        (port,) = await ground.network.ports_of(server)
        return port.host, set(port.fixed_ips)

    first = await across("cmp3")
    assert ([each.subnet for each in first - had], had <= first) == ([other], True)
    assert await across("cmp4") == first, "the next host of the segment"
    assert await across("cmp2", away=False) == had
    await across("cmp3")
    await ground.network.take_off_host(server, [before.id], keeps={before.id: before.fixed_ips})
    assert await now() == ("", had)
    await across("cmp3")
    await ground.network.leave_addresses(server, {before.id: [each.address for each in had]})
    host, left = await now()
    assert (host, [each.subnet for each in left]) == ("cmp3", [other])


async def test_an_exhausted_segment_refuses_the_bind_and_the_next_one_accepts(ground: Ground) -> None:
    tenant = await ground.tenant()
    routed = await ground.routed(tenant, bits=30)  # a /30: one address beside the gateway
    first, second = server_id(), server_id()
    (taken,) = await ground.network.ensure_ports(first, tenant.project, asks(first, routed.network))
    await ground.network.bind_ports(first, "cmp1", "nova", (taken,), BindOptions(subnets={0: routed.subnets[0]}))
    made = await ground.network.ensure_ports(second, tenant.project, asks(second, routed.network))
    with pytest.raises(BindRefused) as refused:
        await ground.network.bind_ports(second, "cmp1", "nova", made, BindOptions(subnets={0: routed.subnets[0]}))
    assert refused.value.code == "IpAddressGenerationFailure"
    assert (refused.value.port, refused.value.host) == (made[0].id, "cmp1")
    (bound,) = await ground.network.bind_ports(
        second, "cmp3", "nova", made, BindOptions(subnets={0: routed.subnets[1]})
    )
    assert bound.fixed_ips[0].subnet == routed.subnets[1]
    with pytest.raises(
        BindRefused
    ) as again:  # it has an address already: moving to the full segment is refused as well
        await ground.network.bind_ports(second, "cmp2", "nova", (bound,), BindOptions(subnets={0: routed.subnets[0]}))
    assert again.value.code == "IpAddressGenerationFailure"


async def test_a_segments_other_subnets_have_addresses_too(ground: Ground) -> None:
    tenant = await ground.tenant()
    routed = await ground.routed(tenant, bits=30)  # a /30: one address beside the gateway
    grown = {"network_id": routed.network, "segment_id": routed.segments[0], "ip_version": 4, "cidr": "10.9.0.0/29"}
    more = (await ground.make("subnet", project_id=tenant.project, **grown))["id"]
    first = routed.subnets[0]
    for number, host in enumerate(("cmp1", "cmp2", "cmp1")):
        server = server_id()
        made = await ground.network.ensure_ports(server, tenant.project, asks(server, routed.network))
        ground.raw_network.calls.clear()
        (bound,) = await ground.network.bind_ports(
            server, host, "nova", made, BindOptions(subnets={0: first}, other_subnets={0: OtherSubnets(spare=(more,))})
        )
        assert [each.subnet for each in bound.fixed_ips] == [more if number else first]
        assert (
            ground.raw_network.calls["PUT ports"] == (1, 2, 1)[number]
        )  # one that was full is asked last the next time
        (again,) = await ground.network.bind_ports(
            server,
            host,
            "nova",
            made,
            BindOptions(subnets={0: first}, other_subnets={0: OtherSubnets(spare=(more,))}, tried=(host,)),
        )
        assert again.fixed_ips == bound.fixed_ips  # told of again: the address it has is as good

    async def one_more() -> None:
        server = server_id()
        made = await ground.network.ensure_ports(server, tenant.project, asks(server, routed.network))
        await ground.network.bind_ports(
            server,
            "cmp1",
            "nova",
            made,
            BindOptions(subnets={0: first}, other_subnets={0: OtherSubnets(spare=(more,))}),
        )

    for _ in range(3):
        await one_more()
    with pytest.raises(BindRefused) as refused:
        await one_more()
    assert refused.value.code == "IpAddressGenerationFailure"


async def test_an_ipv6_address_comes_with_the_claimed_address(ground: Ground) -> None:
    """By the MAC where it is automatic, and asked for where it is managed; on the other segment, that one's."""
    tenant, server = await ground.tenant(), server_id()
    routed = await ground.routed(tenant)

    async def six(row: int, mode: str) -> str:
        on = {"network_id": routed.network, "segment_id": routed.segments[row], "ip_version": 6}
        modes = {"ipv6_ra_mode": mode, "ipv6_address_mode": mode}
        return str(
            (await ground.make("subnet", cidr=f"fd00:{row}::/64", project_id=tenant.project, **on, **modes))["id"]
        )

    automatic, managed = await six(0, "slaac"), await six(1, "dhcpv6-stateful")
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, routed.network))
    facts = await ground.network.network(routed.network)
    for host, row, beside in (("cmp1", 0, automatic), ("cmp3", 1, managed), ("cmp2", 0, automatic)):
        chosen = {0: routed.subnets[row]}
        also = other_subnets(made, {routed.network: facts}, chosen)
        (bound,) = await ground.network.bind_ports(
            server, host, "nova", made, BindOptions(subnets=chosen, other_subnets=also)
        )
        assert {each.subnet for each in bound.fixed_ips} == {routed.subnets[row], beside}


async def test_a_host_of_no_segment_is_refused_by_name(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    routed = await ground.routed(tenant)
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, routed.network))
    with pytest.raises(BindRefused) as refused:
        await ground.network.bind_ports(server, "nowhere", "nova", made)
    assert refused.value.code == "HostNotConnectedToAnySegment"
    assert "nowhere" in refused.value.named
    assert "nowhere" not in str(refused.value), "owners are told of it"


async def test_a_failed_binding_is_detected_in_a_200(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    fields = {"provider:network_type": "vlan", "provider:physical_network": "physnet3"}
    network = (await ground.flat(tenant, **fields))["id"]
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, network))
    with pytest.raises(BindRefused) as refused:
        await ground.network.bind_ports(server, "cmp1", "nova", made)
    assert refused.value.code == "binding_failed"
    with pytest.raises(BindRefused):
        await ground.network.bind_ports(server, "cmp3", "nova", made, BindOptions(tried={"cmp1"}))


async def test_a_bind_of_a_fenced_executor_is_refused(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, network))
    await ground.network.bind_ports(server, "cmp2", "nova", made)
    with pytest.raises(Stale):
        await ground.network.bind_ports(server, "cmp1", "nova", made, BindOptions(tried=()))
    (port,) = await ground.network.ports_of(server)
    assert port.host == "cmp2"


async def test_unbinding_twice_or_after_deletion_succeeds(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, network))
    await ground.network.bind_ports(server, "cmp1", "nova", made)
    for _ in range(2):
        await ground.network.unbind_ports(server, made)
    (port,) = await ground.network.ports_of(server)
    assert (port.host, port.device_owner) == ("", "")
    for _ in range(2):
        await ground.network.delete_made_ports(server, [made[0].mac])
    await ground.network.unbind_ports(server, made)


async def test_a_stale_revision_is_refused_by_the_service_itself(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    (port,) = await ground.network.ensure_ports(server, tenant.project, asks(server, network))
    body = {"port": {"name": "new"}}
    old = {"If-Match": f"revision_number={port.revision}"}
    await ground.raw_network.call("PUT", f"/v2.0/ports/{port.id}", body=body, headers=old)
    with pytest.raises(PreconditionFailed):
        await ground.raw_network.call("PUT", f"/v2.0/ports/{port.id}", body=body, headers=old)


async def test_only_the_service_role_may_write_a_binding_profile(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    (port,) = await ground.network.ensure_ports(server, tenant.project, asks(server, network))
    body = {"port": {"binding:profile": {"card_serial_number": "x"}}}
    with pytest.raises(Problem):
        await ground.raw_network.call("PUT", f"/v2.0/ports/{port.id}", body=body, token=tenant.token)
    (bound,) = await ground.network.bind_ports(
        server, "cmp1", "nova", (port,), BindOptions(profiles={0: {"card_serial_number": "x"}})
    )
    assert bound.profile["card_serial_number"] == "x"
    (moved,) = await ground.network.bind_ports(server, "cmp2", "nova", (msgspec.structs.replace(bound),))
    assert "card_serial_number" not in moved.profile


async def test_a_lost_answer_to_a_create_is_found_not_repeated(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    nics = asks(server, network, network)
    losing = ground.losing("POST")
    with pytest.raises(UnknownOutcome):
        await losing.ensure_ports(server, tenant.project, nics)
    await losing.close()
    lost = {port.id for port in await ground.network.ports_of(server)}
    assert len(lost) == 2
    for unsure in (True, False):  # looking first is cheaper, but not what keeps it at one
        found = await ground.network.ensure_ports(server, tenant.project, nics, unsure=unsure)
        assert {port.id for port in found} == lost


async def test_a_lost_answer_to_a_bind_is_found_not_repeated(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    routed = await ground.routed(tenant)
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, routed.network))
    losing = ground.losing("PUT")
    with pytest.raises(UnknownOutcome):
        await losing.bind_ports(server, "cmp1", "nova", made, BindOptions(subnets={0: routed.subnets[0]}))
    await losing.close()
    (was,) = await ground.network.ports_of(server)
    (bound,) = await ground.network.bind_ports(
        server, "cmp1", "nova", made, BindOptions(subnets={0: routed.subnets[0]}, tried=())
    )
    assert (bound.host, bound.fixed_ips, bound.revision) == ("cmp1", was.fixed_ips, was.revision)


async def test_lost_answers_to_take_and_delete(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    mine = await ground.make("port", tenant.token, network_id=network)
    wish = [NicAsk(index=0, network="", port=mine["id"])]
    nics = (await ground.network.check(tenant.token, tenant.project, wish)).nics
    losing = ground.losing("PUT")
    with pytest.raises(UnknownOutcome):
        await losing.ensure_ports(server, tenant.project, nics)
    await losing.close()
    (port,) = await ground.network.ensure_ports(server, tenant.project, nics, unsure=True)
    assert (port.id, port.device_id, port.ours) == (mine["id"], server, False)
    both = (*nics, *asks(server, network, network)[1:])
    await ground.network.ensure_ports(server, tenant.project, both)
    losing = ground.losing("DELETE")
    with pytest.raises(UnknownOutcome):
        await losing.delete_made_ports(server)
    await losing.close()
    await ground.network.delete_made_ports(server)
    assert [each.id for each in await ground.network.ports_of(server)] == [mine["id"]]
