"""Live migrations after the switch: ports, volumes and hosts that change when the guest is on its new host."""

import dataclasses
import types
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import msgspec
import pytest
from tests.helpers.live_migrations import AT_SOURCE, SOURCE, assert_moved, execute_move, execute_named, status

from moorage.bus.verbs import Verb
from moorage.model.errors import Conflict, HostFailed, NotFound
from moorage.model.guest import PowerState
from moorage.model.ids import ConductorId
from moorage.model.migration import MigrationStatus
from moorage.model.network import BindRefused
from moorage.model.server import Server, VmState
from moorage.operations.live_migrate import live_migrate
from moorage.operations.resize import confirm_resize
from moorage.operations.resize.confirm_resize import ConfirmResize
from moorage.operations.resize.revert_resize import RevertResize
from moorage.operations.steps.hosts import HOST_SILENT
from moorage.saga import Unwound
from moorage.store.region.placement import claim_statements
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_moved import MOVE, live_migrating, recorded
from moorage_testing.saga_proof import PROVED_OPERATION


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


# ------------------------------------------------------------------------------------------------- after the switch


def after_the_switch(small: SmallRegion, monkeypatch: Any, do: Callable[[], None]) -> None:
    """Done as soon as the guest has left."""
    tell_host = small.hosts.change_guest

    async def executing(to: Any, command_context: Any, server: Any, verb: Verb, payload: Any = None) -> Any:
        answer = await tell_host(to, command_context, server, verb, payload)
        if verb is Verb.SEND_LIVE:
            do()
        return answer

    monkeypatch.setattr(small.hosts, "change_guest", executing)


@pytest.mark.parametrize("change", ["deleted", "another-server", "binding-deleted"])
@pytest.mark.parametrize("second", [True, False], ids=["second-binding", "one-binding"])
async def test_a_port_detached_while_the_guest_is_sent_does_not_block(
    small: SmallRegion, second: bool, change: str, monkeypatch: Any
) -> None:
    asked = await live_migrating(small)
    network = small.network
    port = next(iter(network.ports))

    async def has_bindings() -> bool:
        return second

    def take_away() -> None:
        if change == "deleted":
            del network.ports[port]
        elif change == "another-server":
            network.ports[port] = msgspec.structs.replace(network.ports[port], device_id="another")
        else:
            network.inactive.clear()

    monkeypatch.setattr(network, "has_bindings", has_bindings)
    after_the_switch(small, monkeypatch, take_away)
    await execute_move(small, asked)
    server = await assert_moved(small)
    if change == "binding-deleted":
        assert network.ports[port].host == server.host, "it is bound anew"
    else:
        assert port not in {nic.port for nic in server.nics}


async def test_a_port_deleted_while_ports_are_bound_one_by_one_is_left_out(
    small: SmallRegion, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It was shown right before it was to be bound alone."""
    asked = await live_migrating(small)
    network = small.network
    port, show = next(iter(network.ports)), network.port

    async def shown_once_more(id: Any) -> Any:
        now = await show(id)
        if id == port:
            del network.ports[port]
        return now

    monkeypatch.setattr(network, "port", shown_once_more)
    after_the_switch(small, monkeypatch, network.inactive.clear)
    with caplog.at_level("INFO"):
        await execute_move(small, asked)
    server = await assert_moved(small)
    assert port not in {nic.port for nic in server.nics}
    assert "will be tried again" not in caplog.text


async def test_a_port_hidden_by_the_network_service_is_waited_for(small: SmallRegion, monkeypatch: Any) -> None:
    """RULES §22: who lost a role is shown nothing, and no card goes for that."""
    asked = await live_migrating(small)
    network, asked_for = small.network, list[str]()
    port, gone = next(iter(network.ports)), network.ports_gone

    async def ports_gone(ports: Any, project: str) -> frozenset[str]:
        asked_for.extend(ports)
        network.blind = len(asked_for) < 3
        return await gone(ports, project)

    def hide() -> None:
        network.inactive.clear()
        network.blind = True

    async def refuses(*_: Any, **__: Any) -> Any:
        raise NotFound("no such port")

    monkeypatch.setattr(network, "ports_gone", ports_gone)
    bind, activate = network.bind_ports, network.activate_binding
    monkeypatch.setattr(network, "activate_binding", lambda *a: refuses() if network.blind else activate(*a))
    monkeypatch.setattr(network, "bind_ports", lambda *a, **k: refuses() if network.blind else bind(*a, **k))
    after_the_switch(small, monkeypatch, hide)
    await execute_move(small, asked)
    server = await assert_moved(small)
    assert len(asked_for) >= 3, "it asks until the service shows ports again"
    assert port in {nic.port for nic in server.nics}


async def test_a_port_that_the_new_host_cannot_bind_is_unchanged(small: SmallRegion, monkeypatch: Any) -> None:
    """Without second bindings that is found out when the guest is there already."""
    asked = await live_migrating(small)

    async def one_binding() -> bool:
        return False

    async def refuses(*_: Any, **__: Any) -> Any:
        raise BindRefused("no agent there")

    monkeypatch.setattr(small.network, "has_bindings", one_binding)
    monkeypatch.setattr(small.network, "bind_ports", refuses)
    await execute_move(small, asked)
    server = await assert_moved(small)
    assert [nic.port for nic in server.nics] == [nic.port for nic in asked.server.nics]
    assert {small.network.ports[nic.port].host for nic in server.nics if nic.port} == {SOURCE}


@pytest.mark.parametrize("when", ["sent", "completed"])
async def test_a_volume_detached_while_the_guest_is_sent_does_not_block(
    small: SmallRegion, when: str, monkeypatch: Any
) -> None:
    asked = await live_migrating(small, volumes=True)

    def take_away() -> None:
        volumes = {each.volume for each in asked.server.volumes}
        for kept in (small.volumes.volumes, small.volumes.attachments):
            for key, each in list(kept.items()):
                if key in volumes or getattr(each, "volume", None) in volumes:
                    del kept[key]

    async def completed(attachment: str) -> None:
        await complete(attachment)
        take_away()

    complete = small.volumes.complete
    if when == "sent":
        after_the_switch(small, monkeypatch, take_away)
    else:
        monkeypatch.setattr(small.volumes, "complete", completed)
    await execute_move(small, asked)
    await assert_moved(small)


async def test_the_server_is_recorded_on_a_destination_that_falls_silent_after_the_switch(
    small: SmallRegion, monkeypatch: Any
) -> None:
    """The record names it, so that the server can be evacuated from it."""
    asked = await live_migrating(small)
    tell_host = small.hosts.change_guest

    async def executing(to: Any, command_context: Any, server: Any, verb: Verb, payload: Any = None) -> Any:
        if verb is Verb.LAND_LIVE:
            raise HostFailed("nobody hears it", code=HOST_SILENT)
        return await tell_host(to, command_context, server, verb, payload)

    monkeypatch.setattr(small.hosts, "change_guest", executing)
    await execute_move(small, asked)
    server = await assert_moved(small)
    assert server.power_state == PowerState.RUNNING


async def test_a_guest_lost_by_its_new_host_after_the_switch_is_recorded_as_lost(
    small: SmallRegion, monkeypatch: Any
) -> None:
    """It was tried again for a day: nothing brings it back, and nobody was told.

    What its old host keeps goes only with the new one's word that it has it again: a silent one is not believed to.
    """
    asked = await live_migrating(small)

    def lose() -> None:
        small.hosts.guests.clear()
        small.hosts.waits.clear()

    after_the_switch(small, monkeypatch, lose)
    await execute_move(small, asked)
    server = await recorded(small)
    assert (server.host != SOURCE, server.vm_state, server.task_state) == (True, VmState.ERROR, None)
    assert server.power_state == PowerState.NOSTATE
    assert server.fault is not None
    assert "has lost it" in server.fault.message
    assert await status(small) is MigrationStatus.FINISHED
    kept = {(SOURCE, SERVER): MOVE}
    assert small.hosts.departed == kept, "its disk is all there is"
    await small.hand_to(PROVED_OPERATION)
    small.hosts.silent.add(str(server.host))
    with pytest.raises(Unwound, match="has no guest of it"):
        await execute_named(small, "confirm_resize/1", ConfirmResize(server, 3, "req-confirm", "user-1"))
    assert small.hosts.departed == kept
    await is_not_confirmed_unheard(small, monkeypatch, str(server.host))
    small.hosts.silent.clear()
    server = await recorded(small)
    await small.hand_to(PROVED_OPERATION)
    await execute_named(small, "revert_resize/1", RevertResize(server, 4, "req-revert", "user-1"))
    server = await recorded(small)
    assert (server.host, server.vm_state, server.moved) == (SOURCE, VmState.ACTIVE, None)
    assert small.hosts.guests == AT_SOURCE
    assert await status(small) is MigrationStatus.REVERTED
    assert {each.host for each in small.network.ports.values() if each.device_id} == {SOURCE}
    assert small.network.inactive == {}


async def is_not_confirmed_unheard(small: SmallRegion, monkeypatch: Any, host: str) -> None:
    """Who asks for it hears so at once."""

    async def choose(_: str) -> ConductorId:
        return ConductorId("conductor1")

    context = dataclasses.replace(small.context, dispatcher=cast("Any", types.SimpleNamespace(choose=choose)))
    world = small.engine.world()
    alive = world.alive.copy()
    alive[world.slots_by_name[host]] = False
    with monkeypatch.context() as patch:
        patch.setattr(small.engine, "world", lambda: dataclasses.replace(world, alive=alive))
        with pytest.raises(Conflict, match="unavailable at this time"):
            await confirm_resize.begin(context, await recorded(small), "user-1", "p", check=lambda _: None)


async def test_a_loss_recorded_by_an_older_release_leaves_nothing_to_decide(
    small: SmallRegion, monkeypatch: Any
) -> None:
    """It was adopted after its record was written, which says nothing of what the old host keeps: so the move ends, with its claim."""
    asked = await live_migrating(small)

    def lose() -> None:
        small.hosts.guests.clear()
        small.hosts.waits.clear()

    def recorded_before(*rest: Any, **more: Any) -> Server:
        return msgspec.structs.replace(moved(*rest, **more), moved=None)

    moved = live_migrate.moved
    monkeypatch.setattr(live_migrate, "moved", recorded_before)
    after_the_switch(small, monkeypatch, lose)
    await execute_move(small, asked)
    assert (await recorded(small)).vm_state is VmState.ERROR
    assert await status(small) is MigrationStatus.COMPLETED
    assert await small.region.read(lambda tx: claim_statements.held(tx, MOVE)) == {}
