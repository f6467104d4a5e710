"""The agent journal: on disk before it counts, with few syncs, and without rows of an earlier token."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest
from tests.helpers.agent_host import HOST, SERVER, command_context, guest, place

from moorage.agent.journal import LIVES_KEPT, AgentJournal, JournalFile
from moorage.agent.server_queues import MAX_WAITING, ServerQueues
from moorage.bus.command_messages import ResultKey
from moorage.bus.memory import MemoryBus
from moorage.drivers.fault_injection import FaultSettings, VerbDial
from moorage.model.errors import Internal
from moorage.model.fencing_token import FencingToken
from moorage.model.ids import ServerId
from moorage_testing.waiting import until


def on_disk(path: Path) -> list[tuple[str, int, int, int]]:
    database = sqlite3.connect(path)
    try:
        return database.execute("SELECT server, operation_seq, attempt, phase FROM turns").fetchall()
    finally:
        database.close()


async def test_the_fencing_token_is_on_disk_before_the_effect(tmp_path: Path) -> None:
    dials = FaultSettings(verbs={"start_guest": VerbDial(fail_times=1, hang="before")})
    async with place(MemoryBus(), tmp_path, dials) as at:
        doing = asyncio.create_task(at.caller.start_guest(HOST, command_context(4, 1), guest()))
        await until(lambda: at.host.driver.hanging("start_guest"))
        assert on_disk(tmp_path / "journal.db") == [(SERVER, 4, 1, 0)]
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)


async def test_results_of_an_earlier_token_are_dropped_also_after_a_restart(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "j.db")
    journal = AgentJournal(file, "n1")
    await journal.open()
    await journal.raise_turn(SERVER, FencingToken(1))
    await journal.keep(ResultKey(SERVER, FencingToken(1), "reboot"), b"old", running=True)
    assert journal.result_of(ResultKey(SERVER, FencingToken(1), "reboot")) == b"old"
    await journal.raise_turn(SERVER, FencingToken(2))
    file.close()
    again = AgentJournal(JournalFile(tmp_path / "j.db"), "n1")
    await again.open()
    assert again.turns() == {SERVER: FencingToken(2)}
    assert again.running() == {SERVER}
    for turn in (FencingToken(1), FencingToken(2)):
        assert again.result_of(ResultKey(SERVER, turn, "reboot")) is None
    again.file.close()


async def test_an_agent_knows_which_agents_it_replaces(tmp_path: Path) -> None:
    """The last ones on this disk and of its own host; of a journal that an earlier release wrote nobody knows it."""
    file = JournalFile(tmp_path / "j.db")
    journal, other = AgentJournal(file, "n1"), AgentJournal(file, "n2")
    await journal.open()
    await other.open()
    assert journal.earlier_lives == ()
    await journal.raise_turn(SERVER, FencingToken(1))
    await journal.open()
    assert journal.earlier_lives is None
    await other.begin_life("another host's")
    for number in range(LIVES_KEPT + 5):
        await journal.begin_life(f"life {number}")
    file.close()
    again = AgentJournal(JournalFile(tmp_path / "j.db"), "n1")
    await again.open()
    assert again.earlier_lives == tuple(f"life {number}" for number in range(LIVES_KEPT + 4, 4, -1))
    kept = again.file.read("SELECT count(*) FROM lives", ())
    assert kept == [(LIVES_KEPT + 1,)]
    again.file.close()


async def test_hosts_share_the_file_and_the_syncs_but_not_the_servers(tmp_path: Path) -> None:
    file = JournalFile(tmp_path / "j.db")
    hosts = [AgentJournal(file, f"n{each}") for each in range(50)]
    for journal in hosts:
        await journal.open()
    await asyncio.gather(
        *(journal.raise_turn(ServerId(f"s{place}"), FencingToken(1)) for place, journal in enumerate(hosts))
    )
    assert file.commits < 25
    file.close()
    assert len(on_disk(tmp_path / "j.db")) == 50
    again = AgentJournal(JournalFile(tmp_path / "j.db"), "n7")
    await again.open()
    assert again.turns() == {ServerId("s7"): FencingToken(1)}
    again.file.close()


async def test_acknowledged_and_removed_rows_are_written_with_the_next_write(tmp_path: Path) -> None:
    journal = AgentJournal(JournalFile(tmp_path / "j.db"), "n1")
    await journal.open()
    key = ResultKey(SERVER, FencingToken(1), "x")
    await journal.raise_turn(SERVER, FencingToken(1))
    await journal.keep(key, b"r", running=None)
    assert journal.untaken(10) == (key,)
    before = journal.file.commits
    journal.taken([key, key])
    assert journal.untaken(10) == ()
    journal.forget([SERVER])
    assert journal.file.commits == before
    await journal.flush()
    await journal.flush()
    assert journal.file.commits == before + 1
    assert on_disk(tmp_path / "j.db") == []
    journal.file.close()


async def test_a_token_removed_during_its_write_is_written_again(tmp_path: Path) -> None:
    """Else its results would lie on the disk without it, and the next agent there could not begin."""
    journal, key = AgentJournal(JournalFile(tmp_path / "j.db"), "n1"), ResultKey(SERVER, FencingToken(2), "x")
    await journal.open()
    await journal.raise_turn(SERVER, FencingToken(1))
    raising = asyncio.create_task(journal.raise_turn(SERVER, FencingToken(2)))
    await asyncio.sleep(0)  # it is being written
    journal.forget([SERVER])
    await raising
    await journal.keep(key, b"r", running=True)
    journal.file.close()
    again = AgentJournal(JournalFile(tmp_path / "j.db"), "n1")
    await again.open()
    assert again.turns() == {SERVER: FencingToken(2)}
    assert again.result_of(key) == b"r"
    again.file.close()


async def test_results_without_their_token_are_dropped(tmp_path: Path) -> None:
    """An earlier release left them; they would answer the next turn's commands."""
    file, step = tmp_path / "j.db", "x"
    journal = AgentJournal(JournalFile(file), "n1")
    await journal.open()
    await journal.raise_turn(SERVER, FencingToken(1))
    await journal.keep(ResultKey(SERVER, FencingToken(1), step), b"r", running=True)
    journal.file.close()
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        database.execute("DELETE FROM turns")
    for _ in range(2):
        journal = AgentJournal(JournalFile(file), "n1")
        await journal.open()
        assert journal.result_of(ResultKey(SERVER, FencingToken(2), step)) is None
        await journal.raise_turn(SERVER, FencingToken(2))
        journal.file.close()


async def test_a_closed_journal_refuses(tmp_path: Path) -> None:
    journal = AgentJournal(JournalFile(tmp_path / "j.db"), "n1")
    await journal.open()
    journal.file.close()
    with pytest.raises(Internal):
        await journal.raise_turn(SERVER, FencingToken(1))


async def test_a_disk_failure_is_reported_and_nothing_is_assumed_written(tmp_path: Path) -> None:
    journal = AgentJournal(JournalFile(tmp_path / "j.db"), "n1")
    await journal.open()
    await journal.raise_turn(SERVER, FencingToken(1))
    other = sqlite3.connect(tmp_path / "j.db")
    other.execute("DROP TABLE turns")
    other.close()
    with pytest.raises(Internal):
        await journal.raise_turn(SERVER, FencingToken(2))
    assert journal.turn_of(SERVER) == FencingToken(1)
    journal.file.close()


async def test_a_queue_keeps_its_order_and_survives_a_failing_job() -> None:
    lanes, done = ServerQueues(at_once=4), []

    async def job(number: int) -> None:
        await asyncio.sleep(0)
        if number == 1:
            raise ValueError("broke")
        done.append(number)

    for number in range(4):
        assert lanes.submit(SERVER, lambda number=number: job(number))
    await until(lambda: done == [0, 2, 3])
    await lanes.stop()


async def test_lanes_are_bounded() -> None:
    lanes, gate = ServerQueues(at_once=2), asyncio.Event()
    inside = 0

    async def job() -> None:
        nonlocal inside
        inside += 1
        await gate.wait()

    taken = [lanes.submit(ServerId(str(each)), job) for each in range(MAX_WAITING + 10)]
    assert taken.count(False) == 10
    await until(lambda: inside == 2)
    await lanes.stop()
    assert inside == 2
