"""Addresses added to and dropped from ports that a server has: embedded network service and a real Neutron."""

import pytest
from grounds import Ground, asks, server_id

from moorage.model.errors import Conflict, NotFound


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


async def test_on_a_routed_network_it_comes_from_the_ports_segment_or_from_nowhere(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    routed = await ground.routed(tenant, 29)  # five addresses each
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, routed.network))
    await ground.network.bind_ports(server, "cmp3", "nova", made, subnets={0: routed.subnets[1]})
    for _ in range(4):
        await ground.network.add_address(server, routed.network)
    (port,) = await ground.network.ports_of(server)
    assert [each.subnet for each in port.fixed_ips] == [routed.subnets[1]] * 5
    with pytest.raises(Conflict) as none_left:
        await ground.network.add_address(server, routed.network)
    assert routed.network in none_left.value.public
    assert len((await ground.network.ports_of(server))[0].fixed_ips) == 5
