"""A segment that is full in the network service, which placement does not know yet (S0.15): the boot goes on without the segment.

Ports that no server has take the addresses behind placement's back; the round that would draw them is far away.
"""

from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from tests.cloud.conftest import Running, Start
from tests.cloud.test_boot_moves_on import attempts_of
from tests.cloud.test_last_address import routed_with

from moorage.main import reconcilers
from moorage.main.config import Hosts
from moorage.model.errors import HostFailed, NoCapacity
from moorage.model.guest import GuestSpec
from moorage.model.host_ports import PortOrder
from moorage.model.ids import HostId, ProviderId, ServerId
from moorage.model.network import FixedIp, NetworkFacts, Port, SubnetFacts
from moorage.model.world import Ask, NicRequirement
from moorage.operations.boot import legacy_ports
from moorage.operations.steps.segments import without_exhausted
from moorage.store.region.operations import operations

ONE, TWO = ProviderId("one"), ProviderId("two")


@pytest.fixture(autouse=True)
def rounds_are_far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcilers, "SEGMENTS_EVERY_S", 3600.0)


async def filled(running: Running, network: str, segment: str, addresses: int) -> None:
    """The segment's addresses are taken by ports without a server; placement is not told."""
    subnets = (await running.admin.network("GET", "/subnets", network_id=network)).json()["subnets"]
    subnet = next(each["id"] for each in subnets if each["segment_id"] == segment)
    for _ in range(addresses):
        port = {"network_id": network, "fixed_ips": [{"subnet_id": subnet}]}
        assert (await running.admin.network("POST", "/ports", {"port": port})).status_code == 201


async def emptied(running: Running, network: str, *servers: dict[str, Any]) -> None:
    for each in servers:
        await running.admin.gone(each["id"])
    for port in (await running.admin.network("GET", "/ports", network_id=network)).json()["ports"]:
        await running.admin.network("DELETE", f"/ports/{port['id']}")


async def test_a_full_segment_with_more_hosts_than_attempts(start: Start) -> None:
    wires = (*((("physnet1",),) * 7), ("physnet2",))
    async with start(hosts=Hosts(count=8, physical_networks=wires)) as running:
        admin = running.admin
        network, (full, _) = await routed_with(admin, 5, 9)
        networks = [{"uuid": network}]
        first = await admin.active("the pools are drawn now", networks=networks)
        await filled(running, network, full, 5 if first["OS-EXT-SRV-ATTR:host"] == "host8" else 4)
        found, attempts = [], []
        while len(found) < 6 and attempts[-2:] != [2, 1]:  # who is refused may be the first, or a later one
            found.append(await admin.active(f"s{len(found)}", networks=networks))
            attempts.append(len(await attempts_of(running, found[-1]["id"])))
        assert {each["OS-EXT-SRV-ATTR:host"] for each in found} == {"host8"}
        assert max(attempts) == 2, "the segment was excluded after it was refused once"
        assert sum(attempts) == len(attempts) + 1, "its pool was drawn anew at the first refusal"
        await emptied(running, network, first, *found)


async def test_the_same_host_serves_by_its_other_segment(start: Start) -> None:
    async with start(hosts=Hosts(count=1, physical_networks=(("physnet1", "physnet2"),))) as running:
        admin = running.admin
        network, (full, other) = await routed_with(admin, 9, 5)  # the emptiest segment comes first
        networks = [{"uuid": network}]
        first = await admin.active("the pools are drawn now", networks=networks)
        await filled(running, network, full, 8)
        found = await admin.active("s", networks=networks)
        attempts = await attempts_of(running, found["id"])
        assert [each["host"] for each in attempts] == ["host1", "host1"], "the host was not to blame"
        (port,) = (await admin.network("GET", "/ports", device_id=found["id"])).json()["ports"]
        subnets = (await admin.network("GET", "/subnets", network_id=network)).json()["subnets"]
        where = {each["id"]: each["segment_id"] for each in subnets}
        assert where[port["fixed_ips"][0]["subnet_id"]] == other
        await emptied(running, network, first, found)


async def test_a_boot_fails_when_every_segment_is_full(start: Start) -> None:
    """As many attempts as there are segments, with the network service's own word as the cause."""
    wires = (*((("physnet1",),) * 3), *((("physnet2",),) * 3))
    async with start(hosts=Hosts(count=6, physical_networks=wires)) as running:
        admin = running.admin
        network, segments = await routed_with(admin, 5, 5)
        networks = [{"uuid": network}]
        first = await admin.active("the pools are drawn now", networks=networks)
        mine = 0 if first["OS-EXT-SRV-ATTR:host"] in {"host1", "host2", "host3"} else 1
        for place, segment in enumerate(segments):
            await filled(running, network, segment, 4 if place == mine else 5)
        found = await admin.settled(await admin.boot("s", networks=networks))
        assert found["status"] == "ERROR"
        assert len(await attempts_of(running, found["id"])) <= len(segments)
        await emptied(running, network, first, found)


async def attach(running: Running, server: str, network: str) -> Any:
    body = {"interfaceAttachment": {"net_id": network}}
    return await running.admin.compute("POST", f"/servers/{server}/os-interface", body)


async def test_an_attach_uses_the_other_segment_of_its_host(start: Start) -> None:
    async with start(hosts=Hosts(count=1, physical_networks=(("physnet1", "physnet2"),))) as running:
        admin = running.admin
        network, (full, other) = await routed_with(admin, 9, 5)
        first = await admin.active("the pools are drawn now", networks=[{"uuid": network}])
        server = await admin.active("s")
        await filled(running, network, full, 8)
        reply = await attach(running, server["id"], network)
        assert reply.status_code == 200, reply.text
        (address,) = reply.json()["interfaceAttachment"]["fixed_ips"]
        subnets = (await admin.network("GET", "/subnets", network_id=network)).json()["subnets"]
        assert {each["id"]: each["segment_id"] for each in subnets}[address["subnet_id"]] == other
        actions = (await admin.compute("GET", f"/servers/{server['id']}/os-instance-actions")).json()["instanceActions"]
        assert [each["action"] for each in actions] == ["attach_interface", "create"], "one action, which succeeded"
        assert actions[0]["message"] is None
        await emptied(running, network, first, server)


async def test_an_attach_fails_when_its_host_has_no_segment_with_addresses(start: Start) -> None:
    """And what it had claimed is given back; the census of the fixture counts it."""
    wires = (("physnet1",), ("physnet2",))
    async with start(hosts=Hosts(count=2, physical_networks=wires)) as running:
        admin = running.admin
        network, segments = await routed_with(admin, 9, 9)
        first = await admin.active("the pools are drawn now", networks=[{"uuid": network}])
        server = await admin.active("s")
        mine = {"host1": 0, "host2": 1}
        here = mine[server["OS-EXT-SRV-ATTR:host"]]
        await filled(running, network, segments[here], 9 - (mine[first["OS-EXT-SRV-ATTR:host"]] == here))
        refused = await attach(running, server["id"], network)
        assert refused.status_code == 400, refused.text
        assert "address" in refused.json()["badRequest"]["message"], refused.text
        again = await attach(running, server["id"], network)
        assert again.status_code == 400, "the pool is known to be empty now"
        await emptied(running, network, first, server)


async def test_the_first_version_of_attach_is_used_while_a_conductor_knows_only_it(start: Start) -> None:
    async with start(hosts=Hosts(count=1)) as running:
        region, server = running.cloud.region, await running.admin.active("s")
        conductor = region.conductor
        assert conductor is not None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                conductor.peers,
                "unknown_to",
                lambda saga: [SimpleNamespace(host="old")] if saga == "attach_interface/2" else [],
            )
            reply = await attach(running, server["id"], await running.admin.id_of("network", "private"))
        assert reply.status_code == 200, reply.text
        told = await region.databases.region.read(lambda tx: tx.rows(sa.select(operations.c.saga)))
        assert "attach_interface/1" in {row[0] for row in told}
        await running.admin.gone(server["id"])


def port(index: int, **facts: Any) -> Port:
    return Port(id=f"p{index}", network="n", mac="m", index=index, **facts)


@pytest.mark.parametrize("segments", [(ONE,), (ONE, TWO)])
async def test_a_segment_found_full_by_a_binding_host_is_not_tried_again(
    segments: tuple[ProviderId, ...],
) -> None:
    """Such a host does not say for which of its NICs there was no address."""
    drawn = list[str]()

    async def refuses(*_: Any) -> Any:
        raise HostFailed("No more IP addresses available.", code="IpAddressGenerationFailure")

    async def draw(network: str) -> None:
        drawn.append(network)

    networks = {f"n{each}": a_network(f"n{each}", each) for each in segments}
    order = PortOrder(
        "bind", "project", "nova", networks=networks, subnets={at: f"s{each}" for at, each in enumerate(segments)}
    )
    run: Any = SimpleNamespace(
        context=SimpleNamespace(hosts=SimpleNamespace(build_guest=refuses), redraw_segments=draw)
    )
    place: Any = SimpleNamespace(cell="cell1", name="host1")
    command_context: Any = None
    with pytest.raises(HostFailed) as failed:
        await legacy_ports.build(run, command_context, place, order, GuestSpec(ServerId("s"), "s", 1, 64), None)
    assert failed.value.without == (segments if len(segments) == 1 else ())
    assert drawn == sorted(networks)


def a_network(id: str, segment: ProviderId) -> NetworkFacts:
    return NetworkFacts(id, id, subnets=(SubnetFacts(f"s{segment}", "10.0.0.0/24", segment=segment),))


def test_segments_without_addresses_are_not_tried_again() -> None:
    nics = (
        NicRequirement("a", (ONE, TWO)),
        NicRequirement("b", (ONE,)),
        NicRequirement("c", (ONE,), addresses=0),
        NicRequirement("d"),
    )
    has = port(1, fixed_ips=(FixedIp("10.0.0.1", "s"),))
    ask = Ask(resources={}, nics=nics, not_on=(HostId("h"),))
    left = without_exhausted(ask, (port(0), has, port(2), port(3)), frozenset({ONE}))
    assert [each.segments for each in left.nics] == [(TWO,), (ONE,), (ONE,), ()]
    assert without_exhausted(ask, (port(0), has, port(2), port(3)), frozenset()) is ask
    with pytest.raises(NoCapacity):
        without_exhausted(ask, (port(0), port(1), port(2), port(3)), frozenset({ONE}))
