"""Moves whose hosts fail in the middle: no second guest runs, no disk is lost, no export is left to a guest that it is gone for."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from moorage.bus.move_payloads import SendGuest
from moorage.bus.verbs import Verb
from moorage.model.errors import Conflict, HostFailed, UnknownOutcome
from moorage.model.guest import PowerState
from moorage.model.ids import CellId, OperationId, SegmentId
from moorage.model.migration import Migration, MigrationStatus
from moorage.model.network import SubnetFacts
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import TaskState, VmState
from moorage.operations.registry import SAGAS
from moorage.operations.resize.confirm_resize import ConfirmResize
from moorage.operations.resize.revert_resize import RevertResize
from moorage.operations.steps import move_ports, moving
from moorage.operations.steps.hosts import HOST_SILENT
from moorage.placement.inventory import SegmentReport
from moorage.saga import Killed, MemoryJournal, Unwound, execute, first_lines
from moorage.store.cell import migrations
from moorage.store.cell import servers as cell_servers
from moorage.store.region import servers as region_servers
from moorage_testing import region_fixture, region_network, region_states
from moorage_testing.fault_points import HeldClock
from moorage_testing.region_evacuated import evacuating
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_moved import about_moved, recorded, resizing, wired_apart
from moorage_testing.region_network import SUBNET
from moorage_testing.region_shelved import shelved, shelving, unshelving
from moorage_testing.region_states import imaged
from moorage_testing.saga_proof import PROVED_OPERATION

SOURCE, DESTINATION = "host1", "host3"


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def told(small: SmallRegion, name: str, asked: Any) -> None:
    saga = SAGAS[name]
    await execute(
        saga,
        PROVED_OPERATION,
        asked,
        small.context,
        MemoryJournal(first_lines(saga), small.transact),
        clock=HeldClock(),
    )


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
    await told(small, "revert_resize/1", asked)
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
        await told(small, "revert_resize/1", asked)
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
        await told(small, "revert_resize/1", asked)
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
        await told(small, "resize/1", asked)
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
        SAGAS["resize/1"], PROVED_OPERATION, asked, small.context, paper, clock=HeldClock(), cancel_hint=paper.hint
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
    await told(small, "delete/4", asked)
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
            await told(small, "confirm_resize/1", asked)
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
        await told(small, "confirm_resize/1", asked)
        assert (await recorded(small)).moved is None
        return
    del small.hosts.guests[DESTINATION, SERVER]
    with pytest.raises(Unwound, match="has no guest of it"):
        await told(small, "confirm_resize/1", asked)
    server = await recorded(small)
    assert (server.host, server.vm_state, server.moved is not None) == (DESTINATION, VmState.RESIZED, True)
    assert small.hosts.guests == {(SOURCE, SERVER): PowerState.SHUTDOWN}
    await small.hand_to(PROVED_OPERATION)
    await told(small, "revert_resize/1", RevertResize(server, 4, "req-revert", "user-1"))
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
            await execute(saga, PROVED_OPERATION, asked, small.context, paper, clock=HeldClock())
    assert small.hosts.guests == {(DESTINATION, SERVER): PowerState.RUNNING}
    small.hosts.guests.clear()
    await execute(saga, PROVED_OPERATION, asked, small.context, paper.adopted(), clock=HeldClock())
    assert (await recorded(small)).moved is None


def addresses(small: SmallRegion) -> dict[str, list[str]]:
    """Of each port of the server, at the network service."""
    return {port.id: [each.address for each in port.fixed_ips] for port in small.network.ports.values()}


@pytest.mark.parametrize("across", [False, True])
async def test_addresses_without_a_segment_are_kept_on_a_network_with_segments(
    small: SmallRegion, monkeypatch: Any, across: bool
) -> None:
    """A network that is half-way to being routed: its ports are offered any segment, for the wires, and leave none."""
    flat = SubnetFacts(SUBNET, "10.0.0.0/24")
    before = msgspec.structs.replace(region_network.ROUTED_FACTS, subnets=(flat,), segments=())
    half = msgspec.structs.replace(region_network.ROUTED_FACTS, subnets=(flat, *region_network.ROUTED_FACTS.subnets))
    for module in (region_network, region_states):
        monkeypatch.setattr(module, "ROUTED_FACTS", before)
    asked = msgspec.structs.replace(await resizing(small, routed=True), across=across)
    had = addresses(small)
    monkeypatch.setattr(region_network, "ROUTED_FACTS", half)
    await told(small, "resize/1", asked)
    server = await recorded(small)
    assert server.moved is not None
    assert server.moved.readdressed == ()
    assert addresses(small) == had


@pytest.mark.parametrize("then", ["confirm_resize/1", "revert_resize/1"])
async def test_a_resize_on_the_same_host_uses_the_hosts_current_segment(small: SmallRegion, then: str) -> None:
    """The old one is held beside it, as for a move, and the port is never without any."""
    asked = await resizing(small, same_host=True, routed=True, across=True)
    own, other = region_network.SEGMENTS
    hosts = tuple(host for host, _ in region_fixture.ALL_HOSTS)
    for segment, wired in ((own, ()), (other, hosts)):
        report = SegmentReport(segment=SegmentId(segment), name=segment, total=100, hosts=wired)
        await small.engine.report_segments([report])
    had = addresses(small)
    await told(small, "resize/1", asked)
    server = await recorded(small)
    assert server.moved is not None
    (changed,) = server.moved.readdressed
    (old,), (new,) = ([each.address for each in some] for some in (changed.old, changed.new))
    assert (server.host, changed.new_segment) == (SOURCE, other)
    assert addresses(small)[changed.port] == [new, old]
    assert [each.address for nic in server.nics if nic.port == changed.port for each in nic.addresses] == [new]
    await small.hand_to(PROVED_OPERATION)
    kind = ConfirmResize if then == "confirm_resize/1" else RevertResize
    await told(small, then, kind(server, 4, "req-then", "user-1"))
    assert addresses(small) == (had | {changed.port: [new]} if then == "confirm_resize/1" else had)


@pytest.mark.parametrize("saga", ["evacuate/2", "unshelve/2"])
async def test_a_move_that_finds_room_on_its_own_segment_keeps_its_address(
    small: SmallRegion, monkeypatch: Any, saga: str
) -> None:
    """The host that failed was of another, and its address is nobody's any more."""
    if saga == "evacuate/2":
        asked: Any = await evacuating(small, routed=True, across=True)
    else:
        await shelved(small, offload=True, routed=True, across=True)
        asked = unshelving(across=True)
    had, start, failed = addresses(small), small.hosts.start_guest, list[str]()

    async def starting(to: Any, command_context: Any, guest: Any) -> Any:
        if failed:
            return await start(to, command_context, guest)
        failed.append(to.host)
        assert [each for each in addresses(small).values() if len(each) == 2], "the old one is held beside the new one"
        await wired_apart(small, "host1", "host3", "host4")
        raise HostFailed("the host failed", code="guest_failed")

    monkeypatch.setattr(small.hosts, "start_guest", starting)
    await told(small, saga, asked)
    server = await recorded(small)
    assert (server.vm_state, server.host not in {*failed, None}) == (VmState.ACTIVE, True)
    assert addresses(small) == had
    held = await small.held()
    own, _ = region_network.SEGMENTS
    assert (held["claimed"], held["shown"]) == ([(own, IPV4_ADDRESS, 1)], held["addresses"])


@pytest.mark.parametrize("verb", ["send", "take", "start"])
@pytest.mark.parametrize("volumes", [False, True])
async def test_when_a_new_host_fails_the_next_one_is_tried(
    small: SmallRegion, monkeypatch: Any, verb: str, volumes: bool
) -> None:
    """After everything of the first is taken back: its guest, its bindings, the exports, and what was claimed there."""
    asked = await resizing(small, volumes=volumes)
    tell_host, start, failed = small.hosts.change_guest, small.hosts.start_guest, list[str]()

    def fails(kind: str, host: str) -> None:
        if kind == verb and not failed:
            failed.append(host)
            raise HostFailed("the host failed", code="host_unreachable" if kind == "send" else "guest_failed")

    async def telling(to: Any, command_context: Any, server: Any, what: Verb, payload: Any) -> Any:
        answer = await tell_host(to, command_context, server, what, payload)
        kind = {"SendGuest": "send", "TakeGuest": "take"}.get(type(payload).__name__, "")
        fails(kind, payload.to.where if isinstance(payload, SendGuest) else to.host)
        return answer

    async def starting(to: Any, command_context: Any, guest: Any) -> Any:
        answer = await start(to, command_context, guest)
        fails("start", to.host)
        return answer

    monkeypatch.setattr(small.hosts, "change_guest", telling)
    monkeypatch.setattr(small.hosts, "start_guest", starting)
    await told(small, "resize/1", asked)
    server = await recorded(small)
    assert server.host is not None
    assert server.vm_state is VmState.RESIZED
    assert len({SOURCE, server.host, *failed}) == 3
    assert small.hosts.guests == {(SOURCE, SERVER): PowerState.SHUTDOWN, (server.host, SERVER): PowerState.RUNNING}
    assert small.hosts.sent == set()
    assert {each.host for each in small.network.ports.values() if each.device_id} == {server.host}
    assert {host for _, host in small.network.inactive} == {SOURCE}
    assert set(small.volumes.hosts.values()) == ({server.host} if volumes else set())


async def test_a_failure_of_the_old_host_is_not_retried_with_other_hosts(small: SmallRegion, monkeypatch: Any) -> None:
    asked = await resizing(small)
    tell_host, sent = small.hosts.change_guest, list[str]()

    async def telling(to: Any, command_context: Any, server: Any, what: Verb, payload: Any) -> Any:
        if isinstance(payload, SendGuest):
            sent.append(payload.to.where)
            raise HostFailed("its disk cannot be read", code="host_failed")
        return await tell_host(to, command_context, server, what, payload)

    monkeypatch.setattr(small.hosts, "change_guest", telling)
    with pytest.raises(Unwound, match="its disk cannot be read"):
        await told(small, "resize/1", asked)
    assert len(sent) == 1
    assert small.hosts.guests == {(SOURCE, SERVER): PowerState.RUNNING}


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

    async def telling(to: Any, command_context: Any, server: Any, what: Verb, payload: Any) -> Any:
        if isinstance(payload, SendGuest):
            small.hosts.guests[SOURCE, SERVER] = PowerState.SHUTDOWN
            raise HostFailed("its disk cannot be read", code="host_failed")
        return await tell_host(to, command_context, server, what, payload)

    monkeypatch.setattr(small.hosts, "change_guest", telling)
    with pytest.raises(Unwound, match="its disk cannot be read"):
        await told(small, "resize/1", asked)
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
        await told(small, "shelve/1", asked)
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
        await told(small, "resize/1", asked)
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
        await told(small, "resize/1", asked)
    monkeypatch.setattr(small.hosts, "start_guest", start)
    server = await recorded(small)
    assert given == {each.volume: each.attachment for each in server.volumes}
    assert given
    assert small.hosts.guests == {(SOURCE, SERVER): PowerState.RUNNING}


async def test_a_server_on_a_silent_host_is_not_moved(small: SmallRegion) -> None:
    with pytest.raises(Conflict, match="Service is unavailable at this time"):
        move_ports.refuse_silent(small.context, "no-such-host")
    move_ports.refuse_silent(small.context, SOURCE)
    assert small.context.placement.forced_down(CellId("cell1")) == set()
