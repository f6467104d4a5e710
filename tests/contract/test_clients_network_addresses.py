"""Addresses added to and dropped from ports that a server has, and shared groups: embedded network service and a real Neutron."""

import pytest
from tests.helpers.contract_services import Ground, asks, server_id

from moorage.model.errors import Conflict, Invalid, NotFound
from moorage.model.network import BindOptions, NicAsk


async def test_an_address_more_and_an_address_less(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, network))
    await ground.network.bind_ports(server, "cmp1", "nova", made)
    await ground.network.add_address(server, network)
    (port,) = await ground.network.ports_of(server)
    first, more = (each.address for each in port.fixed_ips)
    assert (made[0].fixed_ips[0].address in {first, more}, port.host) == (True, "cmp1")
    await ground.network.drop_address(server, first)
    (port,) = await ground.network.ports_of(server)
    assert [each.address for each in port.fixed_ips] == [more]
    with pytest.raises(NotFound):
        await ground.network.drop_address(server, first)
    other = (await ground.flat(tenant, "10.8.0.0/24"))["id"]
    with pytest.raises(NotFound):
        await ground.network.add_address(server, other)


async def test_an_added_address_comes_from_the_ports_segment(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    routed = await ground.routed(tenant, 29)  # five addresses each
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, routed.network))
    await ground.network.bind_ports(server, "cmp3", "nova", made, BindOptions(subnets={0: routed.subnets[1]}))
    for _ in range(4):
        await ground.network.add_address(server, routed.network)
    (port,) = await ground.network.ports_of(server)
    assert [each.subnet for each in port.fixed_ips] == [routed.subnets[1]] * 5
    with pytest.raises(Conflict) as none_left:
        await ground.network.add_address(server, routed.network)
    assert routed.network in none_left.value.public
    assert len((await ground.network.ports_of(server))[0].fixed_ips) == 5


async def test_a_shared_group_of_another_project_is_named_by_id(ground: Ground) -> None:
    tenant, other = await ground.tenant(), await ground.tenant()
    network = (await ground.flat(tenant))["id"]
    group = (await ground.make("security-group", other.token, name="theirs"))["id"]

    async def check(name: str) -> tuple[str, ...]:
        nics = [NicAsk(index=0, network=network)]
        return (await ground.network.check(tenant.token, tenant.project, nics, security_groups=[name])).security_groups

    with pytest.raises(Invalid):
        await check(group)
    share = {
        "object_type": "security_group", "object_id": group, "action": "access_as_shared",
        "target_tenant": tenant.project,
    }  # fmt: skip
    await ground.net("POST", "/rbac-policies", {"rbac_policy": share})
    assert await check(group) == (group,)
    with pytest.raises(Invalid):
        await check("theirs")  # names are the project's own


async def test_security_groups_of_ports_are_resolved_to_names(ground: Ground) -> None:
    tenant = await ground.tenant()
    network = (await ground.flat(tenant))["id"]
    group = (await ground.make("security-group", tenant.token, name="web"))["id"]
    own = await ground.make("port", tenant.token, network_id=network, security_groups=[group])
    bare = (await ground.flat(tenant, "10.8.0.0/24", port_security_enabled=False))["id"]

    async def shown(*nics: NicAsk, groups: tuple[str, ...] = ()) -> tuple[str, ...] | None:
        checked = await ground.network.check(tenant.token, tenant.project, nics, security_groups=groups)
        return checked.group_names

    ours, theirs = NicAsk(index=0, network=network), NicAsk(index=0, network="", port=own["id"], ours=False)
    assert await shown(ours) == ("default",)
    assert await shown(ours, groups=(group,)) == ("web",)
    assert await shown(ours, groups=("web", "default")) == ("web", "default")
    assert await shown(theirs) == ("web",)
    assert await shown(theirs, groups=("default",)) == ("web",)  # a port keeps its own
    assert await shown(NicAsk(index=0, network=bare)) == ()
