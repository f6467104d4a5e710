"""The reconciler of port drift: changes of ports in the network service are carried into records and claims."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from tests.helpers.drifted_ports import record, routed_port, small

from moorage.conductor import external_events as events_of_ports
from moorage.conductor.external_events import LOOK_EVERY_S, Events
from moorage.conductor.reconcilers import port_drift
from moorage.conductor.reconcilers.port_drift import PortDrift, PortDriftDone
from moorage.model.clock import SystemClock
from moorage.model.errors import Unavailable
from moorage.model.ids import ProviderId, ServerId
from moorage.model.network import FixedIp, NetworkNames, Port, SubnetFacts
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import Floating
from moorage.operations.context import SagaContext
from moorage.operations.interfaces import port_sync
from moorage.operations.steps import servers as records
from moorage.store.cell.servers import servers
from moorage.store.region import inbox
from moorage.store.region import servers as region_servers
from moorage.store.region.inbox import ExternalEvent
from moorage.store.region.placement import claim_statements
from moorage.store.servers import replace_server
from moorage_testing.region_fixture import SERVER, SmallRegion, a_server
from moorage_testing.region_network import NETWORK, ROUTED, SEGMENTS
from moorage_testing.saga_proof import PROVED_OPERATION

__all__ = ["small"]


HOST1S_SEGMENT = next(iter(SEGMENTS))


async def held(small: SmallRegion) -> dict[str, int]:
    """Segment → addresses claimed."""
    rows = await small.region.read(lambda tx: claim_statements.held(tx, SERVER))
    return {provider: used for (provider, resource), used in rows.items() if resource == IPV4_ADDRESS}


def give_another_address(small: SmallRegion) -> None:
    key = routed_port(small)
    more = FixedIp(f"subnet-of-{HOST1S_SEGMENT}", "10.1.0.99")
    port = small.network.ports[key]
    small.network.ports[key] = msgspec.structs.replace(port, fixed_ips=(*port.fixed_ips, more))


async def test_port_drift_already_fine(small: SmallRegion) -> None:
    before = await small.held(), await record(small)
    assert await PortDrift(small.context).run() == PortDriftDone(looked_at=1)
    assert (await small.held(), await record(small)) == before
    assert await held(small) == {HOST1S_SEGMENT: 1}


async def test_an_added_address_is_claimed_and_a_removed_one_released(small: SmallRegion) -> None:
    give_another_address(small)
    assert (await PortDrift(small.context).run()).mended == (SERVER,)
    assert await held(small) == {HOST1S_SEGMENT: 2}
    assert [each.address for each in (await record(small)).nics[-1].addresses][-1] == "10.1.0.99"
    key = routed_port(small)
    small.network.ports[key] = msgspec.structs.replace(small.network.ports[key], fixed_ips=())
    assert (await PortDrift(small.context).run()).mended == (SERVER,)
    assert await held(small) == {}
    assert await PortDrift(small.context).run() == PortDriftDone(looked_at=1)
    assert await small.region.read(claim_statements.drift) == []


async def test_a_claim_without_a_port_is_released_and_a_missing_one_made(small: SmallRegion) -> None:
    segment = HOST1S_SEGMENT
    wrongs: tuple[dict[ProviderId, int], ...] = ({ProviderId(segment): 3}, {})
    for wrong in wrongs:
        await small.region.write(partial(small.engine.correct, consumer=SERVER, resource=IPV4_ADDRESS, truth=wrong))
        assert (await PortDrift(small.context).run()).mended == (SERVER,)
        assert await held(small) == {segment: 1}
    assert await small.region.read(claim_statements.drift) == []


async def test_an_address_of_a_new_segment_is_claimed(small: SmallRegion) -> None:
    """The list of subnets was short when the server was placed: neither record nor claim tell of the segment."""
    server = await record(small)
    blind = (*server.nics[:-1], msgspec.structs.replace(server.nics[-1], segment=None))
    changed = msgspec.structs.replace(server, nics=blind)
    cell = (await records.find(small.context, SERVER)).cell
    assert cell is not None
    await small.context.cells[cell].write(lambda tx: replace_server(tx, servers, changed, generation=server.generation))
    await small.region.write(partial(small.engine.correct, consumer=SERVER, resource=IPV4_ADDRESS, truth={}))
    assert await held(small) == {}
    assert (await PortDrift(small.context).run()).mended == (SERVER,)
    assert await held(small) == {HOST1S_SEGMENT: 1}
    assert (await record(small)).nics[-1].segment == HOST1S_SEGMENT
    assert await PortDrift(small.context).run() == PortDriftDone(looked_at=1)


async def test_an_unlisted_subnet_does_not_change_the_segment(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(network: str | None = None) -> tuple[SubnetFacts, ...]:
        return ()

    monkeypatch.setattr(small.network, "subnets", none)
    assert await PortDrift(small.context).run() == PortDriftDone(looked_at=1)
    assert await held(small) == {HOST1S_SEGMENT: 1}


async def test_a_deleted_port_removes_its_nic_and_its_claim(small: SmallRegion) -> None:
    before = await small.held()
    del small.network.ports[routed_port(small)]
    assert (await PortDrift(small.context).run()).mended == (SERVER,)
    assert len((await record(small)).nics) == 2
    assert await held(small) == {}
    after = await small.held()
    assert (after["cards"], after["vifs"]) == (before["cards"] - 1, [])
    assert await PortDrift(small.context).run() == PortDriftDone(looked_at=1)


async def test_lost_ports_of_many_servers_at_once_are_ignored(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who may not see ports any more is shown an empty list, and no service's word is worth every card of the fleet."""
    monkeypatch.setattr(port_drift, "LOST_AT_ONCE_MAX", 0)
    before = await small.held(), await record(small)
    small.network.ports.clear()
    assert await PortDrift(small.context).run() == PortDriftDone(looked_at=1, amiss=(SERVER,))
    assert (await small.held())["cards"] == before[0]["cards"]
    assert await record(small) == before[1]
    assert "check that the service user may see all ports" in caplog.text


async def test_hidden_ports_do_not_count_as_deleted(small: SmallRegion, caplog: pytest.LogCaptureFixture) -> None:
    """Our account lost its role: one server or thousands, by a round or by an event that names no port, nothing is unplugged."""
    before = await small.held(), await record(small)
    small.network.blind = True
    assert await PortDrift(small.context).run() == PortDriftDone(looked_at=1, amiss=(SERVER,))
    changed_event = ExternalEvent(SERVER, "network-changed", "", seen_at=1)
    await small.region.write(lambda tx: inbox.put_placed(tx, [changed_event]))
    assert await Events(small.context, cast("Any", None), SystemClock()).process_pending() == 1
    assert (await small.held(), await record(small)) == before
    assert "does not say that it is gone" in caplog.text
    small.network.blind = False
    assert await PortDrift(small.context).run() == PortDriftDone(looked_at=1)


async def test_only_hidden_ports_named_in_a_delete_event_are_unplugged(small: SmallRegion) -> None:
    port = routed_port(small)
    small.network.blind = True
    told = ExternalEvent(SERVER, "network-vif-deleted", port, seen_at=1)
    await small.region.write(lambda tx: inbox.put_placed(tx, [told]))
    assert await Events(small.context, cast("Any", None), SystemClock()).process_pending() == 1
    nics = (await record(small)).nics
    assert len(nics) == 2
    assert port not in {str(nic.port) for nic in nics}


async def test_a_server_held_by_an_operation_is_skipped(small: SmallRegion) -> None:
    give_another_address(small)
    await small.hand_to(PROVED_OPERATION)
    assert await PortDrift(small.context).run() == PortDriftDone(looked_at=1)
    assert await held(small) == {HOST1S_SEGMENT: 1}


async def test_events_are_acted_on_once_and_kept_while_the_server_is_held(small: SmallRegion) -> None:
    events = Events(small.context, cast("Any", None), SystemClock())
    port = routed_port(small)
    told = ExternalEvent(SERVER, "network-vif-deleted", port, seen_at=1)
    plugged = ExternalEvent(SERVER, "network-vif-plugged", port, seen_at=1)
    assert len(await small.region.write(lambda tx: inbox.put_placed(tx, [told, plugged]))) == 2
    del small.network.ports[port]
    await small.hand_to(PROVED_OPERATION)
    assert await events.process_pending() == 0
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    assert await events.process_pending() == 1
    assert await events.process_pending() == 0
    assert len((await record(small)).nics) == 2
    assert await held(small) == {}
    left = await small.region.read(lambda tx: inbox.of_server(tx, SERVER))
    assert [each.name for each in left] == ["network-vif-plugged"]  # for whoever waits for it


async def test_an_event_repeated_while_it_is_handled_is_kept(small: SmallRegion) -> None:
    first = ExternalEvent(SERVER, "network-changed", "", seen_at=1)
    again = msgspec.structs.replace(first, seen_at=2)
    await small.region.write(lambda tx: inbox.put_placed(tx, [first]))
    await small.region.write(lambda tx: inbox.put_placed(tx, [again]))
    await small.region.write(lambda tx: inbox.taken(tx, [first]))
    assert await small.region.read(lambda tx: inbox.of_server(tx, SERVER)) == [again]


async def test_events_of_one_failing_server_do_not_block_others(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Events(small.context, cast("Any", None), SystemClock())
    bad = ServerId("0d0c0b0a-0000-4000-8000-00000000bad0")
    listed = [ExternalEvent(each, "network-changed", "p", seen_at=1) for each in (bad, SERVER)]
    looked: list[ServerId] = []

    async def look(context: SagaContext, server: ServerId, *, deleted: Collection[str]) -> port_sync.SyncOutcome:
        looked.append(server)
        if server == bad:
            raise KeyError("of a newer release")
        return port_sync.SyncOutcome.TRUE

    monkeypatch.setattr(port_sync, "reconcile", look)
    monkeypatch.setattr(inbox, "ready", lambda tx, names, limit, after: listed)
    assert await events.process_pending() == 1
    assert sorted(looked) == sorted([bad, SERVER])


async def test_a_foreign_port_with_the_servers_device_id_is_ignored(small: SmallRegion) -> None:
    """Anybody may set `device_id` of a port of their own; its groups are not shown to the server's owner."""
    theirs = Port(id="theirs", network=NETWORK, mac="fa:16:3e:aa:aa:aa", device_id=SERVER, security_groups=("evil",))
    small.network.ports["theirs"] = theirs

    async def names(groups: Sequence[str]) -> tuple[str, ...] | None:
        return tuple(groups) or None

    small.network.group_names = names  # type: ignore[method-assign]
    before = await record(small)
    assert await port_sync.reconcile(small.context, SERVER) is port_sync.SyncOutcome.TRUE
    assert (await record(small)).security_groups == before.security_groups


async def test_unhandled_events_do_not_hide_later_ones(small: SmallRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than one look reads at once; they are left alone for a while, and not for ever."""
    monkeypatch.setattr(events_of_ports, "AT_A_LOOK_MAX", 5)
    clock = StoppedClock()
    events = Events(small.context, cast("Any", None), clock)
    bad = [ServerId(f"0d0c0b0a-0000-4000-8000-0000bad0{number:04x}") for number in range(12)]
    listed = [ExternalEvent(each, "network-changed", "p", seen_at=1) for each in (*bad, SERVER)]
    rows = [msgspec.structs.asdict(each) for each in listed]
    others = [msgspec.structs.replace(a_server(), id=each, operation=None) for each in bad]
    await small.region.write(lambda tx: region_servers.insert(tx, others))
    await small.region.write(lambda tx: tx.run(inbox.inbox.insert(), rows))
    looked: list[ServerId] = []

    async def look(context: SagaContext, server: ServerId, *, deleted: Collection[str]) -> port_sync.SyncOutcome:
        looked.append(server)
        if server in bad:
            raise Unavailable("its cell is out")
        return port_sync.SyncOutcome.TRUE

    monkeypatch.setattr(port_sync, "reconcile", look)
    assert await events.process_pending() == 1
    assert set(looked) == {*bad, SERVER}
    looked.clear()
    assert await events.process_pending() == 0
    assert looked == []
    clock.at += 2 * LOOK_EVERY_S
    assert await events.process_pending() == 0
    assert set(looked) == set(bad)


class StoppedClock(SystemClock):
    at = 0.0

    def monotonic(self) -> float:
        return self.at


async def test_new_names_and_floating_addresses_are_shown_without_an_event(small: SmallRegion) -> None:
    """The network service sends no event for a network or a security group with a new name; others may be lost."""
    small.network.groups = {"group-1": "web"}
    for key, port in small.network.ports.items():
        small.network.ports[key] = msgspec.structs.replace(port, security_groups=("group-1",))
    await PortDrift(small.context).run()
    assert (await record(small)).security_groups == ("web",)
    assert await PortDrift(small.context).run() == PortDriftDone(looked_at=1)
    small.network.groups["group-1"] = "shop"
    small.network.network_names[ROUTED] = "renamed"
    small.network.floating_addresses[routed_port(small)] = [("198.51.100.7", "10.1.0.1")]
    assert (await PortDrift(small.context).run()).mended == (SERVER,)
    shown = await record(small)
    assert shown.security_groups == ("shop",)
    assert {nic.network_name for nic in shown.nics if nic.network == ROUTED} == {"renamed"}
    assert shown.nics[-1].floating == (Floating("198.51.100.7", "10.1.0.1"),)
    assert await PortDrift(small.context).run() == PortDriftDone(looked_at=1)


async def test_groups_that_are_not_listed_say_nothing(small: SmallRegion) -> None:
    small.network.groups = {"group-1": "web"}
    for key, port in small.network.ports.items():
        small.network.ports[key] = msgspec.structs.replace(port, security_groups=("group-1",))
    await PortDrift(small.context).run()

    async def none() -> NetworkNames:
        return NetworkNames(groups={})

    small.network.names = none  # type: ignore[method-assign]
    assert await PortDrift(small.context).run() == PortDriftDone(looked_at=1)
    assert (await record(small)).security_groups == ("web",)
