"""The network client's contract: one suite, against the embedded service and against a real Neutron."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.helpers.contract_services import Ground, asks, server_id, with_macs

from moorage.clients.network import BindRefused
from moorage.model.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    OverQuota,
    PreconditionFailed,
    Problem,
    Stale,
    UnknownOutcome,
)
from moorage.model.network import BindOptions, FixedIp, NicAsk, OtherSubnets, mint_mac
from moorage.operations.steps.groups import expected
from moorage.operations.steps.ports import other_subnets


async def test_ports_are_made_once_however_often_they_are_asked_for(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    nics = asks(server, network, network)
    ground.raw_network.calls.clear()
    first = await ground.network.ensure_ports(server, tenant.project, nics)
    assert ground.raw_network.calls == {"POST ports": 1}
    assert [port.mac for port in first] == [nic.mac for nic in nics]
    assert all(port.ours and port.device_id == server and port.project == tenant.project for port in first)
    again = await ground.network.ensure_ports(server, tenant.project, nics)
    unsure = await ground.network.ensure_ports(server, tenant.project, nics, unsure=True)
    assert {port.id for port in first} == {port.id for port in again} == {port.id for port in unsure}
    assert len(await ground.network.ports_of(server)) == 2


async def test_only_the_missing_port_of_a_bulk_is_made(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    nics = asks(server, network, network, network)
    (kept,) = await ground.network.ensure_ports(server, tenant.project, nics[1:2])
    ports = await ground.network.ensure_ports(server, tenant.project, nics)
    assert ports[1].id == kept.id
    assert {port.id for port in await ground.network.ports_of(server)} == {port.id for port in ports}


async def test_a_minted_mac_that_another_server_has_is_replaced_by_the_next(ground: Ground) -> None:
    tenant, server, other = await ground.tenant(), server_id(), server_id()
    network = (await ground.flat(tenant))["id"]
    await ground.make(
        "port", network_id=network, project_id=tenant.project, device_id=other, mac_address=mint_mac(server, 0)
    )
    nics = asks(server, network)
    (port,) = await ground.network.ensure_ports(server, tenant.project, nics)
    assert port.mac == mint_mac(server, 0, 1)
    (again,) = await ground.network.ensure_ports(server, tenant.project, nics)
    assert again.id == port.id
    await ground.network.delete_made_ports(server, [nics[0].mac])
    assert await ground.network.ports_of(server) == ()
    assert len(await ground.network.ports_of(other)) == 1


async def test_binding_sets_the_host_and_moving_on_keeps_port_and_mac(ground: Ground) -> None:
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


async def test_a_deferred_address_comes_from_the_claimed_segment_first_and_again(ground: Ground) -> None:
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


async def test_a_port_that_leaves_its_segment_keeps_its_address_until_it_is_let_go(ground: Ground) -> None:
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


async def test_an_exhausted_segment_refuses_the_bind_and_the_next_segment_takes_it(ground: Ground) -> None:
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


async def test_a_segments_ipv6_comes_with_the_address_that_was_claimed(ground: Ground) -> None:
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


async def test_a_binding_that_failed_is_seen_although_the_service_says_200(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    fields = {"provider:network_type": "vlan", "provider:physical_network": "physnet3"}
    network = (await ground.flat(tenant, **fields))["id"]
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, network))
    with pytest.raises(BindRefused) as refused:
        await ground.network.bind_ports(server, "cmp1", "nova", made)
    assert refused.value.code == "binding_failed"
    with pytest.raises(BindRefused):
        await ground.network.bind_ports(server, "cmp3", "nova", made, BindOptions(tried={"cmp1"}))


async def test_a_bind_told_by_one_who_was_fenced_is_stale(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, network))
    await ground.network.bind_ports(server, "cmp2", "nova", made)
    with pytest.raises(Stale):
        await ground.network.bind_ports(server, "cmp1", "nova", made, BindOptions(tried=()))
    (port,) = await ground.network.ports_of(server)
    assert port.host == "cmp2"


async def test_a_change_by_somebody_else_is_survived_when_it_is_harmless(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, network))
    await ground.net("PUT", f"/ports/{made[0].id}", {"port": {"name": "mine"}}, tenant.token)
    (bound,) = await ground.network.bind_ports(server, "cmp1", "nova", made, BindOptions(tried=()))
    assert (bound.host, bound.name) == ("cmp1", "mine")


async def test_a_users_port_is_taken_bound_and_let_go_as_it_was(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    routed = await ground.routed(tenant)
    mine = await ground.make("port", tenant.token, network_id=routed.network, name="mine")
    checked = await ground.network.check(tenant.token, tenant.project, [NicAsk(index=0, network="", port=mine["id"])])
    assert not checked.nics[0].ours
    made = await ground.network.ensure_ports(server, tenant.project, checked.nics)
    assert (made[0].id, made[0].device_id, made[0].ours) == (mine["id"], server, False)
    (bound,) = await ground.network.bind_ports(
        server,
        "cmp1",
        "nova",
        made,
        BindOptions(subnets={0: routed.subnets[0]}, profiles={0: {"card_serial_number": "x"}}),
    )
    assert bound.profile == {"card_serial_number": "x"}
    assert bound.fixed_ips
    await ground.network.unbind_ports(server, made)
    port = await ground.show(mine["id"])
    assert (port["device_id"], port["device_owner"], port["binding:host_id"]) == ("", "", "")
    assert (port["fixed_ips"], port["binding:profile"]) == ([], {})
    await ground.network.release_ports(server, [])
    assert (await ground.show(mine["id"]))["name"] == "mine"


async def test_a_port_in_use_is_not_taken(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    mine = await ground.make("port", tenant.token, network_id=network)
    wish = [NicAsk(index=0, network="", port=mine["id"])]
    nics = (await ground.network.check(tenant.token, tenant.project, wish)).nics
    await ground.network.ensure_ports(server, tenant.project, nics)
    await ground.network.ensure_ports(server, tenant.project, nics)  # twice by the same server is once
    with pytest.raises(Conflict) as taken:
        await ground.network.ensure_ports(server_id(), tenant.project, nics)
    assert taken.value.code == "port_in_use"
    with pytest.raises(Conflict) as refused:
        await ground.network.check(tenant.token, tenant.project, wish)
    assert refused.value.code == "port_in_use"


async def test_release_deletes_ours_and_spares_the_users(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    mine = await ground.make("port", tenant.token, network_id=network)
    wish = [NicAsk(index=0, network=network), NicAsk(index=1, network="", port=mine["id"])]
    nics = with_macs(server, (await ground.network.check(tenant.token, tenant.project, wish)).nics)
    made = await ground.network.ensure_ports(server, tenant.project, nics)
    await ground.network.bind_ports(server, "cmp1", "nova", made)
    for _ in range(2):
        await ground.network.release_ports(server, [nics[0].mac])
    assert await ground.network.ports_of(server) == ()
    left = await ground.show(mine["id"])
    assert (left["device_id"], left["binding:host_id"]) == ("", "")
    assert left["fixed_ips"] == mine["fixed_ips"]
    with pytest.raises(NotFound):
        await ground.network.port(made[0].id)


async def test_unbinding_twice_and_after_deletion_is_nothing(ground: Ground) -> None:
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


async def test_the_port_quota_is_the_projects_and_is_named(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    await ground.net("PUT", f"/quotas/{tenant.project}", {"quota": {"port": 1}})
    wish = [NicAsk(index=0, network=network), NicAsk(index=1, network=network)]
    with pytest.raises(OverQuota) as early:
        await ground.network.check(tenant.token, tenant.project, wish)
    assert str(early.value) == "Maximum number of ports exceeded"
    assert (await ground.network.check(tenant.token, tenant.project, wish[:1])).ports_free == 1
    with pytest.raises(OverQuota):
        await ground.network.ensure_ports(server, tenant.project, asks(server, network, network))
    assert await ground.network.ports_of(server) == ()


async def test_what_another_project_owns_cannot_be_named(ground: Ground) -> None:
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


async def test_an_address_must_be_inside_and_free(ground: Ground) -> None:
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


async def test_auto_takes_the_one_network_there_is_and_never_guesses(ground: Ground) -> None:
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


async def test_two_makers_at_once_make_one_set(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    nics = asks(server, network, network)
    one, two = await asyncio.gather(
        *(ground.network.ensure_ports(server, tenant.project, nics, unsure=True) for _ in range(2))
    )
    assert {port.id for port in one} == {port.id for port in two}
    assert len(await ground.network.ports_of(server)) == 2


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


async def test_a_lost_answer_to_a_take_and_to_a_delete(ground: Ground) -> None:
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


async def test_a_port_on_a_network_with_guaranteed_bandwidth_says_what_it_needs(ground: Ground) -> None:
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
async def test_what_a_port_will_ask_is_known_before_it_is_made(ground: Ground, wire: str | None) -> None:
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


async def test_every_network_in_three_lists_and_what_hosts_are_wired_to(ground: Ground) -> None:
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


async def test_an_external_network_is_for_those_whom_policy_lets(ground: Ground) -> None:
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


async def test_auto_makes_the_topology_when_the_service_has_promised_it(ground: Ground) -> None:
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


async def test_a_topology_of_another_project_is_not_to_be_seen(ground: Ground) -> None:
    tenant, other = await ground.tenant(), await ground.tenant()
    for method in ("GET", "DELETE"):
        with pytest.raises(Problem):
            await ground.net(method, f"/auto-allocated-topology/{other.project}", token=tenant.token)
