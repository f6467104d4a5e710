"""A second binding of a port, for a server that moves: the client's contract, on the embedded network service and on a real Neutron."""

from pathlib import Path

import pytest
from tests.helpers.contract_services import Ground, asks, embedded_ground, server_id

from moorage.clients.network.bindings import ALREADY_ACTIVE, ALREADY_EXISTS, BINDING_IS_ACTIVE
from moorage.clients.network.decoding import BINDING_FAILED_KIND
from moorage.model.errors import Conflict, Invalid, NotFound, Refusal, Stale, UnknownOutcome
from moorage.model.network import Binding, BindOptions, BindRefused, NicAsk, Port

SLOT = {"card": {"serial": "one"}}
OTHER = {"card": {"serial": "two"}}
THERE = {"migrating_to": "cmp2"}
"""What a second binding says for the Open vSwitch agent there, which would take the port for one that leaves."""


class Bound:
    """A server with two ports, bound to cmp1."""

    def __init__(self, ground: Ground, server: str, network: str, ports: tuple[Port, ...]) -> None:
        self.ground, self.server, self.network, self.ports = ground, server, network, ports
        self.ids = [port.id for port in ports]

    async def seen(self, port: int = 0) -> list[tuple[str, bool]]:
        return [(each.host, each.active) for each in await self.ground.network.bindings(self.ids[port])]

    async def here(self, host: str, port: int = 0) -> Binding:
        return next(each for each in await self.ground.network.bindings(self.ids[port]) if each.host == host)


@pytest.fixture
async def bound(ground: Ground) -> Bound:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, network, network))
    return Bound(ground, server, network, await ground.network.bind_ports(server, "cmp1", "nova", made))


async def test_the_service_supports_several_bindings_of_a_port(ground: Ground) -> None:
    assert await ground.network.has_bindings()


async def test_an_inactive_binding_does_not_change_the_active_one(bound: Bound) -> None:
    network = bound.ground.network
    bound.ground.raw_network.calls.clear()
    there = await network.bind_inactive(bound.server, "cmp2", bound.ports, profiles={0: SLOT})
    assert bound.ground.raw_network.calls == {"POST bindings": 2}
    assert [(each.id, each.host, each.vif_type) for each in there] == [(each, "cmp2", "ovs") for each in bound.ids]
    assert [each.profile for each in there] == [SLOT | THERE, THERE]
    assert await bound.seen() == await bound.seen(1) == [("cmp1", True), ("cmp2", False)]
    for port in await network.ports_of(bound.server):
        assert (port.host, port.vif_type, port.profile) == ("cmp1", "ovs", {})


async def test_a_repeated_binding_returns_the_existing_one(bound: Bound) -> None:
    network = bound.ground.network
    first = await network.bind_inactive(bound.server, "cmp2", bound.ports, profiles={0: SLOT})
    bound.ground.raw_network.calls.clear()
    assert await network.bind_inactive(bound.server, "cmp2", bound.ports, profiles={0: SLOT}) == first
    assert bound.ground.raw_network.calls == {"POST bindings": 2, "GET bindings": 2}


async def test_a_repeated_binding_uses_the_last_claim(bound: Bound) -> None:
    network = bound.ground.network
    await network.bind_inactive(bound.server, "cmp2", bound.ports, profiles={0: SLOT})
    (changed, _) = await network.bind_inactive(bound.server, "cmp2", bound.ports, profiles={0: OTHER})
    assert changed.profile == (await bound.here("cmp2")).profile == OTHER | THERE
    assert await bound.seen() == [("cmp1", True), ("cmp2", False)]


async def test_host_data_of_the_old_profile_is_not_copied(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    made = await ground.network.ensure_ports(server, tenant.project, asks(server, network))
    old = {"pci_slot": "0000:01:00.1", "card": "kept"}
    bound = await ground.network.bind_ports(server, "cmp1", "nova", made, BindOptions(profiles={0: old}))
    (there,) = await ground.network.bind_inactive(server, "cmp2", bound)
    assert there.profile == {"card": "kept"} | THERE


async def test_a_refused_binding_creates_nothing(bound: Bound) -> None:
    network = bound.ground.network
    for _ in range(10):
        with pytest.raises(BindRefused) as said:
            await network.bind_inactive(bound.server, "nohost", bound.ports[:1])
        assert (said.value.port, said.value.host, said.value.code) == (bound.ids[0], "nohost", BINDING_FAILED_KIND)
    assert await bound.seen() == [("cmp1", True)]
    assert bound.ground.raw_network.breaker.open_circuits() == ()  # it was a refusal, and no failure of the service


async def test_the_switch_deactivates_the_old_binding_and_back(bound: Bound) -> None:
    network = bound.ground.network
    await network.bind_inactive(bound.server, "cmp2", bound.ports, profiles={0: SLOT})
    bound.ground.raw_network.calls.clear()
    there = await network.activate_binding(bound.server, "cmp2", bound.ports)
    assert bound.ground.raw_network.calls == {"PUT bindings": 2}
    assert [(each.host, each.vif_type) for each in there] == [("cmp2", "ovs")] * 2
    assert there[0].profile == SLOT | THERE
    assert await bound.seen() == [("cmp2", True), ("cmp1", False)]
    now = {port.id: port for port in await network.ports_of(bound.server)}
    assert {port.host for port in now.values()} == {"cmp2"}
    assert now[bound.ids[0]].profile == SLOT | THERE
    again = await network.activate_binding(bound.server, "cmp2", bound.ports)
    assert [(each.host, each.profile) for each in again] == [(each.host, each.profile) for each in there]
    for _ in range(2):
        back = await network.activate_binding(bound.server, "cmp1", bound.ports)
        assert [(each.host, each.vif_type) for each in back] == [("cmp1", "ovs")] * 2, "it lost how it was bound"
        assert await bound.seen() == [("cmp1", True), ("cmp2", False)]
    assert {(port.host, port.vif_type) for port in await network.ports_of(bound.server)} == {("cmp1", "ovs")}


async def test_an_absent_binding_cannot_be_activated(bound: Bound) -> None:
    with pytest.raises(NotFound):
        await bound.ground.network.activate_binding(bound.server, "cmp2", bound.ports)
    assert await bound.seen() == [("cmp1", True)]


async def test_a_repeated_delete_of_a_binding_succeeds(bound: Bound) -> None:
    network = bound.ground.network
    await network.bind_inactive(bound.server, "cmp2", bound.ports)
    for _ in range(2):
        await network.delete_binding(bound.server, "cmp2", bound.ids)
        assert await bound.seen() == await bound.seen(1) == [("cmp1", True)]
    await network.delete_binding(bound.server, "cmp2", ["11111111-1111-1111-1111-111111111111"])


async def test_agents_are_notified_of_a_deleted_binding(bound: Bound) -> None:
    """Neutron tells them of what is written only; a delete whose answer was lost is told of, too."""
    network = bound.ground.network
    await network.bind_inactive(bound.server, "cmp2", bound.ports)
    for _ in range(2):
        before = {port.id: port.revision for port in await network.ports_of(bound.server)}
        bound.ground.raw_network.calls.clear()
        await network.delete_binding(bound.server, "cmp2", bound.ids)
        assert bound.ground.raw_network.calls["PUT ports"] == len(bound.ids)
        now = {port.id: port.revision for port in await network.ports_of(bound.server)}
        assert now.keys() == before.keys()


async def test_the_active_binding_is_not_deleted(bound: Bound) -> None:
    network = bound.ground.network
    await network.bind_inactive(bound.server, "cmp2", bound.ports)
    with pytest.raises(Conflict) as kept:
        await network.delete_binding(bound.server, "cmp1", bound.ids)
    assert kept.value.code == BINDING_IS_ACTIVE
    assert await bound.seen() == [("cmp1", True), ("cmp2", False)]


async def test_the_active_binding_gets_no_second_profile(bound: Bound) -> None:
    network = bound.ground.network
    same = await network.bind_inactive(bound.server, "cmp1", bound.ports)
    assert {each.host for each in same} == {"cmp1"}
    with pytest.raises(Conflict) as refused:
        await network.bind_inactive(bound.server, "cmp1", bound.ports, profiles={0: SLOT})
    assert refused.value.code == BINDING_IS_ACTIVE
    assert await bound.seen() == [("cmp1", True)]


async def test_a_released_port_has_no_bindings_and_gets_none(bound: Bound) -> None:
    network = bound.ground.network
    await network.bind_inactive(bound.server, "cmp2", bound.ports)
    free = {"port": {"device_id": "", "device_owner": "", "binding:host_id": ""}}
    await bound.ground.net("PUT", f"/ports/{bound.ids[0]}", free)
    assert await bound.seen() == []
    with pytest.raises(Stale):
        await network.bind_inactive(bound.server, "cmp3", bound.ports[:1])
    with pytest.raises(Stale):
        await network.activate_binding(bound.server, "cmp2", bound.ports[:1])
    await network.delete_binding(bound.server, "cmp2", bound.ids[:1])
    assert await bound.seen(1) == [("cmp1", True), ("cmp2", False)]


async def test_a_users_port_is_released_without_leftover_bindings(ground: Ground) -> None:
    """Afterwards nobody could delete them, and the next server with that port would find them on its way."""
    tenant, network = await ground.tenant(), ground.network
    mine = await ground.make("port", tenant.token, network_id=(await ground.flat(tenant))["id"])
    wish = [NicAsk(index=0, network="", port=mine["id"])]
    nics = (await network.check(tenant.token, tenant.project, wish)).nics
    for way in ("deleted", "detached", "taken back"):
        server = server_id()
        here = await network.bind_ports(
            server, "cmp1", "nova", await network.ensure_ports(server, tenant.project, nics)
        )
        assert [each.host for each in await network.bindings(mine["id"])] == ["cmp1"], way
        await network.bind_inactive(server, "cmp2", here)
        for _ in range(2):
            if way == "deleted":
                await network.release_ports(server)
            elif way == "detached":
                await network.drop_port(server, mine["id"], ours=False)
            else:
                await network.unbind_ports(server, here)
        assert (await ground.show(mine["id"]))["device_id"] == ""
    last = server_id()
    (bound,) = await network.bind_ports(last, "cmp2", "nova", await network.ensure_ports(last, tenant.project, nics))
    assert [(each.host, each.active) for each in await network.bindings(bound.id)] == [("cmp2", True)]


async def test_deleting_a_port_deletes_its_bindings(bound: Bound) -> None:
    network = bound.ground.network
    await network.bind_inactive(bound.server, "cmp2", bound.ports)
    await bound.ground.net("DELETE", f"/ports/{bound.ids[0]}")
    with pytest.raises(NotFound):
        await network.bindings(bound.ids[0])
    with pytest.raises(Refusal):
        await network.activate_binding(bound.server, "cmp2", bound.ports[:1])
    await network.delete_binding(bound.server, "cmp2", bound.ids)
    assert await bound.seen(1) == [("cmp1", True)]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_a_request_is_repeated_after_a_lost_answer(bound: Bound, method: str) -> None:
    """What was asked is done, nobody heard so, and the repeat finds it done."""
    network, deaf = bound.ground.network, bound.ground.losing(method)
    try:
        if method != "POST":
            await network.bind_inactive(bound.server, "cmp2", bound.ports)
        for client in (deaf, network):
            try:
                if method == "POST":
                    await client.bind_inactive(bound.server, "cmp2", bound.ports)
                elif method == "PUT":
                    await client.activate_binding(bound.server, "cmp2", bound.ports)
                else:
                    await client.delete_binding(bound.server, "cmp2", bound.ids)
            except UnknownOutcome:
                assert client is deaf
    finally:
        await deaf.close()
    assert (
        await bound.seen()
        == {
            "POST": [("cmp1", True), ("cmp2", False)],
            "PUT": [("cmp2", True), ("cmp1", False)],
            "DELETE": [("cmp1", True)],
        }[method]
    )


async def test_error_messages_of_the_service(bound: Bound) -> None:
    """What the client is built on, said by the service itself."""
    ground, path = bound.ground, f"/v2.0/ports/{bound.ids[0]}/bindings"
    call = ground.raw_network.call
    await call("POST", path, body={"binding": {"host": "cmp2"}})
    with pytest.raises(Conflict) as twice:
        await call("POST", path, body={"binding": {"host": "cmp2"}})
    with pytest.raises(Conflict) as active:
        await call("PUT", f"{path}/cmp1/activate")
    with pytest.raises(Conflict) as nowhere:
        await call("POST", path, body={"binding": {"host": "nohost"}})
    assert [each.value.code for each in (twice, active, nowhere)] == [
        ALREADY_EXISTS,
        ALREADY_ACTIVE,
        BINDING_FAILED_KIND,
    ]
    for method, suffix in (("GET", ""), ("PUT", "/activate"), ("DELETE", "")):
        with pytest.raises(NotFound) as none:
            await call(method, f"{path}/cmp3{suffix}")
        assert none.value.code == "PortBindingNotFound"
    tenant = await ground.tenant()
    free = await ground.make("port", network_id=bound.network, project_id=tenant.project)
    for method, body in (("GET", None), ("POST", {"binding": {"host": "cmp1"}})):
        with pytest.raises(Invalid) as nobodys:
            await call(method, f"/v2.0/ports/{free['id']}/bindings", body=body)
        assert nobodys.value.code == "BadRequest"


async def test_an_unbound_port_gets_an_inactive_binding(ground: Ground) -> None:
    tenant, server = await ground.tenant(), server_id()
    network = (await ground.flat(tenant))["id"]
    (made,) = await ground.network.ensure_ports(server, tenant.project, asks(server, network))
    await ground.net("PUT", f"/ports/{made.id}", {"port": {"device_owner": "compute:nova"}})
    await ground.network.bind_inactive(server, "cmp1", (made,))
    assert [(each.host, each.active) for each in await ground.network.bindings(made.id)] == [("cmp1", False)]
    assert (await ground.network.ports_of(server))[0].host == ""


async def test_a_leftover_binding_excludes_the_host_only_once(tmp_path: Path) -> None:
    """The embedded service alone: the real one takes minutes to say so."""
    async with embedded_ground(tmp_path) as ground:
        tenant, server = await ground.tenant(), server_id()
        network = (await ground.flat(tenant))["id"]
        made = await ground.network.ensure_ports(server, tenant.project, asks(server, network))
        here = await ground.network.bind_ports(server, "cmp1", "nova", made)
        await ground.network.bind_inactive(server, "cmp2", here, profiles={0: SLOT})
        with pytest.raises(UnknownOutcome):
            await ground.network.bind_ports(server, "cmp2", "nova", here)
        (bound,) = await ground.network.bind_ports(server, "cmp2", "nova", here)
        assert (bound.host, bound.profile) == ("cmp2", {})
        assert [(each.host, each.active) for each in await ground.network.bindings(bound.id)] == [("cmp2", True)]
