"""A list without a port or a segment does not mean that it is deleted (RULES §22), and it is released only at the revision that was listed: with the embedded and the real service."""

import pytest
from tests.helpers.contract_services import Ground, asks, server_id

from moorage.clients.circuit_breaker import FAILURES_MAX
from moorage.clients.http import ServiceClient
from moorage.clients.network import NetworkClient
from moorage.clients.replies import CREDENTIALS
from moorage.clients.service_tokens import ServiceTokens
from moorage.model.errors import NotFound, Unavailable
from moorage.model.network import BindOptions


async def a_stray(ground: Ground) -> tuple[str, str]:
    """A server's id, and a port of ours that names it."""
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    (port,) = await ground.network.ensure_ports(server, tenant.project, asks(server, network))
    return server, port.id


async def test_an_orphan_port_is_deleted_at_the_listed_revision(ground: Ground) -> None:
    server, port = await a_stray(ground)
    seen = (await ground.network.devices())[server]
    assert await ground.network.release_strays(server, list(seen.values())) == 1
    with pytest.raises(NotFound):
        await ground.network.port(port)
    assert await ground.network.release_strays(server, list(seen.values())) == 0


async def test_an_orphan_port_bound_since_it_was_listed_is_kept(ground: Ground) -> None:
    server, port = await a_stray(ground)
    seen = (await ground.network.devices())[server]
    await ground.network.bind_ports(server, "cmp1", "nova", await ground.network.ports_of(server))
    assert await ground.network.release_strays(server, list(seen.values())) == 0
    assert (await ground.network.port(port)).host == "cmp1"
    assert (await ground.network.devices())[server][port].host == "cmp1"


async def test_a_users_orphan_port_is_released_at_the_listed_revision(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    mine = await ground.make("port", tenant.token, network_id=network, device_id=server)
    seen = (await ground.network.devices())[server]
    await ground.net("PUT", f"/ports/{mine['id']}", {"port": {"name": "renamed"}})
    assert await ground.network.release_strays(server, list(seen.values())) == 0
    assert (await ground.show(mine["id"]))["device_id"] == server
    again = (await ground.network.devices())[server]
    assert await ground.network.release_strays(server, list(again.values())) == 1
    assert (await ground.show(mine["id"]))["device_id"] == ""


async def test_a_port_is_deleted_when_an_administrator_gets_404(ground: Ground) -> None:
    server, port = await a_stray(ground)
    tenant = await ground.tenant()
    other = server_id()
    (kept,) = await ground.network.ensure_ports(other, tenant.project, asks(other, (await ground.flat(tenant))["id"]))
    project = (await ground.network.port(port)).project
    assert await ground.network.ports_gone([port, kept.id], project) == frozenset()
    await ground.network.delete_made_ports(server)
    assert await ground.network.ports_gone([port, kept.id], tenant.project) == {port}


async def test_without_the_role_a_404_does_not_count(ground: Ground) -> None:
    """The service answers an empty list and 404, to whoever may not look."""
    server, port = await a_stray(ground)
    project = (await ground.network.port(port)).project
    somebody = await ground.tenant()
    tokens = ServiceTokens(ground.raw_identity, user=somebody.user, password=somebody.password, project=somebody.user)
    blind = NetworkClient(ServiceClient("network", ground.raw_network.url, tokens=tokens, transport=ground.way()))
    assert await blind.ports_of(server) == ()
    with pytest.raises(NotFound):
        await blind.port(port)
    assert await blind.ports_gone([port], project) == frozenset()
    assert await blind.segments_gone(["5e9e7c0a-0000-4000-8000-000000000001"]) == frozenset()
    await blind.close()


async def test_a_segment_is_deleted_when_its_id_gets_404(ground: Ground) -> None:
    routed = await ground.routed(await ground.tenant())
    nowhere = "5e9e7c0a-0000-4000-8000-000000000001"
    assert await ground.network.segments_gone([*routed.segments, nowhere]) == {nowhere}


@pytest.mark.parametrize(
    ("roles", "lacks"),
    [(("admin", "service"), None), (("admin",), "service"), (("service",), "admin"), (("member",), "")],
)
async def test_the_service_account_is_tested_for_binding(
    ground: Ground, roles: tuple[str, ...], lacks: str | None
) -> None:
    tenant = await ground.tenant(roles[0])
    for role in roles[1:]:
        await ground.give_role(tenant, role)
    tokens = ServiceTokens(ground.raw_identity, user=tenant.user, password=tenant.password, project=tenant.user)
    neighbour = ServiceClient("network", ground.raw_network.url, tokens=tokens, transport=ground.way())
    network = NetworkClient(neighbour)
    if lacks is None:
        for _ in range(FAILURES_MAX + 1):  # Neutron 29 fails at it, and no port is bound later for that
            await network.try_credentials()
        neighbour.breaker.enter("POST bindings").left()
    else:
        with pytest.raises(Unavailable) as refused:
            await network.try_credentials()
        assert refused.value.code == CREDENTIALS
        assert f"lacks the role {lacks}" in refused.value.private
    await network.close()


async def test_a_bind_refused_by_missing_rights_blames_no_host(ground: Ground) -> None:
    server, _ = await a_stray(ground)
    admin = await ground.tenant("admin")
    tokens = ServiceTokens(ground.raw_identity, user=admin.user, password=admin.password, project=admin.user)
    network = NetworkClient(ServiceClient("network", ground.raw_network.url, tokens=tokens, transport=ground.way()))
    with pytest.raises(Unavailable) as refused:
        await network.bind_ports(
            server,
            "cmp1",
            "nova",
            await ground.network.ports_of(server),
            BindOptions(profiles={0: {"card_serial_number": "x"}}),
        )
    assert refused.value.code == CREDENTIALS
    assert "[service_user] lacks the role service" in refused.value.private
    assert "cmp1" not in str(refused.value)
    await network.close()
