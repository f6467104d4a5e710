"""Live migrations whose hosts fall silent or refuse: where the guest is then, and which host is tried next."""

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.helpers.live_migrations import AT_SOURCE, SOURCE, assert_moved, execute_move, status

from moorage.bus.verbs import Verb
from moorage.conductor.operation_runner import hosts_tried
from moorage.model.errors import HostFailed, Problem, Stale, UnknownOutcome
from moorage.model.guest import PowerState
from moorage.model.live_migration import LiveNow, LiveState
from moorage.model.migration import MigrationStatus, TransferProgress
from moorage.model.server import VmState
from moorage.operations.live_migrate.live_migrate import HOSTS_TRIED_MAX
from moorage.operations.notifications.unversioned import event_type
from moorage.operations.registry import SAGAS
from moorage.operations.steps import live_migration
from moorage.operations.steps.hosts import HOST_SILENT
from moorage.operations.steps.server_action import now_us
from moorage.saga import MemoryJournal, Unwound, execute, first_lines
from moorage_testing.fault_points import ManualClock
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_moved import live_migrating, recorded, resizing
from moorage_testing.saga_proof import PROVED_OPERATION


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


def silence(small: SmallRegion, monkeypatch: Any, *, began: bool, answers: int = 10**6) -> list[str]:
    """The source is not heard from the moment on that it is told to send; `began`: it heard that, and the guest left."""
    tell_host, ask, silent = small.hosts.change_guest, small.hosts.ask, list[str]()

    async def executing(to: Any, command_context: Any, server: Any, verb: Verb, payload: Any = None) -> Any:
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

    monkeypatch.setattr(small.hosts, "change_guest", executing)
    monkeypatch.setattr(small.hosts, "ask", asking)
    return silent


async def test_the_destination_answers_for_a_source_that_fell_silent_while_sending(
    small: SmallRegion, monkeypatch: Any
) -> None:
    asked = await live_migrating(small)
    silent = silence(small, monkeypatch, began=True)
    await execute_move(small, asked)
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
        await execute_move(small, asked)
    assert (await recorded(small)).host == SOURCE
    assert small.hosts.guests == AT_SOURCE
    assert small.hosts.waits == {}
    assert await status(small) is MigrationStatus.FAILED


@pytest.mark.parametrize("why", ["cancelled", "took too long"])
async def test_an_aborted_migration_is_not_sent_again(small: SmallRegion, why: str, monkeypatch: Any) -> None:
    """The source aborts, and cannot say so at first: the step is tried again. Time runs since it was first told to go."""
    asked = msgspec.structs.replace(await live_migrating(small), timeout_s=3600.0)
    tell_host, ask, messages, aborts = small.hosts.change_guest, small.hosts.ask, list[Verb](), list[str]()

    async def executing(to: Any, command_context: Any, server: Any, verb: Verb, payload: Any = None) -> Any:
        messages.append(verb)
        if verb is Verb.ABORT_LIVE:
            aborts.append(command_context.step)
        return (
            PowerState.RUNNING
            if verb is Verb.SEND_LIVE
            else await tell_host(to, command_context, server, verb, payload)
        )

    async def asking(to: Any, server: Any, verb: Verb, payload: Any, kind: Any, patience_s: float = 20.0) -> Any:
        if verb is Verb.LIVE_STATUS and messages.count(Verb.ABORT_LIVE) == 1:
            raise HostFailed("its hypervisor is out")
        return await ask(to, server, verb, payload, kind, patience_s)

    async def cancelled(_: Any) -> bool:
        return why == "cancelled" and Verb.SEND_LIVE in messages

    began = now_us()
    later_us = 3601 * 1_000_000 if why == "took too long" else 0
    monkeypatch.setattr(live_migration, "now_us", lambda: began + (later_us if Verb.SEND_LIVE in messages else 0))
    monkeypatch.setattr(small.hosts, "change_guest", executing)
    monkeypatch.setattr(small.hosts, "ask", asking)
    monkeypatch.setattr(live_migration, "is_cancelled", cancelled)
    with pytest.raises(Unwound):
        await execute_move(small, asked)
    assert messages.count(Verb.SEND_LIVE) == 1
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
    await execute_move(small, asked)
    assert not sending
    await assert_moved(small)


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
    await execute_move(small, asked)
    server = await assert_moved(small)
    assert server.host is not None
    assert server.host not in refused
    assert column[slots[refused[0]]] == 2 + counts
    assert column[slots[server.host]] == 0, "it took a guest"


def test_more_hosts_are_tried_than_for_a_boot() -> None:
    """Ten whose processors are others refuse in a moment."""
    assert hosts_tried(SAGAS["live_migrate/1"], 3) == HOSTS_TRIED_MAX > 3
    assert hosts_tried(SAGAS["live_migrate/1"], 50) == 50
    assert hosts_tried(SAGAS["boot/1"], 1) == 1


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
        await execute_move(small, asked)
    after = msgspec.structs.replace(await recorded(small), generation=0)
    assert (after.host, after.nics, after.vm_state) == (before.host, before.nics, before.vm_state)
    assert small.network.left_inactive() == set()
    assert small.hosts.guests == AT_SOURCE


async def live_migration_events(small: SmallRegion) -> list[str]:
    return [
        each.event.removeprefix("live_migration_")
        for each in await small.notifications()
        if each.event.startswith("live")
    ]


async def test_notifications_of_a_successful_and_a_failed_live_migration(small: SmallRegion, monkeypatch: Any) -> None:
    """Nova's words, of both hosts, in both formats."""
    await execute_and_collect(small, await live_migrating(small))
    there = ["pre.start", "pre.end", "post.start", "post_dest.start", "post_dest.end", "post.end"]
    assert await live_migration_events(small) == there
    older = [event_type(each) for each in await small.notifications() if each.event.startswith("live")]
    words = ["pre.start", "pre.end", "_post.start", "post.dest.start", "post.dest.end", "_post.end"]
    assert older == [f"compute.instance.live_migration.{word}" for word in words]
    by = {each.event: each.host for each in await small.notifications()}
    host = (await recorded(small)).host
    assert (by["live_migration_pre.start"], by["live_migration_post.start"]) == (host, SOURCE)
    asked = await live_migrating(small)
    silence(small, monkeypatch, began=False)
    with pytest.raises(Unwound):
        await execute_and_collect(small, asked)
    back = ["rollback.start", "rollback.end", "rollback_dest.start", "rollback_dest.end"]
    assert await live_migration_events(small) == ["pre.start", "pre.end", *back]


async def execute_and_collect(small: SmallRegion, asked: Any) -> None:
    saga = SAGAS["live_migrate/1"]
    paper = MemoryJournal(first_lines(saga), small.transact)
    await execute(
        saga, PROVED_OPERATION, asked, small.context, paper, clock=ManualClock(), notification_writer=small.on_commit
    )
