"""An agent that returns asks first, destroys outdated guests before it executes or reports, and starts only guests that were on."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.helpers.agent_host import CELL, HOST, SERVER, command_context, guest, place

from moorage.agent import agent, reporter
from moorage.bus import subjects
from moorage.bus.host_messages import AgentReturned, Heartbeat, HostReport, ReportWanted, ServersOfHost, ServerTurn
from moorage.bus.memory import MemoryBus
from moorage.bus.memory import TransportFaults as BusDials
from moorage.bus.messages import encode
from moorage.drivers.fault_injection import FaultSettings, VerbDial
from moorage.model.errors import HostFailed
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId
from moorage_testing.waiting import until

OTHER = ServerId("7f4b2c1e-0000-4000-8000-000000000002")


async def test_an_agent_reports_after_its_cell_answered(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await until(lambda: at.cell.reports() and at.cell.beats())
        told = at.cell.reports()[0]
        assert (told.host, told.level, told.guests) == (HOST.host, 3, {})
        assert told.inventory["VCPU"].allocation_ratio == 4.0
        assert told.physical_networks == ("physnet1",)
        await at.caller.start_guest(HOST, command_context(), guest())
        await until(lambda: any(beat.changed == {SERVER: PowerState.RUNNING} for beat in at.cell.beats()))
        await at.bus.publish(subjects.to_host(CELL, HOST.host), encode(ReportWanted()))
        await until(lambda: at.cell.reports()[-1].guests == {SERVER: PowerState.RUNNING})


async def test_an_agent_waits_for_the_cells_answer_before_anything(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await at.caller.start_guest(HOST, command_context(1), guest())
        await at.host.stop()
        await until(lambda: at.bus.quiet)  # type: ignore[attr-defined]
        at.cell.answers = False
        at.cell.heard.clear()
        at.host.begin()
        await at.host.start()
        waiting = asyncio.create_task(at.caller.power_off(HOST, command_context(2), SERVER))
        await until(lambda: len(at.cell.heard) >= 2)  # it asks, and asks again
        assert not [each for each in at.cell.heard if isinstance(each, Heartbeat | HostReport)]
        assert not waiting.done()
        assert await at.host.driver.guests() == {SERVER: PowerState.RUNNING}
        at.cell.answers = True
        assert await waiting is PowerState.SHUTDOWN


async def test_guests_that_moved_away_are_destroyed_before_reports_and_commands(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        for server in (SERVER, OTHER):
            await at.caller.start_guest(HOST, command_context(1), guest(server))
        await at.host.stop()
        at.cell.knows = {
            SERVER: ServerTurn(SERVER, FencingToken(2), here=False),
            OTHER: ServerTurn(OTHER, FencingToken(1)),
        }
        at.cell.heard.clear()
        at.host.dials = FaultSettings(
            verbs={"destroy_guest": VerbDial(fail_times=1)}
        )  # and it does not even go at once
        at.host.begin()
        await at.host.start()
        await until(at.cell.reports)
        assert at.cell.reports()[0].guests == {OTHER: PowerState.RUNNING}
        with pytest.raises(HostFailed) as refused:
            await at.caller.start_guest(HOST, command_context(1, 1), guest())
        assert refused.value.code == "turn_is_past"


async def test_only_guests_that_were_on_are_started(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        for server in (SERVER, OTHER):
            await at.caller.start_guest(HOST, command_context(1), guest(server))
        await at.caller.power_off(HOST, command_context(2), OTHER)
        at.host.driver.crash_host()
        at.cell.knows = {each: ServerTurn(each, None) for each in (SERVER, OTHER)}
        await at.host.restart()
        await until(lambda: at.host.driver.power_of(SERVER) is PowerState.RUNNING)
        assert await at.host.driver.guests() == {SERVER: PowerState.RUNNING, OTHER: PowerState.SHUTDOWN}


async def test_a_host_that_was_only_silent_gets_its_servers_without_a_request(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await at.caller.start_guest(HOST, command_context(1), guest())
        told = ServersOfHost("", (ServerTurn(SERVER, FencingToken(7), here=False),))
        await at.bus.publish(subjects.to_host(CELL, HOST.host), encode(told))
        await until(lambda: at.host.journal.turn_of(SERVER) == FencingToken(7))
        assert await at.host.driver.guests() == {}


async def test_a_host_that_was_cut_off_asks_its_cell(tmp_path: Path) -> None:
    bus = MemoryBus()
    async with place(bus, tmp_path) as at:
        await at.caller.start_guest(HOST, command_context(1), guest())
        bus.dials.cut = True
        lost = bus.lost
        await until(lambda: bus.lost > lost + 2)
        at.cell.knows = {SERVER: ServerTurn(SERVER, FencingToken(1, 1), here=False)}
        bus.dials.cut = False
        await until(lambda: at.host.driver.power_of(SERVER) is PowerState.NOSTATE)
        assert at.host.journal.turn_of(SERVER) in (FencingToken(1), FencingToken(1, 1))
        await until(lambda: at.host.journal.turn_of(SERVER) == FencingToken(1, 1))


async def test_an_answer_to_an_earlier_life_is_ignored(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await at.caller.start_guest(HOST, command_context(1), guest())
        at.cell.answers = False
        at.cell.heard.clear()
        await at.host.restart()
        await until(lambda: at.cell.heard)
        told = ServersOfHost("earlier", (ServerTurn(SERVER, gone=True),))
        await at.bus.publish(subjects.to_host(CELL, HOST.host), encode(told))
        at.cell.answers = True
        await at.host.agent.home.wait()
        assert await at.host.driver.guests() == {SERVER: PowerState.RUNNING}


async def test_running_guests_are_asked_about_before_remembered_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        for server in (SERVER, OTHER):
            await at.caller.start_guest(HOST, command_context(1), guest(server))
        await at.caller.destroy_guest(HOST, command_context(2), SERVER)
        monkeypatch.setattr(agent, "MAX_LISTED", 1)
        at.cell.heard.clear()
        await at.host.restart()
        await until(lambda: at.cell.heard)
        question = at.cell.heard[0]
        assert isinstance(question, AgentReturned)
        assert question.guests == (OTHER,)


async def test_an_agent_asks_which_tombstones_it_may_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is never restarted would remember the turn of every server it ever had."""
    monkeypatch.setattr(reporter, "TOMBSTONES_MAX", 1)
    monkeypatch.setattr(reporter, "TOMBSTONES_ASKED_MAX", 1)
    third = ServerId("7f4b2c1e-0000-4000-8000-000000000003")
    async with place(MemoryBus(), tmp_path) as at:
        for server in (SERVER, OTHER, third):
            await at.caller.start_guest(HOST, command_context(1), guest(server))
        for server in (SERVER, OTHER):
            await at.caller.destroy_guest(HOST, command_context(2), server)
        asked = {(SERVER,), (OTHER,)}
        await until(
            lambda: {each.guests for each in at.cell.heard if isinstance(each, AgentReturned) and each.home} == asked
        )
        at.cell.knows = {OTHER: ServerTurn(OTHER, here=False, gone=True)}
        await until(lambda: OTHER not in at.host.journal.turns())
        assert at.host.journal.turns().keys() == {SERVER, third}, "of the others nobody said that they are gone"


async def test_one_failure_of_the_driver_does_not_silence_its_host(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await until(lambda: at.cell.beats())
        broke, guests = 0, at.host.driver.guests

        async def breaks() -> Mapping[ServerId, PowerState]:
            nonlocal broke
            broke += 1
            if broke < 3:
                raise OSError("input/output error")
            return await guests()

        at.host.driver.guests = breaks  # type: ignore[method-assign]
        await until(lambda: broke >= 3)
        seen = len(at.cell.beats())
        await until(lambda: len(at.cell.beats()) > seen)


async def test_a_command_repeated_after_a_crash_is_executed_again(tmp_path: Path) -> None:
    """The turn is on the disk, the result is not: the repeat acts, and finds what is there."""
    dials = FaultSettings(verbs={"start_guest": VerbDial(fail_times=1, hang="after")})
    async with place(MemoryBus(), tmp_path, dials) as at:
        waiting = asyncio.create_task(at.caller.start_guest(HOST, command_context(1, patience_s=120), guest()))
        await until(lambda: at.host.driver.power_of(SERVER) is PowerState.RUNNING)
        at.host.dials = None
        await at.host.restart()
        assert await waiting is PowerState.RUNNING
        assert (await at.caller.console_output(HOST, SERVER, None)).count("Linux version") == 1


async def test_an_agent_returns_over_an_unreliable_bus(tmp_path: Path) -> None:
    async with place(MemoryBus(BusDials(drop=0.5, duplicate=0.3), seed=3), tmp_path) as at:
        await asyncio.wait_for(at.host.agent.home.wait(), 180)
        await until(at.cell.beats)
