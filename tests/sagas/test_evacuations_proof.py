"""Evacuations of servers with volumes, with guarantees, on routed networks and that are off: each step fails."""

import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from moorage.model.errors import Conflict, HostFailed
from moorage.model.fence_proof import FencedBy
from moorage.model.guest import PowerState
from moorage.model.migration import MigrationStatus
from moorage.model.network import BindRefused, Port
from moorage.model.server import VmState
from moorage.operations.registry import SAGAS
from moorage.operations.steps import fencing, moving
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import migrations
from moorage.store.region.placement import claim_statements
from moorage_testing.fault_points import ManualClock
from moorage_testing.proof_parts import PARTS
from moorage_testing.region_evacuated import CELL, DEAD, evacuable, evacuating
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_moved import MOVE, recorded
from moorage_testing.region_prepared import PreparedRegion
from moorage_testing.saga_proof import PROVED_OPERATION, prove

WORLDS: dict[str, dict[str, Any]] = {
    "volumes": {"volumes": True, "heard": True},
    "guarantees": {"guarantees": True},
    "off": {"state": VmState.STOPPED, "routed": True},
}
EVACUATE = SAGAS["evacuate/1"]


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def execute_evacuation(small: SmallRegion, asked: Any) -> None:
    journal = MemoryJournal(first_lines(EVACUATE), small.transact)
    await execute(EVACUATE, PROVED_OPERATION, asked, small.context, journal, clock=ManualClock())


@pytest.mark.matrix
@pytest.mark.parametrize("part", [pytest.param(part, id=part.name) for part in PARTS if part.name == "failing"])
@pytest.mark.parametrize("kind", ["guarantees", "off"])
async def test_every_kind_of_server_is_evacuated(small: SmallRegion, kind: str, part: Any) -> None:
    world = WORLDS[kind]
    asked = await evacuating(small, **world)
    await prove(EVACUATE, asked, PreparedRegion(small, lambda: evacuable(small, **world)), part)


async def test_a_host_that_answers_switches_the_guest_off_first(small: SmallRegion, monkeypatch: Any) -> None:
    """Whatever an operator said of it: two guests never run. Its journal would answer a name that was used before, whatever runs now."""
    asked, start = await evacuating(small, **WORLDS["volumes"]), small.hosts.start_guest
    power_off, names = small.hosts.power_off, list[str]()

    async def off(to: Any, command_context: Any, server: Any, graceful_s: float = 60.0) -> Any:
        names.append(command_context.step)
        return await power_off(to, command_context, server, graceful_s)

    async def alone(to: Any, command_context: Any, guest: Any) -> Any:
        assert small.hosts.guests[DEAD, SERVER] is PowerState.SHUTDOWN, "two guests"
        return await start(to, command_context, guest)

    assert small.hosts.guests[DEAD, SERVER] is PowerState.RUNNING
    monkeypatch.setattr(small.hosts, "start_guest", alone)
    monkeypatch.setattr(small.hosts, "power_off", off)
    await execute_evacuation(small, asked)
    assert len(set(names)) == len(names) > 1
    server = await recorded(small)
    assert server.host != DEAD
    assert small.hosts.guests[str(server.host), SERVER] is PowerState.RUNNING


async def test_removing_the_forced_down_mark_stops_the_start(small: SmallRegion, monkeypatch: Any) -> None:
    """The proof is of the moment: without one no host starts a guest, and the server is as it was."""
    asked, bind = await evacuating(small), small.network.bind_ports

    async def then_up(*args: Any, **named: Any) -> Any:
        await small.cells[CELL].write(lambda tx: cell_hosts.set_forced_down(tx, DEAD, False, 3))
        return await bind(*args, **named)

    monkeypatch.setattr(small.network, "bind_ports", then_up)
    with pytest.raises(Unwound):
        await execute_evacuation(small, asked)
    server = await recorded(small)
    assert (server.host, server.vm_state) == (DEAD, VmState.ACTIVE)
    assert server.fault is not None
    assert "nothing proves that its guests are off" in server.fault.message
    assert not small.hosts.guests


async def test_forced_down_is_valid_for_one_outage_only(small: SmallRegion) -> None:
    """Who says that a host is down says it of a host that is not heard after it; heard again, it is to be said again."""
    await evacuable(small)
    server, late = await recorded(small), int(fencing.HEARD_LATE_S * 1e6)
    assert small.context.settings.host_silence_s > fencing.HEARD_LATE_S, (
        "a host that came back and fell silent has run its guests"
    )
    cell = small.cells[CELL]

    async def heard_at(at: int) -> None:
        await cell.write(lambda tx: cell_hosts.record_heartbeats(tx, [DEAD], at))

    async def said_down(at: int, by: str) -> None:
        await cell.write(lambda tx: cell_hosts.set_forced_down(tx, DEAD, True, at, by))

    await heard_at(2 + late)
    assert (await fencing.refuse_unfenced(small.context, server)).at == 2, "what was under way when it was said"
    await heard_at(3 + late)
    with pytest.raises(Conflict, match="was heard after it was said to be down") as refused:
        await fencing.refuse_unfenced(small.context, server)
    assert refused.value.code == fencing.NOT_FENCED
    again = 4 + late
    await said_down(again, "operator-2")
    proof = await fencing.refuse_unfenced(small.context, server)
    assert (proof.at, proof.who) == (again, "operator-2")
    await said_down(again + 1, "operator-3")
    assert (await fencing.refuse_unfenced(small.context, server)).who == "operator-2", "said first, and it holds"


async def test_a_forced_down_host_that_answers_is_asked_itself(small: SmallRegion) -> None:
    """Nova's clients force a host down that runs on, and evacuate one server after the other: its own word is the proof of each."""
    asked = await evacuating(small, **WORLDS["volumes"])
    await small.cells[CELL].write(lambda tx: cell_hosts.record_heartbeats(tx, [DEAD], 10**15))
    assert (await fencing.refuse_unfenced(small.context, await recorded(small))).by is FencedBy.OPERATOR
    assert small.hosts.guests[DEAD, SERVER] is PowerState.RUNNING
    await execute_evacuation(small, asked)
    assert (await recorded(small)).host != DEAD
    assert small.hosts.guests.get((DEAD, SERVER)) is not PowerState.RUNNING


@pytest.mark.parametrize("why", ["taken back", "no host can"])
async def test_an_old_host_that_returns_during_the_unwinding_keeps_its_disk(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """`migrating` is what has it destroyed: it is said of no host that is not proved to be fenced, and taken back first."""
    asked, bind, seen = await evacuating(small), small.network.bind_ports, list[MigrationStatus]()

    async def status() -> MigrationStatus:
        move = await small.cells[CELL].read(lambda tx: migrations.get(tx, MOVE))
        assert move is not None
        return move.status

    async def watched(server: str, host: str, *args: Any, **named: Any) -> Any:
        if host == DEAD:
            seen.append(await status())
        elif why == "taken back":
            await small.cells[CELL].write(lambda tx: cell_hosts.set_forced_down(tx, DEAD, False, 3))
        return await bind(server, host, *args, **named)

    async def fails(*args: Any) -> Any:
        seen.append(await status())
        raise HostFailed("it cannot", code="guest_failed")

    monkeypatch.setattr(small.network, "bind_ports", watched)
    monkeypatch.setattr(small.hosts, "start_guest", fails)
    shown, with_status = list[MigrationStatus](), moving.with_status

    def showing(tx: Any, move: str, status: MigrationStatus, **changes: Any) -> None:
        shown.append(status)
        with_status(tx, move, status, **changes)

    monkeypatch.setattr(moving, "with_status", showing)
    with pytest.raises(Unwound):
        await execute_evacuation(small, asked)
    assert seen[-1] is MigrationStatus.PRE_MIGRATING
    assert (MigrationStatus.MIGRATING in shown) is (why == "no host can")


async def test_ports_that_cannot_be_bound_to_the_dead_host_do_not_block_the_unwinding(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its network agent is dead too: the ports stay the server's on no host, and the claim is what it was."""
    asked, bind = await evacuating(small, guarantees=True), small.network.bind_ports
    held = await small.region.read(lambda tx: claim_statements.held(tx, SERVER))

    async def dead(server: str, host: str, az: str, ports: Sequence[Port], *options: Any) -> Any:
        if host != DEAD:
            return await bind(server, host, az, ports, *options)
        small.network.ports |= {
            each.id: msgspec.structs.replace(small.network.ports[each.id], host=DEAD, vif_type="binding_failed")
            for each in ports
        }
        raise BindRefused("nobody there binds it", code="binding_failed", host=DEAD)

    async def fails(*args: Any) -> Any:
        raise HostFailed("it cannot", code="guest_failed")

    monkeypatch.setattr(small.network, "bind_ports", dead)
    monkeypatch.setattr(small.hosts, "start_guest", fails)
    with pytest.raises(Unwound):
        await execute_evacuation(small, asked)
    server = await recorded(small)
    assert (server.host, server.vm_state) == (DEAD, VmState.ERROR)
    mine = [each for each in small.network.ports.values() if each.device_id == SERVER]
    assert mine
    assert {each.host for each in mine} == {""}
    assert held
    assert await small.region.read(lambda tx: claim_statements.held(tx, SERVER)) == held


@pytest.mark.parametrize(("volumes", "state"), [(False, VmState.ACTIVE), (True, VmState.ERROR)])
async def test_a_server_with_unexported_volumes_is_not_shown_active(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch, volumes: bool, state: VmState
) -> None:
    """Proof that is taken back after the volumes went to the new host."""
    asked, bind = await evacuating(small, volumes=volumes), small.network.bind_ports

    async def then_up(*args: Any, **named: Any) -> Any:
        await small.cells[CELL].write(lambda tx: cell_hosts.set_forced_down(tx, DEAD, False, 3))
        return await bind(*args, **named)

    monkeypatch.setattr(small.network, "bind_ports", then_up)
    with pytest.raises(Unwound):
        await execute_evacuation(small, asked)
    assert (await recorded(small)).vm_state is state


@pytest.mark.parametrize("old", ["source", "pin"])
async def test_guarantees_need_hosts_that_support_them(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch, old: str
) -> None:
    """S1.11, S1.12: refused before the old host is told anything, by its level and by the pin that is used; others are evacuated."""

    def ages() -> None:
        if old == "pin":
            settings = dataclasses.replace(small.context.settings, level_pin=2)
            small.context = dataclasses.replace(small.context, settings=settings)
            return
        world = small.engine.world()
        levels = world.level.copy()
        levels[world.slots_by_name[DEAD]] = 2
        monkeypatch.setattr(small.engine, "world", lambda: dataclasses.replace(world, level=levels))

    asked = await evacuating(small, guarantees=True, heard=True)
    ages()
    bound = dict(small.network.ports)
    held = await small.region.read(lambda tx: claim_statements.held(tx, SERVER))
    with pytest.raises(Unwound, match="cannot be evacuated before all of the hosts concerned are upgraded"):
        await execute_evacuation(small, asked)
    server = await recorded(small)
    assert (server.host, server.vm_state, server.task_state) == (DEAD, VmState.ACTIVE, None)
    assert small.hosts.guests == {(DEAD, SERVER): PowerState.RUNNING}
    assert small.network.ports == bound
    assert await small.region.read(lambda tx: claim_statements.held(tx, SERVER)) == held
    move = await small.cells[CELL].read(lambda tx: migrations.get(tx, MOVE))
    assert move is not None
    assert move.status is MigrationStatus.ERROR
    monkeypatch.undo()

    asked = await evacuating(small)
    ages()
    await execute_evacuation(small, asked)
    assert (await recorded(small)).host != DEAD


class Switch:
    """A plug-in that may switch machines off; `works`: they go off."""

    name, off_within_s = "switch", 5.0

    def __init__(self, *, works: bool) -> None:
        self.works, self.off, self.told = works, False, list[str]()

    async def is_off(self, host: str) -> bool:
        return self.off

    def can_switch_off(self, host: str) -> bool:
        return host == DEAD

    async def switch_off(self, host: str) -> bool:
        self.told.append(host)
        self.off = self.works
        return self.off


@pytest.mark.parametrize("works", [True, False])
async def test_the_operation_switches_the_machine_off_not_the_request(small: SmallRegion, works: bool) -> None:
    """Who only asks, or tries it dry, leaves a host as it is that may be well; one that stays on keeps its servers."""
    asked, switch = await evacuating(small), Switch(works=works)
    await small.cells[CELL].write(lambda tx: cell_hosts.set_forced_down(tx, DEAD, False, 3, "operator-1"))
    with pytest.raises(Conflict, match="nothing proves"):
        await fencing.refuse_unfenced(small.context, await recorded(small))
    small.context = dataclasses.replace(small.context, fence=switch)
    assert await fencing.refuse_unfenced(small.context, await recorded(small)) is None, "no proof yet"
    assert switch.told == []
    if works:
        await execute_evacuation(small, asked)
        assert (await recorded(small)).host != DEAD
    else:
        with pytest.raises(Unwound):
            await execute_evacuation(small, asked)
        assert (await recorded(small)).host == DEAD
    assert switch.told == [DEAD], "once, before anything was touched"
