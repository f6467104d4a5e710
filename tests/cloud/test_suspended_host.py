"""A host that was suspended or unreachable starts and resumes nothing before its cell has answered (RULES §23)."""

import asyncio
from pathlib import Path

import pytest
from tests.helpers.agent_host import CELL, HOST, SERVER, Place, command_context, guest, place

from moorage.agent import agent as agent_agent
from moorage.bus import legacy_subjects, subjects
from moorage.bus.command_messages import Command
from moorage.bus.guest_payloads import StartGuest
from moorage.bus.host_messages import (
    AgentRefused,
    AgentReturned,
    Heartbeat,
    HostReport,
    ReportWanted,
    ServersOfHost,
    ServerTurn,
)
from moorage.bus.memory import MemoryBus
from moorage.bus.messages import encode, pack
from moorage.bus.verbs import Verb
from moorage.drivers.fault_injection import FaultSettings, VerbDial
from moorage.model.errors import HostFailed
from moorage.model.fencing_token import UNDO, FencingToken
from moorage.model.guest import PowerState
from moorage.model.ids import ConductorId, OperationId, ServerId
from moorage_testing.waiting import until

OTHER = ServerId("7f4b2c1e-0000-4000-8000-000000000002")
LONG_S = 20.0
"""More than half of `host_silence_s`."""


def questions(at: Place) -> list[AgentReturned]:
    return [each for each in at.cell.heard if isinstance(each, AgentReturned)]


async def test_a_command_received_during_a_suspension_waits_for_the_cell(tmp_path: Path) -> None:
    """The boot went on elsewhere: what is left of it in the host's buffers starts nothing."""
    async with place(MemoryBus(), tmp_path) as at:
        await at.host.agent.home.wait()
        at.cell.answers = False
        at.cell.heard.clear()
        at.host.clock.suspended_s += LONG_S
        starting = asyncio.create_task(at.caller.start_guest(HOST, command_context(1, 1), guest()))
        await until(lambda: questions(at))
        assert await at.host.driver.guests() == {}
        at.cell.knows = {SERVER: ServerTurn(SERVER, FencingToken(1, 1, UNDO), here=False)}
        at.cell.answers = True
        with pytest.raises(HostFailed) as refused:
            await starting
        assert refused.value.code == "turn_is_past"
        assert await at.host.driver.guests() == {}


async def test_a_command_for_a_server_deleted_during_a_suspension_is_refused(tmp_path: Path) -> None:
    """Its turn is forgotten with it, and what is left of its boot must not make it again."""
    async with place(MemoryBus(), tmp_path) as at:
        await at.caller.start_guest(HOST, command_context(1, 1), guest())
        at.cell.answers = False
        at.cell.heard.clear()
        at.host.clock.suspended_s += LONG_S
        starting = asyncio.create_task(at.caller.start_guest(HOST, command_context(1, 1, step="again"), guest()))
        await until(lambda: questions(at))
        at.cell.knows = {SERVER: ServerTurn(SERVER, here=False, gone=True)}
        at.cell.answers = True
        with pytest.raises(HostFailed) as refused:
            await starting
        assert refused.value.code == "turn_is_past"
        assert await at.host.driver.guests() == {}


async def test_a_start_interrupted_by_a_suspension_is_asked_about_first(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await at.host.agent.home.wait()
        at.host.driver.turn(FaultSettings(verbs={"start_guest": VerbDial(fail_times=1, hang="before")}))
        starting = asyncio.create_task(at.caller.start_guest(HOST, command_context(1, patience_s=180.0), guest()))
        await until(lambda: at.host.driver.hanging("start_guest") == 1)
        at.cell.answers = False
        at.host.clock.suspended_s += LONG_S
        await until(lambda: at.host.driver.hanging("start_guest") == 0)
        assert not starting.done()
        assert await at.host.driver.guests() == {}
        at.cell.answers = True
        assert await starting is PowerState.RUNNING, "it was sent again, and the cell has nothing against it"


async def test_guests_and_heartbeats_continue_while_the_cell_does_not_answer(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await at.caller.start_guest(HOST, command_context(1), guest())
        at.cell.answers = False
        at.cell.heard.clear()
        at.host.clock.suspended_s += LONG_S
        await until(lambda: len(questions(at)) >= 2)
        seen = len(at.cell.beats())
        await until(lambda: len(at.cell.beats()) > seen)
        assert await at.host.driver.guests() == {SERVER: PowerState.RUNNING}


async def test_a_host_after_a_long_bus_cut_asks_first(tmp_path: Path) -> None:
    bus = MemoryBus()
    async with place(bus, tmp_path) as at:
        await at.caller.start_guest(HOST, command_context(1), guest())
        bus.dials.cut = True
        at.host.clock.suspended_s += LONG_S
        await until(lambda: not at.host.agent.home.is_set())
        assert await at.host.driver.guests() == {SERVER: PowerState.RUNNING}, "an outage stops no guest"
        at.cell.knows = {SERVER: ServerTurn(SERVER, FencingToken(2), here=False)}
        bus.dials.cut = False
        await until(lambda: at.host.driver.power_of(SERVER) is PowerState.NOSTATE)
        await asyncio.wait_for(at.host.agent.home.wait(), 180)


async def test_an_answer_from_before_the_pause_is_not_enough(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await at.host.agent.home.wait()
        early = questions(at)[-1]
        at.cell.answers = False
        at.host.clock.suspended_s += LONG_S
        await until(lambda: not at.host.agent.home.is_set())
        at.cell.heard.clear()
        await until(lambda: questions(at))
        await at.bus.publish(subjects.to_host(CELL, HOST.host), encode(ServersOfHost(early.boot)))
        at.cell.heard.clear()
        await until(lambda: questions(at))
        assert not at.host.agent.home.is_set()
        assert {each.agent for each in questions(at)} == {at.host.agent.boot}


async def test_a_guest_that_cannot_be_destroyed_delays_no_other(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        for server in (SERVER, OTHER):
            await at.caller.start_guest(HOST, command_context(1), guest(server))
        await at.host.stop()
        at.cell.knows = {
            SERVER: ServerTurn(SERVER, FencingToken(2), here=False),
            OTHER: ServerTurn(OTHER, FencingToken(1)),
        }
        at.cell.heard.clear()
        at.host.dials = FaultSettings(verbs={"destroy_guest": VerbDial(fail_times=1_000)})
        at.host.begin()
        await at.host.start()
        await until(lambda: at.cell.reports() and at.cell.beats())
        assert at.cell.reports()[0].guests.keys() == {SERVER, OTHER}, "it is shown as long as it is there"
        assert await at.caller.power_off(HOST, command_context(2), OTHER) is PowerState.SHUTDOWN
        with pytest.raises(HostFailed) as refused:
            await at.caller.start_guest(HOST, command_context(3), guest())
        assert refused.value.code == "guest_in_the_way"
        at.host.driver.turn(FaultSettings())
        await until(lambda: at.host.driver.power_of(SERVER) is PowerState.NOSTATE)
        assert await at.caller.start_guest(HOST, command_context(3, step="again"), guest()) is PowerState.RUNNING


@pytest.mark.parametrize("wrong_s", [-7200.0, 300.0])
async def test_clocks_that_differ_or_jump_do_no_harm(tmp_path: Path, wrong_s: float) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        at.host.clock.wrong_s = wrong_s
        assert await at.caller.start_guest(HOST, command_context(1), guest()) is PowerState.RUNNING
        at.host.clock.wrong_s = -wrong_s
        assert await at.caller.power_off(HOST, command_context(2), SERVER) is PowerState.SHUTDOWN


async def test_a_command_of_an_earlier_release_has_an_absolute_deadline(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await at.bus.subscribe(legacy_subjects.results_for(ConductorId("old")), at.cell.on_message)
        await at.host.agent.home.wait()
        for turn, deadline, refused in ((1, at.host.clock.now() - 60, True), (2, at.host.clock.now() + 60, False)):
            told = Command(
                SERVER,
                FencingToken(turn),
                "start_guest",
                Verb.START_GUEST,
                OperationId("o"),
                deadline,
                ConductorId("old"),
                pack(StartGuest(guest())),
            )
            await at.bus.publish(subjects.to_host(CELL, HOST.host), encode(told))
            await until(lambda turn=turn: any(each.turn == FencingToken(turn) for each in at.cell.results()))  # type: ignore[misc]
            assert (at.cell.results()[-1].code == "too_late") is refused


async def test_a_refused_agent_is_silent_until_it_is_accepted(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await at.caller.start_guest(HOST, command_context(1), guest())
        at.cell.answers = False
        await at.bus.publish(subjects.to_host(CELL, HOST.host), encode(AgentRefused(HOST.host, "somebody-else")))
        assert await at.caller.power_off(HOST, command_context(2), SERVER) is PowerState.SHUTDOWN, "that was another's"
        refusal = AgentRefused(HOST.host, at.host.agent.boot, "another one speaks for this host")
        await at.bus.publish(subjects.to_host(CELL, HOST.host), encode(refusal))
        await until(lambda: not at.host.agent.home.is_set())
        at.cell.heard.clear()
        await at.bus.publish(subjects.to_host(CELL, HOST.host), encode(ReportWanted()))
        waiting = asyncio.create_task(at.caller.power_on(HOST, command_context(3, patience_s=180.0), SERVER))
        await until(lambda: questions(at))
        assert not [each for each in at.cell.heard if isinstance(each, Heartbeat | HostReport)]
        assert at.host.driver.power_of(SERVER) is PowerState.SHUTDOWN
        at.cell.answers = True
        assert await waiting is PowerState.RUNNING


async def test_a_host_that_resumes_receives_before_it_asks(tmp_path: Path) -> None:
    """Conductors count its silence by beats: its boots would go on elsewhere while its cell says that they belong here."""
    async with place(MemoryBus(), tmp_path) as at:
        await at.host.agent.home.wait()
        at.host.agent._beat_s = 60.0  # the next one would be late
        seen = len(at.cell.beats())
        await until(lambda: len(at.cell.beats()) > seen)
        at.cell.heard.clear()
        at.host.clock.suspended_s += LONG_S
        at.host.agent._leave_home("it stood still")
        await until(lambda: questions(at))
        assert isinstance(at.cell.heard[0], Heartbeat)


async def test_a_slow_driver_call_is_given_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given up twice, what waits behind it would be forgotten, and yet count as waiting for as long as the agent lives."""
    monkeypatch.setattr(agent_agent, "GIVEN_UP_WITHIN_S", 0.01)
    async with place(MemoryBus(), tmp_path) as at:
        await at.caller.start_guest(HOST, command_context(1), guest())
        agent, stops, goes_on = at.host.agent, asyncio.Event(), asyncio.Event()

        async def slow(server: ServerId, graceful_s: float) -> PowerState:
            stops.set()
            try:
                await asyncio.Event().wait()
            finally:
                await goes_on.wait()  # it cleans up
            raise AssertionError

        monkeypatch.setattr(at.host.driver, "power_off", slow)
        first = asyncio.create_task(at.caller.power_off(HOST, command_context(2, patience_s=180.0), SERVER))
        await stops.wait()
        second = asyncio.create_task(at.caller.reboot(HOST, command_context(3, patience_s=180.0), SERVER, hard=True))
        await until(lambda: sum(each.server == SERVER for each in agent._queued) == 2)
        first.cancel()  # nobody sends it again
        await asyncio.gather(first, return_exceptions=True)
        for _ in range(2):
            agent._leave_home("it was unreachable")
            await until(agent.home.is_set)
        goes_on.set()
        assert await second is PowerState.RUNNING


async def test_a_stopping_agent_announces_it(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await at.host.agent.home.wait()
        boot = at.host.agent.boot
        await at.host.stop()
        await until(lambda: at.cell.left)
        assert at.cell.left[0].boot == boot


async def test_an_unreadable_record_does_not_block_others(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        for server in (SERVER, OTHER):
            await at.caller.start_guest(HOST, command_context(1), guest(server))
        await at.host.stop()
        (tmp_path / "guests" / f"{SERVER}.json").write_bytes(b'{"spec": {"server": "7f4b')
        at.cell.heard.clear()
        at.host.begin()
        await at.host.start()
        await until(at.cell.reports)
        assert at.cell.reports()[0].guests == {OTHER: PowerState.RUNNING}
        assert at.cell.reports()[0].set_aside == (f"{SERVER}.json",)
        assert (tmp_path / "set-aside" / f"{SERVER}.json").read_bytes().startswith(b'{"spec"')
