"""Resizes and migrations that are reverted, cancelled, confirmed or unwound while a host fails: no second guest runs, no disk is lost."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
from tests.helpers.executed_moves import DESTINATION, SOURCE, execute_saga

from moorage.bus.move_payloads import SendGuest
from moorage.bus.verbs import Verb
from moorage.model.errors import HostFailed, UnknownOutcome
from moorage.model.guest import PowerState
from moorage.model.ids import CellId, OperationId
from moorage.model.migration import Migration, MigrationStatus
from moorage.model.server import TaskState, VmState
from moorage.operations.registry import SAGAS
from moorage.operations.resize.revert_resize import RevertResize
from moorage.operations.steps import moving
from moorage.operations.steps.hosts import HOST_SILENT
from moorage.saga import Killed, MemoryJournal, Unwound, execute, first_lines
from moorage.store.cell import migrations
from moorage.store.cell import servers as cell_servers
from moorage.store.region import servers as region_servers
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_moved import about_moved, recorded, resizing
from moorage_testing.region_shelved import shelving
from moorage_testing.region_states import imaged
from moorage_testing.saga_proof import PROVED_OPERATION


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def test_a_revert_continues_after_a_failed_destroy(small: SmallRegion, monkeypatch: Any) -> None:
    """The new disk may be gone already: it is not shown as good, to be confirmed over the old one."""
    asked = await about_moved(small, "revert_resize/1")
    destroy, failed = small.hosts.destroy_guest, list[str]()

    async def half(to: Any, command_context: Any, server: Any, release: Any = None) -> None:
        await destroy(to, command_context, server, release)
        if not failed:
            failed.append(to.host)
            raise HostFailed("it took too long", code="host_timed_out")

    monkeypatch.setattr(small.hosts, "destroy_guest", half)
    await execute_saga(small, "revert_resize/1", asked)
    server = await recorded(small)
    assert failed == [DESTINATION]
    assert (server.host, server.vm_state, server.moved) == (SOURCE, VmState.ACTIVE, None)
    assert small.hosts.guests == {(SOURCE, SERVER): PowerState.RUNNING}


async def test_a_revert_to_a_host_that_lost_the_old_guest_is_refused_before_any_change(
    small: SmallRegion,
) -> None:
    """Else an empty disk would be made in its place, after the new guest is gone."""
    asked = await about_moved(small, "revert_resize/1")
    del small.hosts.guests[SOURCE, SERVER]
    with pytest.raises(Unwound):
        await execute_saga(small, "revert_resize/1", asked)
    server = await recorded(small)
    assert (server.host, server.vm_state) == (DESTINATION, VmState.RESIZED)
    assert server.moved is not None
    assert small.hosts.guests == {(DESTINATION, SERVER): PowerState.RUNNING}


async def test_a_revert_to_a_host_with_a_dead_network_agent_is_refused_before_the_new_guest_stops(
    small: SmallRegion,
) -> None:
    """Else the server would be off on both hosts until the agent is back."""
    asked = await about_moved(small, "revert_resize/1")
    small.network.dead.add(SOURCE)
    with pytest.raises(Unwound):
        await execute_saga(small, "revert_resize/1", asked)
    server = await recorded(small)
    assert (server.host, server.vm_state, server.task_state) == (DESTINATION, VmState.RESIZED, None)
    assert small.hosts.guests == {
        (SOURCE, SERVER): PowerState.SHUTDOWN,
        (DESTINATION, SERVER): PowerState.RUNNING,
    }


async def test_the_old_guest_is_not_started_while_a_silent_host_may_run_the_new_one(
    small: SmallRegion, monkeypatch: Any
) -> None:
    asked = await resizing(small)
    destroy, start, silent = small.hosts.destroy_guest, small.hosts.start_guest, list[bool]()

    async def started_and_gone(to: Any, command_context: Any, guest: Any) -> Any:
        await start(to, command_context, guest)
        silent.append(True)
        raise HostFailed("nobody hears it", code=HOST_SILENT)

    async def asked_to_destroy(to: Any, command_context: Any, server: Any, release: Any = None) -> None:
        assert small.hosts.guests[SOURCE, SERVER] is PowerState.SHUTDOWN, "two guests"
        if len(silent) < 5:
            silent.append(True)
            raise HostFailed("nobody hears it", code=HOST_SILENT)
        await destroy(to, command_context, server, release)

    monkeypatch.setattr(small.hosts, "start_guest", started_and_gone)
    monkeypatch.setattr(small.hosts, "destroy_guest", asked_to_destroy)
    with pytest.raises(Unwound):
        await execute_saga(small, "resize/1", asked)
    assert len(silent) == 5, "it was waited for"
    assert small.hosts.guests == {(SOURCE, SERVER): PowerState.RUNNING}


class Wanted(MemoryJournal):
    """A journal whose cancel word comes in the middle."""

    def __init__(self, saga: str, transact: Any) -> None:
        super().__init__(first_lines(SAGAS[saga]), transact)
        self.hint = asyncio.Event()

    async def no_more(self, word: str) -> None:
        """Said while a step waits: it waits for ever otherwise."""
        self.row.cancel = word
        self.hint.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("said", ["on request", "on request, then deleted", "deleted", "soft deleted"])
async def test_a_cancelled_move_starts_the_old_guest_and_a_delete_waits_for_no_silent_host(
    small: SmallRegion, monkeypatch: Any, said: str
) -> None:
    """Who is deleted softly may be restored, so the silent host is waited for (RULES §11)."""
    asked, for_good = await resizing(small), said.endswith("deleted") and said != "soft deleted"
    paper = Wanted("resize/1", small.transact)
    destroy, start, silent = small.hosts.destroy_guest, small.hosts.start_guest, list[bool]()

    async def started(to: Any, command_context: Any, guest: Any) -> Any:
        await start(to, command_context, guest)
        await paper.no_more(moving.ON_REQUEST if said.startswith("on request") else said)

    async def asked_to_destroy(to: Any, command_context: Any, server: Any, release: Any = None) -> None:
        assert small.hosts.guests[SOURCE, SERVER] is PowerState.SHUTDOWN, "two guests"
        if for_good or len(silent) < 5:
            silent.append(True)
            if "then" in said and len(silent) == 3:
                await small.region.write(
                    lambda tx: region_servers.queue(tx, SERVER, OperationId("delete"), TaskState.DELETING)
                )
            raise HostFailed("nobody hears it", code=HOST_SILENT)
        await destroy(to, command_context, server, release)

    monkeypatch.setattr(small.hosts, "start_guest", started)
    monkeypatch.setattr(small.hosts, "destroy_guest", asked_to_destroy)
    story = execute(
        SAGAS["resize/1"], PROVED_OPERATION, asked, small.context, paper, clock=ManualClock(), cancel_hint=paper.hint
    )
    with pytest.raises(Unwound):
        await story
    if not for_good:
        assert len(silent) == 5, "it was waited for"
        assert small.hosts.guests == {(SOURCE, SERVER): PowerState.RUNNING}
    else:
        assert small.hosts.guests[SOURCE, SERVER] is PowerState.SHUTDOWN, "the other may run"
    server = await recorded(small)
    assert (server.host, server.vm_state, server.fault) == (SOURCE, VmState.ACTIVE, None)
    status = (await of_server(small))[0].status
    assert status is (MigrationStatus.CANCELLED if said.startswith("on request") else MigrationStatus.ERROR)


async def of_server(small: SmallRegion) -> Sequence[Migration]:
    query = migrations.MigrationQuery(limit=10, server=SERVER)
    return await small.cells[CellId("cell1")].read(lambda tx: migrations.listed(tx, query))


async def test_a_delete_continues_when_the_ports_are_bound_to_the_old_host_again(small: SmallRegion) -> None:
    """The revert was lost with the region's database, after it had switched them."""
    asked = await about_moved(small, "delete/4")
    ports = [each for each in small.network.ports.values() if each.device_id]
    await small.network.activate_binding(SERVER, SOURCE, ports)
    await execute_saga(small, "delete/4", asked)
    assert small.network.inactive == {}
    assert not any(each.host for each in small.network.ports.values())
    assert small.hosts.guests == {}


@pytest.mark.parametrize("says", ["no", "no, and then nothing", "nothing", "busy"])
async def test_the_old_guest_is_kept_while_the_new_host_has_lost_its_guest(
    small: SmallRegion, monkeypatch: Any, says: str
) -> None:
    """A confirm is refused, for the old disk may be all there is, and a revert starts that one.

    A host that is silent or busy says nothing of its guest: the record says what was observed of it.
    """
    asked = await about_moved(small, "confirm_resize/1")
    if says == "no, and then nothing":
        cell = small.cells[CellId("cell1")]
        await cell.write(lambda tx: cell_servers.observe(tx, DESTINATION, {SERVER: PowerState.NOSTATE}))
        small.hosts.silent.add(DESTINATION)
        with pytest.raises(Unwound, match="has no guest of it"):
            await execute_saga(small, "confirm_resize/1", asked)
        assert small.hosts.guests[SOURCE, SERVER] is PowerState.SHUTDOWN, "what it kept is there"
        return
    if says != "no":
        if says == "nothing":
            small.hosts.silent.add(DESTINATION)
        else:
            monkeypatch.setattr(small.hosts, "ask", busy)
            gone = msgspec.structs.replace(await recorded(small), power_state=PowerState.NOSTATE)
            assert await moving.is_lost(small.context, gone)
            with pytest.raises(UnknownOutcome):
                await moving.is_lost(small.context, gone, sure=True)
        await execute_saga(small, "confirm_resize/1", asked)
        assert (await recorded(small)).moved is None
        return
    del small.hosts.guests[DESTINATION, SERVER]
    with pytest.raises(Unwound, match="has no guest of it"):
        await execute_saga(small, "confirm_resize/1", asked)
    server = await recorded(small)
    assert (server.host, server.vm_state, server.moved is not None) == (DESTINATION, VmState.RESIZED, True)
    assert small.hosts.guests == {(SOURCE, SERVER): PowerState.SHUTDOWN}
    await small.hand_to(PROVED_OPERATION)
    await execute_saga(small, "revert_resize/1", RevertResize(server, 4, "req-revert", "user-1"))
    server = await recorded(small)
    assert (server.host, server.vm_state, server.moved) == (SOURCE, VmState.ACTIVE, None)
    assert small.hosts.guests == {(SOURCE, SERVER): PowerState.RUNNING}


async def busy(*_: Any, **__: Any) -> Any:
    raise UnknownOutcome("it did not answer in time")


async def test_a_confirm_continues_after_it_destroyed_the_old_guest(small: SmallRegion, monkeypatch: Any) -> None:
    """Its executor died, and the new host lost its guest since: there is nothing to go back to any more."""
    asked, saga = await about_moved(small, "confirm_resize/1"), SAGAS["confirm_resize/1"]
    paper, destroy = MemoryJournal(first_lines(saga), small.transact), small.hosts.destroy_guest

    async def dies(*rest: Any) -> None:
        await destroy(*rest)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(small.hosts, "destroy_guest", dies)
        with pytest.raises(Killed):
            await execute(saga, PROVED_OPERATION, asked, small.context, paper, clock=ManualClock())
    assert small.hosts.guests == {(DESTINATION, SERVER): PowerState.RUNNING}
    small.hosts.guests.clear()
    await execute(saga, PROVED_OPERATION, asked, small.context, paper.adopted(), clock=ManualClock())
    assert (await recorded(small)).moved is None


class Unheard:
    """The old host is silent for the first commands to switch the guest on: it has switched it off, and knows no other word."""

    def __init__(self, small: SmallRegion, monkeypatch: Any) -> None:
        self.times = 0
        self._power_on = small.hosts.power_on
        monkeypatch.setattr(small.hosts, "power_on", self)

    async def __call__(self, to: Any, command_context: Any, server: Any) -> Any:
        if self.times < 3:
            self.times += 1
            raise HostFailed("nobody hears it", code=HOST_SILENT)
        return await self._power_on(to, command_context, server)


async def test_an_unwinding_move_waits_for_the_old_host_to_start_the_guest(
    small: SmallRegion, monkeypatch: Any
) -> None:
    asked, unheard = await resizing(small), Unheard(small, monkeypatch)
    tell_host = small.hosts.change_guest

    async def executing(to: Any, command_context: Any, server: Any, what: Verb, payload: Any) -> Any:
        if isinstance(payload, SendGuest):
            small.hosts.guests[SOURCE, SERVER] = PowerState.SHUTDOWN
            raise HostFailed("its disk cannot be read", code="host_failed")
        return await tell_host(to, command_context, server, what, payload)

    monkeypatch.setattr(small.hosts, "change_guest", executing)
    with pytest.raises(Unwound, match="its disk cannot be read"):
        await execute_saga(small, "resize/1", asked)
    assert unheard.times == 3
    assert small.hosts.guests == {(SOURCE, SERVER): PowerState.RUNNING}


async def test_an_unwinding_shelve_waits_for_the_host_to_start_the_guest(small: SmallRegion, monkeypatch: Any) -> None:
    await imaged(small, operation=OperationId("shelved"))
    await small.hand_to(PROVED_OPERATION)
    asked = msgspec.structs.replace(shelving(offload=False), server=await recorded(small))
    unheard = Unheard(small, monkeypatch)

    async def full(*_: Any, **__: Any) -> Any:
        raise HostFailed("its disk is full", code="host_failed")

    monkeypatch.setattr(small.hosts, "take_snapshot", full)
    with pytest.raises(Unwound, match="its disk is full"):
        await execute_saga(small, "shelve/1", asked)
    assert unheard.times == 3
    assert small.hosts.guests == {(SOURCE, SERVER): PowerState.RUNNING}


async def test_sending_ends_before_the_received_guest_is_removed(small: SmallRegion, monkeypatch: Any) -> None:
    asked = await resizing(small)
    tell_host, seen = small.hosts.change_guest, list[tuple[str, str]]()

    async def lost(to: Any, command_context: Any, server: Any, verb: Verb, payload: Any) -> Any:
        answer = await tell_host(to, command_context, server, verb, payload)
        if isinstance(payload, SendGuest):
            raise HostFailed("it could not be sent", code="host_unreachable")
        return answer

    for name in ("power_off", "power_on", "destroy_guest"):
        real = getattr(small.hosts, name)

        async def noted(to: Any, *rest: Any, _name: str = name, _real: Any = real) -> Any:
            seen.append((_name, to.host))
            return await _real(to, *rest)

        monkeypatch.setattr(small.hosts, name, noted)
    monkeypatch.setattr(small.hosts, "change_guest", lost)
    with pytest.raises(Unwound):
        await execute_saga(small, "resize/1", asked)
    tried = [host for what, host in seen if what == "destroy_guest"]
    assert DESTINATION in tried
    each = [[("power_off", SOURCE), ("destroy_guest", host), ("power_on", SOURCE)] for host in tried]
    assert seen == [step for steps in each for step in steps]
    assert small.hosts.sent == set()


async def test_a_guest_that_stays_gets_its_volumes_current_attachments(small: SmallRegion, monkeypatch: Any) -> None:
    asked = await resizing(small, volumes=True)
    given, start = dict[str, str](), small.hosts.start_guest

    async def broken(to: Any, command_context: Any, guest: Any) -> Any:
        raise HostFailed("the host failed", code="guest_failed")

    async def plugged(to: Any, command_context: Any, server: Any, disk: Any) -> None:
        assert (to.host, small.hosts.guests[SOURCE, SERVER]) == (SOURCE, PowerState.SHUTDOWN)
        given[disk.volume] = disk.attachment

    monkeypatch.setattr(small.hosts, "start_guest", broken)
    monkeypatch.setattr(small.hosts, "attach_volume", plugged)
    with pytest.raises(Unwound):
        await execute_saga(small, "resize/1", asked)
    monkeypatch.setattr(small.hosts, "start_guest", start)
    server = await recorded(small)
    assert given == {each.volume: each.attachment for each in server.volumes}
    assert given
    assert small.hosts.guests == {(SOURCE, SERVER): PowerState.RUNNING}
