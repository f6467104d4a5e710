"""The network client makes, takes and releases ports: one suite, against the embedded service and against a real Neutron."""

import asyncio

import pytest
from tests.helpers.contract_services import Ground, asks, server_id, with_macs

from moorage.model.errors import (
    Conflict,
    Invalid,
    NotFound,
    OverQuota,
)
from moorage.model.network import BindOptions, NicAsk, mint_mac


async def test_repeated_requests_make_each_port_once(ground: Ground) -> None:
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


async def test_a_computed_mac_used_by_another_server_is_replaced(ground: Ground) -> None:
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


async def test_a_harmless_concurrent_change_is_tolerated(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, network))
    await ground.net("PUT", f"/ports/{made[0].id}", {"port": {"name": "mine"}}, tenant.token)
    (bound,) = await ground.network.bind_ports(server, "cmp1", "nova", made, BindOptions(tried=()))
    assert (bound.host, bound.name) == ("cmp1", "mine")


async def test_a_users_port_is_bound_and_released_unchanged(ground: Ground) -> None:
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


async def test_a_port_in_use_is_refused(ground: Ground) -> None:
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


async def test_a_port_that_the_network_service_uses_is_no_nic(ground: Ground) -> None:
    """As subports of trunks are once they are bound; they have no device."""
    tenant = await ground.tenant()
    network = (await ground.flat(tenant))["id"]
    mine = await ground.make("port", tenant.token, network_id=network)
    wish = [NicAsk(index=0, network="", port=mine["id"])]
    await ground.net("PUT", f"/ports/{mine['id']}", {"port": {"device_owner": "trunk:subport"}})
    with pytest.raises(Conflict) as refused:
        await ground.network.check(tenant.token, tenant.project, wish)
    assert (refused.value.code, "trunk:subport" in refused.value.public) == ("port_in_use", True)
    await ground.net("PUT", f"/ports/{mine['id']}", {"port": {"device_owner": "Octavia"}})  # who means to plug it
    await ground.network.check(tenant.token, tenant.project, wish)


async def test_release_deletes_created_ports_and_keeps_users_ports(ground: Ground) -> None:
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


async def test_concurrent_makers_make_one_set_of_ports(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    nics = asks(server, network, network)
    one, two = await asyncio.gather(
        *(ground.network.ensure_ports(server, tenant.project, nics, unsure=True) for _ in range(2))
    )
    assert {port.id for port in one} == {port.id for port in two}
    assert len(await ground.network.ports_of(server)) == 2


async def test_ports_have_the_servers_host_name_until_they_are_given_back(ground: Ground) -> None:
    if "dns-integration" not in await ground.network.extensions():
        pytest.skip("this network service has no names of ports")
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    mine = await ground.make("port", tenant.token, network_id=network)
    (checked,) = (
        await ground.network.check(
            tenant.token, tenant.project, [NicAsk(index=1, network="", port=mine["id"], ours=False)]
        )
    ).nics
    nics = (*asks(server, network), checked)
    await ground.network.ensure_ports(server, tenant.project, nics, hostname="web-01")
    ports = await ground.network.ports_of(server)
    assert [port.dns_name for port in ports] == ["web-01", "web-01"]
    await ground.network.release_ports(server, [nics[0].mac])
    assert (await ground.show(mine["id"]))["dns_name"] == ""


async def test_a_port_of_another_name_is_refused(ground: Ground) -> None:
    if "dns-integration" not in await ground.network.extensions():
        pytest.skip("this network service has no names of ports")
    tenant = await ground.tenant()
    network = (await ground.flat(tenant))["id"]
    port = await ground.make("port", tenant.token, network_id=network, dns_name="other")
    wish = [NicAsk(index=0, network="", port=port["id"], ours=False)]
    with pytest.raises(Invalid, match="its dns_name other is not the server's hostname mine"):
        await ground.network.check(tenant.token, tenant.project, wish, hostname="mine")
    assert (await ground.network.check(tenant.token, tenant.project, wish, hostname="other")).nics
