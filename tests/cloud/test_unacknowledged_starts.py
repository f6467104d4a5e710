"""At most one guest of a server runs: a guest whose start does not count yet is off while its host has no authority (RULES §23)."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from tests.helpers.agent_host import CELL, HOST, SERVER, Place, command_context, guest, place

from moorage.agent import held_guests
from moorage.agent.agent import Agent
from moorage.agent.journal import AgentJournal, JournalFile
from moorage.agent.legacy_ports import MAKES_PORTS, Plumbing
from moorage.agent.options import AgentOptions
from moorage.bus import subjects
from moorage.bus.command_messages import Command, ResultKey, ResultTaken
from moorage.bus.guest_payloads import StartGuest
from moorage.bus.host_messages import AgentReturned, ServerTurn
from moorage.bus.memory import MemoryBus
from moorage.bus.messages import encode, pack
from moorage.bus.verbs import Verb
from moorage.drivers.fault_injection import FaultSettings, VerbDial
from moorage.model.errors import HostFailed
from moorage.model.fencing_token import UNDO, FencingToken
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.host_ports import PortOrder
from moorage.model.ids import ConductorId, OperationId, ServerId
from moorage_testing.waiting import until

OTHER = ServerId("7f4b2c1e-0000-4000-8000-000000000002")
LONG_S = 20.0
"""More than half of `host_silence_s`."""
ON, OFF = PowerState.RUNNING, PowerState.SHUTDOWN
KEY = ResultKey(SERVER, FencingToken(1), "start_guest")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_guests, "FIRST_ANSWER_S", 0.05)
    monkeypatch.setattr(held_guests, "AGAIN_S", 0.05)


def is_on(at: Place) -> bool:
    return at.host.driver.power_of(SERVER) is ON


def is_off(at: Place) -> bool:
    return at.host.driver.power_of(SERVER) is OFF


async def started(at: Place) -> None:
    await at.host.agent.home.wait()
    assert await at.caller.start_guest(HOST, command_context(1), guest()) is ON


async def silence(at: Place) -> None:
    """The cell is not heard, and the authority ends."""
    at.cell.answers = False
    at.host.clock.suspended_s += LONG_S
    await until(lambda: not at.host.agent.home.is_set())


async def test_a_guest_is_off_until_the_cell_says_it_belongs_here(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await started(at)
        await silence(at)
        await until(lambda: is_off(at))
        at.cell.knows = {SERVER: ServerTurn(SERVER)}
        at.cell.answers = True
        await until(lambda: is_on(at))
        assert at.host.journal.unacknowledged() == {SERVER}, "its boot may not be over"


async def test_a_guest_that_belongs_elsewhere_is_destroyed(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await started(at)
        await silence(at)
        await until(lambda: is_off(at))
        at.cell.knows = {SERVER: ServerTurn(SERVER, FencingToken(1, 1, UNDO), here=False)}
        at.cell.answers = True
        await until(lambda: at.host.driver.power_of(SERVER) is PowerState.NOSTATE)
        await until(lambda: not at.host.journal.unacknowledged())


async def test_a_start_that_counts_runs_on(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await started(at)
        at.caller.start_counts("another host", SERVER, 1)
        await at.caller.start_guest(HOST, command_context(1, step="start_guest"), guest())  # as an adopter asks
        at.caller.start_counts(HOST.host, SERVER, 1)
        await until(lambda: not at.host.journal.unacknowledged())
        await silence(at)
        at.cell.heard.clear()
        await until(lambda: len([each for each in at.cell.heard if isinstance(each, AgentReturned)]) >= 2)
        assert is_on(at)


async def test_an_acknowledged_start_is_on_disk_at_once(tmp_path: Path) -> None:
    """An agent that is killed afterwards, and whose cell answers late, must not switch it off."""
    async with place(MemoryBus(), tmp_path) as at:
        await at.host.agent.home.wait()
        context = command_context(1, step="start_guest")
        assert await at.caller.start_guest(HOST, context, guest()) is ON
        assert starts_on_disk(tmp_path) == 1
        await at.host.agent._on_message("", encode(ResultTaken((KEY,))))
        assert starts_on_disk(tmp_path) == 0


def starts_on_disk(directory: Path) -> int:
    database = sqlite3.connect(directory / "journal.db")
    try:
        return int(database.execute("SELECT count(*) FROM starts").fetchone()[0])
    finally:
        database.close()


async def test_the_acknowledgement_is_sent_with_a_command(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await started(at)
        at.cell.heard.clear()
        at.caller.start_counts(HOST.host, SERVER, 1)
        await at.caller.start_guest(HOST, command_context(1), guest(OTHER))
        assert at.host.journal.unacknowledged() == {OTHER}


async def test_a_later_operation_acknowledges_the_start(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await started(at)
        await at.caller.reboot(HOST, command_context(2), SERVER, hard=True)
        await silence(at)
        await until(lambda: bool(at.cell.beats()))
        assert at.host.journal.unacknowledged() == set()
        assert is_on(at)


async def test_the_cell_is_asked_about_an_unacknowledged_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose boot was told by a conductor that died right after it."""
    monkeypatch.setattr(held_guests, "OVERDUE_S", 0.2)
    async with place(MemoryBus(), tmp_path) as at:
        await started(at)
        at.cell.heard.clear()
        await until(lambda: any(isinstance(each, AgentReturned) for each in at.cell.heard))
        assert at.host.journal.unacknowledged() == {SERVER}, "an older cell does not say"
        at.cell.knows = {SERVER: ServerTurn(SERVER, over=0)}
        at.cell.heard.clear()
        await until(lambda: any(isinstance(each, AgentReturned) for each in at.cell.heard))
        assert at.host.journal.unacknowledged() == {SERVER}, "its boot is not over"
        at.cell.knows = {SERVER: ServerTurn(SERVER, over=1)}
        await until(lambda: not at.host.journal.unacknowledged())
        assert is_on(at)


async def test_a_repeated_start_of_an_attempt_does_not_count_either(tmp_path: Path) -> None:
    """As a move's: its guest is taken, off, by a command of the same turn."""
    bus = MemoryBus()
    async with place(bus, tmp_path) as at:
        await started(at)
        at.cell.knows = {SERVER: ServerTurn(SERVER, over=1)}
        await at.caller.power_off(HOST, command_context(2, step="take"), SERVER)
        assert await at.caller.start_guest(HOST, command_context(2, step="start"), guest()) is ON
        assert at.host.journal.unacknowledged() == {SERVER}
        await at.host.restart()
        assert at.host.journal.unacknowledged() == {SERVER}, "it is on the disk"
        await until(lambda: is_on(at))
        bus.dials.cut = True
        at.host.clock.suspended_s += LONG_S
        await until(lambda: is_off(at))


async def test_a_repeated_start_of_a_guest_that_counts_counts(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await started(at)
        at.cell.knows = {SERVER: ServerTurn(SERVER, over=1)}
        at.caller.start_counts(HOST.host, SERVER, 1)
        await until(lambda: not at.host.journal.unacknowledged())
        await at.caller.start_guest(HOST, command_context(1, step="again"), guest())
        assert not at.host.journal.unacknowledged()


async def test_a_repeated_command_starts_the_guest_again(tmp_path: Path) -> None:
    bus = MemoryBus()
    async with place(bus, tmp_path) as at:
        await at.host.agent.home.wait()
        at.host.driver.turn(FaultSettings(verbs={"start_guest": VerbDial(delay_s=1.0)}))
        starting = asyncio.create_task(at.caller.start_guest(HOST, command_context(1, patience_s=180.0), guest()))
        await until(lambda: at.host.agent.is_doing(SERVER))
        bus.dials.cut = True
        await until(lambda: is_on(at))
        at.host.clock.suspended_s += LONG_S
        await until(lambda: is_off(at))
        assert not starting.done()
        bus.dials.cut = False
        assert await starting is ON, "the cell says nothing of it, and has nothing against it"
        assert is_on(at)


async def test_a_start_that_ends_right_after_a_pause_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine stood still while the guest was being started; nobody but the start itself has noticed that yet."""
    async with place(MemoryBus(), tmp_path) as at:
        await at.host.agent.home.wait()
        start, paused = at.host.driver.start_guest, asyncio.Event()

        async def start_and_stand_still(wanted: GuestSpec) -> PowerState:
            state = await start(wanted)
            if not paused.is_set():
                paused.set()
                at.cell.answers = False
                at.host.clock.suspended_s += LONG_S
            return state

        monkeypatch.setattr(at.host.driver, "start_guest", start_and_stand_still)
        starting = asyncio.create_task(at.caller.start_guest(HOST, command_context(1, patience_s=180.0), guest()))
        await paused.wait()
        await until(lambda: is_off(at))
        assert not starting.done()
        at.cell.answers = True
        assert await starting is ON, "it was asked again, and the cell has nothing against it"


async def test_a_failed_power_off_is_retried(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path, FaultSettings(verbs={"power_off": VerbDial(fail_times=3)})) as at:
        await started(at)
        await silence(at)
        await until(lambda: is_off(at))


async def test_a_start_that_failed_after_its_work_does_not_count(tmp_path: Path) -> None:
    """Its boot goes on elsewhere; if this host falls silent before it is told to destroy, the guest must not stay."""
    async with place(
        MemoryBus(), tmp_path, FaultSettings(verbs={"start_guest": VerbDial(fail_times=1, fail_when="after")})
    ) as at:
        await at.host.agent.home.wait()
        with pytest.raises(HostFailed):
            await at.caller.start_guest(HOST, command_context(1), guest())
        assert is_on(at)
        await at.bus.publish(subjects.to_host(CELL, HOST.host), encode(ResultTaken((KEY,))))
        await until(lambda: not at.host.journal.untaken(1))
        await silence(at)
        await until(lambda: is_off(at))


async def test_a_restarted_agent_remembers_unacknowledged_starts(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await started(at)
        at.cell.answers = False
        await at.host.restart()
        assert at.host.journal.unacknowledged() == {SERVER}
        await until(lambda: is_off(at))
        await at.host.restart()
        at.cell.knows = {SERVER: ServerTurn(SERVER, over=1)}
        at.cell.answers = True
        await until(lambda: is_on(at))
        await until(lambda: not at.host.journal.unacknowledged())
        await at.host.restart()
        assert at.host.journal.unacknowledged() == set()


async def test_a_restarted_agent_with_a_reachable_cell_switches_nothing_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_guests, "FIRST_ANSWER_S", 180.0)
    async with place(MemoryBus(), tmp_path) as at:
        await started(at)
        at.cell.knows = {SERVER: ServerTurn(SERVER)}
        await at.host.restart()
        await at.host.agent.home.wait()
        assert "#2" not in await at.caller.console_output(HOST, SERVER, None)


async def test_a_journal_of_the_last_release_counts_all_starts(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await started(at)
        at.cell.answers = False
        await at.host.stop()
        database = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
        database.execute("DROP TABLE starts")
        database.close()
        at.cell.heard.clear()
        at.host.begin()
        await at.host.start()
        await until(lambda: len([each for each in at.cell.heard if isinstance(each, AgentReturned)]) >= 2)
        assert at.host.journal.unacknowledged() == set()
        assert is_on(at)


async def test_a_token_raised_by_an_older_release_is_no_start(tmp_path: Path) -> None:
    """The agent was brought back to the last release for a while, and forward again."""
    journal = AgentJournal(JournalFile(tmp_path / "j.db"), "n1")
    await journal.open()
    await journal.raise_turn(SERVER, FencingToken(1), starts=True)
    assert journal.unacknowledged() == {SERVER}
    journal.file.close()
    database = sqlite3.connect(tmp_path / "j.db", isolation_level=None)
    database.execute("UPDATE turns SET operation_seq=2")
    database.close()
    again = AgentJournal(JournalFile(tmp_path / "j.db"), "n1")
    await again.open()
    assert again.unacknowledged() == set()
    again.file.close()


async def test_a_command_the_cell_did_not_name_is_dropped_after_an_absence(tmp_path: Path) -> None:
    """It may have lain in a buffer while its boot went on elsewhere; whoever still wants it sends it again."""
    async with place(MemoryBus(), tmp_path) as at:
        await at.host.agent.home.wait()
        await silence(at)
        once = Command(
            SERVER, FencingToken(1), "start_guest", Verb.START_GUEST, OperationId("o"), 0.0, ConductorId("k"), pack(StartGuest(guest())),
            left_s=60.0,
        )  # fmt: skip
        await at.bus.publish(subjects.to_host(CELL, HOST.host), encode(once))
        at.cell.heard.clear()
        await until(lambda: any(SERVER in each.guests for each in at.cell.heard if isinstance(each, AgentReturned)))
        at.cell.answers = True
        await at.host.agent.home.wait()
        await until(lambda: not at.host.agent.is_waiting(SERVER))
        assert await at.host.driver.guests() == {}
        await at.bus.publish(subjects.to_host(CELL, HOST.host), encode(once))
        await until(lambda: is_on(at))


async def test_a_host_that_makes_ports_checks_its_authority_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine stood still while the ports were bound: nothing is started, not even for a moment."""
    async with place(MemoryBus(), tmp_path) as at:
        await at.host.agent.home.wait()
        await at.host.stop()
        at.host.begin()
        plumbing = Plumbing(HOST.host, MAKES_PORTS, None)  # type: ignore[arg-type]
        host = at.host
        host.agent = Agent(
            HOST.host,
            CELL,
            at.bus,
            host.driver,
            host.journal,
            host.clock,
            AgentOptions(plumbing=plumbing, beat_s=0.05),
        )
        begun = 0

        async def plumb(wanted: GuestSpec, order: PortOrder) -> GuestSpec:
            nonlocal begun
            begun += 1
            if begun == 1:
                at.cell.answers = False
                host.clock.suspended_s += LONG_S
            return wanted

        starts: list[bool] = []
        start = host.driver.start_guest

        async def counted(wanted: GuestSpec) -> PowerState:
            starts.append(at.cell.answers)
            return await start(wanted)

        monkeypatch.setattr(plumbing, "plumb", plumb)
        monkeypatch.setattr(host.driver, "start_guest", counted)
        await host.start()
        await host.agent.home.wait()
        order = PortOrder(how="make", project="p", availability_zone="nova")
        building = asyncio.create_task(
            at.caller.build_guest(HOST, command_context(1, patience_s=180.0), guest(), order)
        )
        at.cell.heard.clear()
        await until(lambda: begun == 1 and not host.agent.home.is_set())
        await until(lambda: any(isinstance(each, AgentReturned) for each in at.cell.heard))
        assert starts == []
        at.cell.answers = True
        assert (await building).power_state is ON
        assert starts == [True]
