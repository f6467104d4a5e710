"""Live migrations whose hosts fall silent: the saga finds out where the guest is, and goes there; who is too old is refused first."""

import asyncio
import contextlib
import dataclasses
import types
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import msgspec
import pytest

from moorage.bus.verbs import Verb
from moorage.conductor.operation_runner import hosts_tried
from moorage.model.errors import Conflict, HostFailed, Invalid, NotFound, Problem, Stale, Unavailable, UnknownOutcome
from moorage.model.guest import PowerState
from moorage.model.ids import ConductorId, OperationId, ServerId
from moorage.model.live_migration import LiveNow, LiveState
from moorage.model.migration import Migration, MigrationStatus, MigrationType, TransferProgress
from moorage.model.network import BindRefused
from moorage.model.operation import Operation, OperationStatus
from moorage.model.principal import Principal
from moorage.model.server import Server, VmState
from moorage.operations.live_migrate import accept_live_migrate, live_migrate
from moorage.operations.live_migrate.live_migrate import HOSTS_TRIED_MAX
from moorage.operations.live_migrate.live_migrate_input import LiveMigrate
from moorage.operations.notifications.unversioned import event_type
from moorage.operations.registry import SAGAS
from moorage.operations.resize import confirm_resize
from moorage.operations.resize.confirm_resize import ConfirmResize
from moorage.operations.resize.revert_resize import RevertResize
from moorage.operations.steps import live_migration, live_migration_limit
from moorage.operations.steps.hosts import HOST_SILENT
from moorage.operations.steps.server_action import now_us
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage.store.cell import migrations
from moorage.store.region import operations as region_operations
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements
from moorage_testing.fault_points import HeldClock
from moorage_testing.region_fixture import CELLS, SERVER, SmallRegion
from moorage_testing.region_moved import MOVE, live_migrating, recorded, resizing
from moorage_testing.saga_proof import PROVED_OPERATION

SOURCE = "host1"
AT_SOURCE = {(SOURCE, SERVER): PowerState.RUNNING}


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def told(small: SmallRegion, asked: Any) -> None:
    await tell_one(small, "live_migrate/1" if isinstance(asked, LiveMigrate) else "resize/1", asked)


async def tell_one(small: SmallRegion, name: str, asked: Any) -> None:
    saga = SAGAS[name]
    await execute(
        saga,
        PROVED_OPERATION,
        asked,
        small.context,
        MemoryJournal(first_lines(saga), small.transact),
        clock=HeldClock(),
    )


async def status(small: SmallRegion) -> MigrationStatus:
    found = await small.cells[CELLS[0]].read(lambda tx: migrations.get(tx, MOVE))
    assert found is not None
    return found.status


def silence(small: SmallRegion, monkeypatch: Any, *, began: bool, answers: int = 10**6) -> list[str]:
    """The source is not heard from the moment on that it is told to send; `began`: it heard that, and the guest left."""
    tell_host, ask, silent = small.hosts.change_guest, small.hosts.ask, list[str]()

    async def telling(to: Any, command_context: Any, server: Any, verb: Verb, payload: Any = None) -> Any:
        if to.host == SOURCE and (silent or verb is Verb.SEND_LIVE) and len(silent) < answers:
            if verb is Verb.SEND_LIVE and began:
                await tell_host(to, command_context, server, verb, payload)
            silent.append(str(verb))
            raise HostFailed("nobody hears it", code=HOST_SILENT)
        return await tell_host(to, command_context, server, verb, payload)

    async def asking(to: Any, server: Any, verb: Verb, payload: Any, kind: Any, patience_s: float = 20.0) -> Any:
        if to.host == SOURCE and silent and len(silent) < answers:
            silent.append(str(verb))
            raise HostFailed("nobody hears it", code=HOST_SILENT)
        return await ask(to, server, verb, payload, kind, patience_s)

    monkeypatch.setattr(small.hosts, "change_guest", telling)
    monkeypatch.setattr(small.hosts, "ask", asking)
    return silent


async def test_the_destination_answers_for_a_source_that_fell_silent_while_sending(
    small: SmallRegion, monkeypatch: Any
) -> None:
    asked = await live_migrating(small)
    silent = silence(small, monkeypatch, began=True)
    await told(small, asked)
    server = await recorded(small)
    assert silent[:2] == [Verb.SEND_LIVE, Verb.ABORT_LIVE]
    assert (server.host != SOURCE, server.vm_state, server.task_state) == (True, VmState.ACTIVE, None)
    assert small.hosts.guests == {(server.host, SERVER): PowerState.RUNNING}
    assert await status(small) is MigrationStatus.COMPLETED


async def test_nothing_arrives_from_a_source_that_was_silent_before_sending(
    small: SmallRegion, monkeypatch: Any
) -> None:
    """The place at the destination is taken away first: what the source may have heard comes too late."""
    asked = await live_migrating(small)
    silence(small, monkeypatch, began=False)
    with pytest.raises(Unwound):
        await told(small, asked)
    assert (await recorded(small)).host == SOURCE
    assert small.hosts.guests == AT_SOURCE
    assert small.hosts.waits == {}
    assert await status(small) is MigrationStatus.FAILED


@pytest.mark.parametrize("why", ["cancelled", "took too long"])
async def test_an_aborted_migration_is_not_sent_again(small: SmallRegion, why: str, monkeypatch: Any) -> None:
    """The source aborts, and cannot say so at first: the step is tried again. Time runs since it was first told to go."""
    asked = msgspec.structs.replace(await live_migrating(small), timeout_s=3600.0)
    tell_host, ask, heard, aborts = small.hosts.change_guest, small.hosts.ask, list[Verb](), list[str]()

    async def telling(to: Any, command_context: Any, server: Any, verb: Verb, payload: Any = None) -> Any:
        heard.append(verb)
        if verb is Verb.ABORT_LIVE:
            aborts.append(command_context.step)
        return (
            PowerState.RUNNING
            if verb is Verb.SEND_LIVE
            else await tell_host(to, command_context, server, verb, payload)
        )

    async def asking(to: Any, server: Any, verb: Verb, payload: Any, kind: Any, patience_s: float = 20.0) -> Any:
        if verb is Verb.LIVE_STATUS and heard.count(Verb.ABORT_LIVE) == 1:
            raise HostFailed("its hypervisor is out")
        return await ask(to, server, verb, payload, kind, patience_s)

    async def cancelled(_: Any) -> bool:
        return why == "cancelled" and Verb.SEND_LIVE in heard

    began = now_us()
    later_us = 3601 * 1_000_000 if why == "took too long" else 0
    monkeypatch.setattr(live_migration, "now_us", lambda: began + (later_us if Verb.SEND_LIVE in heard else 0))
    monkeypatch.setattr(small.hosts, "change_guest", telling)
    monkeypatch.setattr(small.hosts, "ask", asking)
    monkeypatch.setattr(live_migration, "is_cancelled", cancelled)
    with pytest.raises(Unwound):
        await told(small, asked)
    assert heard.count(Verb.SEND_LIVE) == 1
    assert len(aborts) >= 2
    assert len(set(aborts)) == len(aborts), "a host answers from its journal what it was asked under that name before"
    assert small.hosts.guests == AT_SOURCE
    assert await status(small) is (MigrationStatus.CANCELLED if why == "cancelled" else MigrationStatus.FAILED)


async def test_a_failed_write_of_the_progress_stops_no_transfer(small: SmallRegion, monkeypatch: Any) -> None:
    asked = await live_migrating(small)
    ask, sending = small.hosts.ask, [LiveNow(LiveState.RUNNING, TransferProgress(10, 5, 5, 0, 0, 0))] * 2

    async def asking(to: Any, server: Any, verb: Verb, payload: Any, kind: Any, patience_s: float = 20.0) -> Any:
        if verb is Verb.LIVE_STATUS and sending:
            return sending.pop()
        return await ask(to, server, verb, payload, kind, patience_s)

    async def refuses(*_: Any, **__: Any) -> None:
        raise Stale("somebody else wrote it")

    monkeypatch.setattr(small.hosts, "ask", asking)
    monkeypatch.setattr(live_migration, "show", refuses)
    monkeypatch.setattr(live_migration, "SHOWN_EVERY_S", 0.0)
    await told(small, asked)
    assert not sending
    await moved_all_the_same(small)


# ------------------------------------------------------------------------------------------- one after the other


@pytest.mark.parametrize("dead", [MigrationStatus.RUNNING, MigrationStatus.QUEUED])
async def test_a_queued_record_without_an_operation_blocks_no_other(
    small: SmallRegion, dead: MigrationStatus, monkeypatch: Any
) -> None:
    asked = await live_migrating(small)
    other = Migration("lost", ServerId("lost"), MigrationType.LIVE_MIGRATION, dead, "u", "p", 1, 1, source_host=SOURCE)
    await small.cells[CELLS[0]].write(lambda tx: migrations.put(tx, other))
    seen, over = list[MigrationStatus](), live_migration_limit._over

    async def looked(context: Any, one: Migration) -> frozenset[str]:
        seen.append(await status(small))
        return await over(context, one)

    monkeypatch.setattr(live_migration_limit, "_over", looked)
    monkeypatch.setattr(live_migration_limit, "POLL_NEXT_S", 0.0)
    await told(small, asked)
    assert seen == [MigrationStatus.QUEUED]
    await moved_all_the_same(small)


def holds(monkeypatch: Any, migration: str) -> None:
    """The server is held by a live migration of that name."""
    asked = msgspec.json.encode({"migration": migration})
    under_way = Operation(
        OperationId("o"),
        "live_migrate/1",
        SERVER,
        "p",
        "u",
        ConductorId("c"),
        OperationStatus.OPEN,
        1,
        1,
        1,
        1,
        asked=asked,
    )
    held = types.SimpleNamespace(operation=under_way.id)
    monkeypatch.setattr(region_servers, "find", lambda *_: held)
    monkeypatch.setattr(region_operations, "get", lambda *_: under_way)


async def test_an_earlier_move_of_the_same_server_does_not_count_as_under_way(
    small: SmallRegion, monkeypatch: Any
) -> None:
    """A cell that was put back says `running` of it again; nobody waits for it, and an abort of it ends nothing else."""
    await live_migrating(small)
    server, principal = await recorded(small), Principal("user-1", project="project-1")
    made = [
        Migration(each, SERVER, MigrationType.LIVE_MIGRATION, RUNNING, "u", "p", 1, 1, source_host=SOURCE)
        for each in ("earlier", MOVE)
    ]
    with monkeypatch.context() as patched:
        holds(patched, MOVE)
        assert [await live_migration_limit._over(small.context, each) for each in made] == [{"earlier"}, set()]
        with pytest.raises(Invalid, match="has ended"):
            await accept_live_migrate.abort(small.context, principal, server, made[0], "req-abort")


@pytest.mark.parametrize("why", ["cancelled", "silent"])
async def test_a_queued_migration_ends_on_abort_or_silence_of_its_host(
    small: SmallRegion, why: str, monkeypatch: Any
) -> None:
    """The hint of a cancel may be lost; a server in line behind a dead host's could not be evacuated."""
    asked, seen, aside = await live_migrating(small), list[MigrationStatus](), list[str]()
    other = Migration("other", SERVER, MigrationType.LIVE_MIGRATION, RUNNING, "u", "p", 1, 1, source_host=SOURCE)
    await small.cells[CELLS[0]].write(lambda tx: migrations.put(tx, other))

    async def waits(*_: Any) -> frozenset[str]:
        seen.append(await status(small))
        assert aside == ["in"]
        if why == "silent":
            small.hosts.silent.add(SOURCE)
        return frozenset()

    async def cancelled(_: Any) -> bool:
        return why == "cancelled" and bool(seen)

    @contextlib.contextmanager
    def stands_aside(_: Any) -> Iterator[None]:
        aside.append("in")
        yield
        aside.append("out")

    small.context = dataclasses.replace(small.context, aside=stands_aside)
    monkeypatch.setattr(live_migration_limit, "_over", waits)
    monkeypatch.setattr(live_migration_limit, "POLL_NEXT_S", 0.0)
    monkeypatch.setattr(live_migration, "is_cancelled", cancelled)
    with pytest.raises(Unwound):
        await asyncio.wait_for(told(small, asked), 30)
    assert seen == [QUEUED]
    assert await status(small) is (MigrationStatus.CANCELLED if why == "cancelled" else MigrationStatus.ERROR)
    assert small.hosts.guests == AT_SOURCE


async def test_the_place_is_released_before_the_destination_is_cleaned(small: SmallRegion, monkeypatch: Any) -> None:
    """A new host that cannot destroy what it has holds up nobody else of the old one."""
    asked, tell_host, destroy, stays = (
        await live_migrating(small),
        small.hosts.change_guest,
        small.hosts.destroy_guest,
        list[bool](),
    )

    async def telling(to: Any, command_context: Any, server: Any, verb: Verb, payload: Any = None) -> Any:
        if verb is Verb.SEND_LIVE:
            raise HostFailed("it cannot send it")
        return await tell_host(to, command_context, server, verb, payload)

    async def clearing(to: Any, command_context: Any, server: Any, release: Any = None) -> None:
        move = await small.cells[CELLS[0]].read(lambda tx: migrations.get(tx, MOVE))
        assert move is not None
        stays.append(move.stays)
        await destroy(to, command_context, server, release)

    monkeypatch.setattr(small.hosts, "change_guest", telling)
    monkeypatch.setattr(small.hosts, "destroy_guest", clearing)
    with pytest.raises(Unwound):
        await told(small, asked)
    assert stays
    assert all(stays)
    ended = await small.cells[CELLS[0]].read(lambda tx: migrations.get(tx, MOVE))
    assert ended is not None
    assert (ended.stays, ended.status) == (False, MigrationStatus.FAILED)


async def test_an_outage_ends_a_queued_migration_earlier_than_its_turn_limit(
    small: SmallRegion, monkeypatch: Any
) -> None:
    """Its cell's database is out: the steps around it wait for minutes."""
    asked, tries = await live_migrating(small), list[str]()

    async def out(*_: Any) -> Any:
        tries.append("try")
        raise Unavailable("the database of cell1 is out")

    monkeypatch.setattr(live_migration_limit, "_enqueue", out)
    monkeypatch.setattr(live_migration_limit, "OUTAGE_MAX_S", 0.1)
    monkeypatch.setattr(live_migration_limit, "POLL_NEXT_S", 0.01)
    with pytest.raises(Unwound, match="waited too long"):
        await told(small, asked)
    assert 1 < len(tries) < 100
    assert (await recorded(small)).host == SOURCE


QUEUED, PREPARING, RUNNING = MigrationStatus.QUEUED, MigrationStatus.PREPARING, MigrationStatus.RUNNING


@pytest.mark.parametrize(
    ("line", "mine", "most", "before"),
    [
        ([RUNNING, QUEUED], 2, 1, [1]),
        ([RUNNING, QUEUED], 2, 2, []),
        ([RUNNING, QUEUED], 2, 0, []),
        ([RUNNING, RUNNING, QUEUED, QUEUED], 3, 2, [1, 2]),
        ([RUNNING, QUEUED, QUEUED], 3, 2, [2]),
        ([QUEUED, RUNNING], 1, 1, [2]),
        ([RUNNING, PREPARING], 2, 1, []),
        ([RUNNING, QUEUED], None, 1, [2]),
        ([RUNNING], None, 1, [1]),
        ([], None, 1, []),
    ],
)
def test_queue_order_of_live_migrations(
    line: list[MigrationStatus], mine: int | None, most: int, before: list[int]
) -> None:
    rows = [
        Migration(str(n), SERVER, MigrationType.LIVE_MIGRATION, each, "u", "p", 1, 1, source_host=SOURCE, number=n)
        for n, each in enumerate(line, 1)
    ]
    assert [each.number for each in live_migration_limit._before(rows, str(mine), (), most)] == before
    stay = [msgspec.structs.replace(each, stays=each.uuid != str(mine)) for each in rows]
    assert live_migration_limit._before(stay, str(mine), (), most) == []


# ------------------------------------------------------------------------------------------------- the next host


@pytest.mark.parametrize(
    ("problem", "counts"),
    [
        (HostFailed("other processors", code="live_refused"), False),
        (HostFailed("an earlier release", code="not_supported"), False),
        (HostFailed("its hypervisor is out"), True),
        (UnknownOutcome("its driver hangs"), True),
    ],
    ids=["refused", "not-supported", "failed", "hangs"],
)
async def test_the_next_host_is_tried_and_only_a_failure_counts_against_one(
    small: SmallRegion, problem: Problem, counts: bool, monkeypatch: Any
) -> None:
    asked = await live_migrating(small)
    ask, refused = small.hosts.ask, list[str]()
    column, slots = small.engine.picture.columns.failures, small.engine.picture.slots_by_name
    others = [name for name in slots if name != SOURCE]
    for name in others:
        column[slots[name]] = 2

    async def asking(to: Any, server: Any, verb: Verb, payload: Any, kind: Any, patience_s: float = 20.0) -> Any:
        if verb is Verb.LIVE_TARGET and not refused:
            refused.append(to.host)
            raise problem
        return await ask(to, server, verb, payload, kind, patience_s)

    monkeypatch.setattr(small.hosts, "ask", asking)
    await told(small, asked)
    server = await moved_all_the_same(small)
    assert server.host is not None
    assert server.host not in refused
    assert column[slots[refused[0]]] == 2 + counts
    assert column[slots[server.host]] == 0, "it took a guest"


def test_more_hosts_are_tried_than_for_a_boot() -> None:
    """Ten whose processors are others refuse in a moment."""
    assert hosts_tried(SAGAS["live_migrate/1"], 3) == HOSTS_TRIED_MAX > 3
    assert hosts_tried(SAGAS["live_migrate/1"], 50) == 50
    assert hosts_tried(SAGAS["boot/1"], 1) == 1


# ------------------------------------------------------------------------------------------------- after the switch


def after_the_switch(small: SmallRegion, monkeypatch: Any, do: Callable[[], None]) -> None:
    """Done as soon as the guest has left."""
    tell_host = small.hosts.change_guest

    async def telling(to: Any, command_context: Any, server: Any, verb: Verb, payload: Any = None) -> Any:
        answer = await tell_host(to, command_context, server, verb, payload)
        if verb is Verb.SEND_LIVE:
            do()
        return answer

    monkeypatch.setattr(small.hosts, "change_guest", telling)


async def moved_all_the_same(small: SmallRegion) -> Server:
    server = await recorded(small)
    assert (server.host != SOURCE, server.vm_state, server.task_state) == (True, VmState.ACTIVE, None)
    assert small.hosts.guests == {(server.host, SERVER): PowerState.RUNNING}
    assert await status(small) is MigrationStatus.COMPLETED
    return server


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
    await told(small, asked)
    server = await moved_all_the_same(small)
    if change == "binding-deleted":
        assert network.ports[port].host == server.host, "it is bound anew"
    else:
        assert port not in {nic.port for nic in server.nics}


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
    await told(small, asked)
    server = await moved_all_the_same(small)
    assert len(asked_for) == 3
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
    await told(small, asked)
    server = await moved_all_the_same(small)
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
    await told(small, asked)
    await moved_all_the_same(small)


async def test_the_server_is_recorded_on_a_destination_that_falls_silent_after_the_switch(
    small: SmallRegion, monkeypatch: Any
) -> None:
    """The record names it, so that the server can be evacuated from it."""
    asked = await live_migrating(small)
    tell_host = small.hosts.change_guest

    async def telling(to: Any, command_context: Any, server: Any, verb: Verb, payload: Any = None) -> Any:
        if verb is Verb.LAND_LIVE:
            raise HostFailed("nobody hears it", code=HOST_SILENT)
        return await tell_host(to, command_context, server, verb, payload)

    monkeypatch.setattr(small.hosts, "change_guest", telling)
    await told(small, asked)
    server = await moved_all_the_same(small)
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
    await told(small, asked)
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
        await tell_one(small, "confirm_resize/1", ConfirmResize(server, 3, "req-confirm", "user-1"))
    assert small.hosts.departed == kept
    await is_not_confirmed_unheard(small, monkeypatch, str(server.host))
    small.hosts.silent.clear()
    server = await recorded(small)
    await small.hand_to(PROVED_OPERATION)
    await tell_one(small, "revert_resize/1", RevertResize(server, 4, "req-revert", "user-1"))
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
    await told(small, asked)
    assert (await recorded(small)).vm_state is VmState.ERROR
    assert await status(small) is MigrationStatus.COMPLETED
    assert await small.region.read(lambda tx: claim_statements.held(tx, MOVE)) == {}


# ------------------------------------------------------------------------------------------------- who is too old


@pytest.mark.parametrize("old", ["source", "pin"])
@pytest.mark.parametrize("move", [live_migrating, resizing])
async def test_guarantees_need_hosts_that_support_them(
    small: SmallRegion, move: Any, old: str, monkeypatch: Any
) -> None:
    """S1.11, S1.12: refused before anything is touched, by the level of the host and by the pin that is used."""
    asked = await move(small, guarantees=True)
    if old == "pin":
        settings = dataclasses.replace(small.context.settings, level_pin=2)
        small.context = dataclasses.replace(small.context, settings=settings)
    else:
        world = small.engine.world()
        levels = world.level.copy()
        levels[world.slots_by_name[SOURCE]] = 2
        monkeypatch.setattr(small.engine, "world", lambda: dataclasses.replace(world, level=levels))
    monkeypatch.setattr(small.engine, "move", None)
    before = msgspec.structs.replace(await recorded(small), generation=0)
    with pytest.raises(Unwound, match="upgraded"):
        await told(small, asked)
    after = msgspec.structs.replace(await recorded(small), generation=0)
    assert (after.host, after.nics, after.vm_state) == (before.host, before.nics, before.vm_state)
    assert small.network.left_inactive() == set()
    assert small.hosts.guests == AT_SOURCE


async def said(small: SmallRegion) -> list[str]:
    return [
        each.event.removeprefix("live_migration_")
        for each in await small.notifications()
        if each.event.startswith("live")
    ]


async def test_notifications_of_a_successful_and_a_failed_live_migration(small: SmallRegion, monkeypatch: Any) -> None:
    """Nova's words, of both hosts, in both formats."""
    await tell_and_hear(small, await live_migrating(small))
    there = ["pre.start", "pre.end", "post.start", "post_dest.start", "post_dest.end", "post.end"]
    assert await said(small) == there
    older = [event_type(each) for each in await small.notifications() if each.event.startswith("live")]
    words = ["pre.start", "pre.end", "_post.start", "post.dest.start", "post.dest.end", "_post.end"]
    assert older == [f"compute.instance.live_migration.{word}" for word in words]
    by = {each.event: each.host for each in await small.notifications()}
    host = (await recorded(small)).host
    assert (by["live_migration_pre.start"], by["live_migration_post.start"]) == (host, SOURCE)
    asked = await live_migrating(small)
    silence(small, monkeypatch, began=False)
    with pytest.raises(Unwound):
        await tell_and_hear(small, asked)
    back = ["rollback.start", "rollback.end", "rollback_dest.start", "rollback_dest.end"]
    assert await said(small) == ["pre.start", "pre.end", *back]


async def tell_and_hear(small: SmallRegion, asked: Any) -> None:
    saga = SAGAS["live_migrate/1"]
    paper = MemoryJournal(first_lines(saga), small.transact)
    await execute(
        saga, PROVED_OPERATION, asked, small.context, paper, clock=HeldClock(), notification_writer=small.on_commit
    )
