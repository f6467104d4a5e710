"""Simulated hosts and a guest that changes hosts while it runs: whichever process dies, the guest is on one of the two."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.agent import guest_reconciliation
from moorage.agent.guest_reconciliation import Settler
from moorage.agent.journal import AgentJournal, JournalFile
from moorage.agent.move_commands import land_live
from moorage.agent.server_queues import ServerQueues
from moorage.bus.command_messages import Command, ResultKey
from moorage.bus.guest_payloads import GuestNow
from moorage.bus.host_messages import ServerTurn
from moorage.bus.move_payloads import TakeGuest
from moorage.bus.verbs import Verb
from moorage.drivers.fault_injection import FaultSettings
from moorage.drivers.simulated import SimulatedDriver
from moorage.model.clock import SystemClock
from moorage.model.errors import HostFailed
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.ids import ConductorId, OperationId, ServerId
from moorage.model.live_migration import LiveNow, LiveState

ONE = ServerId("11111111-0000-4000-8000-000000000000")
SPEC = GuestSpec(ONE, "web", 1, 512, 1)
SLOW = FaultSettings(live_mib_per_s=1.0)
PATIENCE_S = 180.0


async def host(directory: Path, dials: FaultSettings | None = None) -> SimulatedDriver:
    driver = SimulatedDriver(directory, SystemClock(), dials)
    await driver.start()
    return driver


async def pair(tmp_path: Path, dials: FaultSettings | None = None) -> tuple[SimulatedDriver, SimulatedDriver]:
    """The first runs the guest, and sends it; a place waits at the second."""
    first, second = await host(tmp_path / "first", dials), await host(tmp_path / "second")
    await first.start_guest(SPEC)
    target = await second.live_target(SPEC, await first.live_source(ONE), None)
    for _ in range(2):
        assert await second.prepare_live(SPEC, "move") is PowerState.PAUSED
        await first.send_live(ONE, target, "move")
    return first, second


async def when(driver: SimulatedDriver, good: Callable[[LiveNow], bool]) -> LiveNow:
    deadline = time.monotonic() + PATIENCE_S
    while not good(now := await driver.live_status(ONE, "move")):
        assert time.monotonic() < deadline, now
        await asyncio.sleep(0.01)
    return now


async def test_a_guest_continues_on_the_other_host_with_its_data(tmp_path: Path) -> None:
    first, second = await pair(tmp_path)
    now = await when(first, lambda now: now.state is LiveState.SWITCHED)
    assert now.progress is not None
    assert (now.progress.memory_remaining, now.progress.disk_remaining) == (0, 0)
    assert (await first.guests(), await second.guests()) == ({}, {ONE: PowerState.RUNNING})
    assert (await second.live_status(ONE, "move")).state is LiveState.ARRIVED
    assert await second.land_live(SPEC, "move") is PowerState.RUNNING
    assert second._of(ONE).boots == 1
    with pytest.raises(HostFailed, match="no such guest"):
        await first.power_on(ONE)
    with pytest.raises(HostFailed, match="has arrived"):
        await second.drop_live(ONE, "move")
    assert (await (await host(tmp_path / "first")).live_status(ONE, "move")).state is LiveState.SWITCHED
    await second.destroy_guest(ONE)  # it is lost there: what it left is a guest again where it was
    disk = first._disks.file_of(ONE)
    disk.parent.mkdir(exist_ok=True)
    disk.write_bytes(b"as it was then")
    with pytest.raises(HostFailed, match="no such guest"):
        await first.return_guest(ONE, "another move")
    for _ in range(2):
        assert await first.return_guest(ONE, "move") is PowerState.SHUTDOWN
        assert await first.arrivals() == set()
        first = await host(tmp_path / "first")
    assert await first.start_guest(SPEC) is PowerState.RUNNING
    assert disk.read_bytes() == b"as it was then"
    await first.destroy_guest(ONE)
    assert (await first.live_status(ONE, "move")).state is LiveState.NONE


@pytest.mark.parametrize(("was", "then"), [(True, PowerState.RUNNING), (False, PowerState.SHUTDOWN)])
async def test_a_host_that_loses_its_power_before_the_guest_has_landed(
    tmp_path: Path, was: bool, then: PowerState
) -> None:
    """Its journal does not say yet that the guest was on: it is started as it lands, unless it had been paused."""
    first, second = await pair(tmp_path)
    if not was:
        await first.pause(ONE)
    await when(first, lambda now: now.state is LiveState.SWITCHED)
    second.crash_host()
    assert await second.guests() == {ONE: PowerState.SHUTDOWN}
    order = TakeGuest(msgspec.structs.replace(SPEC, power_on=was), "move")
    command = Command(
        ONE, FencingToken(1), "land_guest", Verb.LAND_LIVE, OperationId("op"), 0.0, ConductorId("c"),
        msgspec.Raw(msgspec.json.encode(order)),
    )  # fmt: skip
    for _ in range(2):
        assert await land_live(second, command) == (GuestNow(then), was)
    assert await second.guests() == {ONE: then}


async def test_an_abort_or_a_missing_destination_leaves_the_guest_at_its_source(tmp_path: Path) -> None:
    first, second = await pair(tmp_path, SLOW)
    await first.abort_live(ONE, "move")
    assert (await first.live_status(ONE, "move")).state is LiveState.ABORTED
    await first.send_live(ONE, await second.move_target(), "move")
    assert (await first.live_status(ONE, "move")).state is LiveState.RUNNING
    disk = first._disks.file_of(ONE)
    disk.parent.mkdir(exist_ok=True)
    disk.write_bytes(b"its disk")
    (tmp_path / "second" / "arriving" / f"{ONE}.move.disk").write_bytes(b"a part of it")
    for _ in range(2):
        assert await second.drop_live(ONE, "move") is PowerState.NOSTATE
        (tmp_path / "second" / "arriving" / f"{ONE}.move.disk").write_bytes(b"what came after the place was lost")
    assert await second.drop_live(ONE, "move") is PowerState.NOSTATE
    assert os.listdir(tmp_path / "second" / "arriving") == []
    await first.force_live(ONE, "move", post_copy=False)
    failed = await when(first, lambda now: now.state is LiveState.FAILED)
    assert failed.why == "the other host does not wait for the guest"
    assert (await first.guests(), await second.guests()) == ({ONE: PowerState.RUNNING}, {})
    assert os.listdir(tmp_path / "second" / "arriving") == []
    await first.close()


async def test_a_cancelled_abort_is_not_answered(tmp_path: Path) -> None:
    """The host's authority ended meanwhile: its agent takes the command as never begun."""
    first, second = await pair(tmp_path, SLOW)
    transfer, lets_go = first._transfers[ONE], asyncio.Event()
    sending = transfer.task
    assert sending is not None

    async def takes_its_time() -> None:
        try:
            await sending
        finally:
            await lets_go.wait()

    transfer.task = asyncio.create_task(takes_its_time())
    await asyncio.sleep(0)
    aborting = asyncio.create_task(first.abort_live(ONE, "move"))
    await asyncio.sleep(0)
    aborting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await aborting
    lets_go.set()
    await asyncio.wait([transfer.task])
    await first.close()
    await second.close()


async def test_a_source_that_returns_cleans_up_its_leftovers(tmp_path: Path) -> None:
    """It fell silent after the switch: its cell says then that the guest is elsewhere, and the disk goes; what left is never started."""
    first, second = await pair(tmp_path)
    await when(first, lambda now: now.state is LiveState.SWITCHED)
    disk = first._disks.file_of(ONE)
    disk.parent.mkdir(exist_ok=True)
    disk.write_bytes(b"what it was")
    returned = await host(tmp_path / "first")
    assert (await returned.guests(), await returned.arrivals()) == ({}, {ONE})
    journal = AgentJournal(JournalFile(tmp_path / "journal"), "first")
    await journal.open()
    settler = Settler("first", returned, journal, SystemClock(), ServerQueues(1))
    turn = FencingToken(2, 1)
    await journal.raise_turn(ONE, turn)
    await journal.keep(ResultKey(ONE, turn, "start"), b"", True)
    assert await settler.settle([ServerTurn(ONE, turn, here=True, running=True)]) == ()
    assert disk.exists(), "its move is not over"
    await settler.settle([ServerTurn(ONE, FencingToken(2, 9), here=False)])
    assert not disk.exists()
    assert await returned.arrivals() == set()
    assert await second.guests() == {ONE: PowerState.RUNNING}
    await settler.stop()
    journal.file.close()


async def test_what_a_host_remembers_of_departed_servers_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_reconciliation, "OVER_KEPT_MAX", 2)
    driver, journal = await host(tmp_path / "first"), AgentJournal(JournalFile(tmp_path / "journal"), "first")
    await journal.open()
    settler = Settler("first", driver, journal, SystemClock(), ServerQueues(1))
    for server in ("a", "b", "a", "c"):
        await settler.settle([ServerTurn(ServerId(server), None, here=True, over=7)])
    assert [settler.is_over(ServerId(each), FencingToken(7)) for each in "abc"] == [True, False, True]
    await settler.stop()
    await driver.close()
    journal.file.close()


class Died(BaseException):
    """The process is gone: nothing after this is done."""


@pytest.mark.parametrize("dies_after", [False, True])
async def test_a_source_that_dies_at_the_switch(tmp_path: Path, monkeypatch: Any, dies_after: bool) -> None:
    """Just before the one rename the guest is the source's, just after it the destination's; a source that returns sees which."""
    first, second = await pair(tmp_path, SLOW)
    rename = os.rename

    def dying(old: Any, new: Any) -> None:
        if dies_after:
            rename(old, new)
        raise Died

    transfer = first._transfers[ONE]
    assert transfer.task is not None
    transfer.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await transfer.task
    guest = first._of(ONE)
    guest.leaving = str(tmp_path / "second"), "move"
    first._keep(guest)
    monkeypatch.setattr(os, "rename", dying)
    with pytest.raises(Died):
        first._switch(guest, PowerState.RUNNING, transfer)
    monkeypatch.undo()
    again = await host(tmp_path / "first")
    runs = [driver for driver in (again, second) if driver.power_of(ONE) is PowerState.RUNNING]
    assert runs == [second if dies_after else again]
    wanted = LiveState.SWITCHED if dies_after else LiveState.NONE
    assert (await again.live_status(ONE, "move")).state is wanted
    if not dies_after:
        assert (await second.live_status(ONE, "move")).state is LiveState.WAITING


@pytest.mark.parametrize("looked", [False, True])
async def test_a_killed_destination_keeps_the_arrived_guest(tmp_path: Path, looked: bool) -> None:
    first, second = await pair(tmp_path)
    await when(first, lambda now: now.state is LiveState.SWITCHED)
    if looked:
        assert second.power_of(ONE) is PowerState.RUNNING
    again = await host(tmp_path / "second")
    assert await again.guests() == {ONE: PowerState.RUNNING}
    assert again.silences(ONE) != ()


async def test_a_place_waits_over_a_restart(tmp_path: Path) -> None:
    first, _ = await pair(tmp_path, SLOW)
    again = await host(tmp_path / "second")
    assert (await again.live_status(ONE, "move")).state is LiveState.WAITING
    await first.force_live(ONE, "move", post_copy=True)
    await when(first, lambda now: now.state is LiveState.SWITCHED)
    assert await again.guests() == {ONE: PowerState.RUNNING}


async def test_an_agent_killed_during_the_switch_leaves_the_guest_unchanged(tmp_path: Path, monkeypatch: Any) -> None:
    first, _ = await pair(tmp_path, FaultSettings(live_mib_per_s=0.0, live_switch_s=3600.0))
    deadline = time.monotonic() + PATIENCE_S
    while (await first.guests())[ONE] is not PowerState.PAUSED:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    monkeypatch.setattr(first, "_keep", lambda guest: guest.power)  # it is dead: it writes no more
    again = await host(tmp_path / "first")
    assert await again.guests() == {ONE: PowerState.RUNNING}
    assert (await again.live_status(ONE, "move")).state is LiveState.NONE
    await first.abort_live(ONE, "move")


async def test_a_place_without_its_marker_gets_one_after_a_kill(tmp_path: Path) -> None:
    first, second = await host(tmp_path / "first"), await host(tmp_path / "second")
    await first.start_guest(SPEC)
    await second.prepare_live(SPEC, "move")
    for sign in (tmp_path / "second" / "arriving").glob("*.ready"):
        sign.unlink()
    second = await host(tmp_path / "second")
    await second.prepare_live(SPEC, "move")
    await first.send_live(ONE, await second.live_target(SPEC, await first.live_source(ONE), None), "move")
    await when(first, lambda now: now.state is not LiveState.RUNNING)
    assert (await first.guests(), await second.guests()) == ({}, {ONE: PowerState.RUNNING})
