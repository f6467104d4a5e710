"""What a host keeps through its own restart: the highest turn of each server, results that are not acknowledged (RULES §10), and
starts that do not count yet (RULES §23).

All hosts of a process share one SQLite file and one thread (a real host has its own; a cloud in one process has all its simulated
hosts in one file).  Writes that come while another is being synced share the next sync.  Reads are from memory.
"""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from moorage.bus.command_messages import ResultKey
from moorage.model.errors import Internal
from moorage.model.fencing_token import FencingToken
from moorage.model.ids import ServerId
from moorage.model.private_files import private_database

_log = logging.getLogger(__name__)

MAX_GROUP = 500
LIVES_KEPT = 16
CLOSE_S = 10.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS turns (
    host TEXT NOT NULL, server TEXT NOT NULL, operation_seq INTEGER NOT NULL, attempt INTEGER NOT NULL, phase INTEGER NOT NULL,
    running INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (host, server)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results (
    host TEXT NOT NULL, server TEXT NOT NULL, step TEXT NOT NULL, result BLOB NOT NULL,
    PRIMARY KEY (host, server, step)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS starts (
    host TEXT NOT NULL, server TEXT NOT NULL, operation_seq INTEGER NOT NULL, attempt INTEGER NOT NULL, phase INTEGER NOT NULL,
    step TEXT NOT NULL DEFAULT '', PRIMARY KEY (host, server)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lives (number INTEGER PRIMARY KEY, host TEXT NOT NULL, agent TEXT NOT NULL);
"""
"""`starts` is a table of its own with its own turn: a release that does not know it may write `turns` meanwhile; such a start is ignored."""

_RAISE = """
INSERT INTO turns (host, server, operation_seq, attempt, phase) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET operation_seq=excluded.operation_seq, attempt=excluded.attempt, phase=excluded.phase
"""
_DROP_RESULTS = "DELETE FROM results WHERE host=? AND server=?"
_KEEP = "INSERT OR REPLACE INTO results (host, server, step, result) VALUES (?, ?, ?, ?)"
_RUNNING = "UPDATE turns SET running=? WHERE host=? AND server=?"
_TAKEN = "DELETE FROM results WHERE host=? AND server=? AND step=?"
_FORGET = "DELETE FROM turns WHERE host=? AND server=?"
_BEGUN = """
INSERT OR REPLACE INTO starts (host, server, operation_seq, attempt, phase) VALUES (?, ?, ?, ?, ?)
"""
_ANSWERED = "UPDATE starts SET step=? WHERE host=? AND server=?"
_COUNTS = "DELETE FROM starts WHERE host=? AND server=?"
_LIVES = f"SELECT agent FROM lives WHERE host=? ORDER BY number DESC LIMIT {LIVES_KEPT}"
_LIVES_BEGUN = "INSERT INTO lives (host, agent) VALUES (?, ?)"
_LIVES_OVER = (
    "DELETE FROM lives WHERE host=? AND number NOT IN "
    f"(SELECT number FROM lives WHERE host=? ORDER BY number DESC LIMIT {LIVES_KEPT})"
)

Statement = tuple[str, Sequence[Any]]


@dataclass
class _Work:
    statements: Sequence[Statement]
    loop: asyncio.AbstractEventLoop
    done: "asyncio.Future[None]"


class JournalFile:
    """The journal file and its thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.commits = 0

    def open(self) -> None:
        """Open the file; the first host's `open` does this."""
        if self._thread is not None:
            return
        private_database(self.path)
        database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=CLOSE_S)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.executescript(_SCHEMA)
        self._thread = threading.Thread(target=self._write_forever, args=(database,), name="agent-journal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close the file; earlier writes are finished first."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(CLOSE_S)
            self._thread = None

    def read(self, question: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        database = sqlite3.connect(self.path)
        try:
            return database.execute(question, values).fetchall()
        finally:
            database.close()

    async def write(self, statements: Sequence[Statement]) -> None:
        """Write the statements; returns when they are on the disk. Raises Internal when the journal is closed."""
        if self._thread is None:
            raise Internal("the host's journal is closed", private=str(self.path))
        loop = asyncio.get_running_loop()
        work = _Work(statements, loop, loop.create_future())
        self._queue.put(work)
        await work.done

    def _write_forever(self, database: sqlite3.Connection) -> None:
        more = True
        while more:
            group, more = self._next_group()
            problem: Exception | None = None
            try:
                _commit(database, group)
                self.commits += 1
            except sqlite3.Error as error:
                problem = Internal("the host's journal cannot be written", private=f"{self.path}: {error}")
            for loop in {id(work.loop): work.loop for work in group}.values():
                _settle(loop, [work.done for work in group if work.loop is loop], problem)
        database.close()

    def _next_group(self) -> tuple[list[_Work], bool]:
        group: list[_Work] = []
        work = self._queue.get()
        while work is not None:
            group.append(work)
            if len(group) >= MAX_GROUP:
                return group, True
            try:
                work = self._queue.get_nowait()
            except Empty:
                return group, True
        return group, False


def _commit(database: sqlite3.Connection, group: Iterable[_Work]) -> None:
    database.execute("BEGIN IMMEDIATE")
    try:
        for work in group:
            for statement, values in work.statements:
                database.execute(statement, values)
        database.execute("COMMIT")
    except sqlite3.Error:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _settle(loop: asyncio.AbstractEventLoop, waiting: list["asyncio.Future[None]"], problem: Exception | None) -> None:
    def settle() -> None:
        for each in waiting:
            if each.done():
                continue
            if problem is None:
                each.set_result(None)
            else:
                each.set_exception(problem)

    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)


@dataclass
class _Memory:
    turn: FencingToken
    running: bool = False
    results: dict[str, bytes] = field(default_factory=dict)
    """Step → result, all of the highest turn: results of older turns are not needed."""
    start: str | None = None
    """The step of a start in this turn that does not count yet: it counts when that step's result is acknowledged; empty while there is
    no result.  None: the start counts, or the turn has no start."""


class AgentJournal:
    """One host's part of the file.  `raise_turn` and `keep` return when the data are on the disk."""

    def __init__(self, file: JournalFile, host: str) -> None:
        self.file = file
        self._host = host
        self._servers: dict[ServerId, _Memory] = {}
        self._later: list[Statement] = []
        self.earlier_lives: tuple[str, ...] | None = None
        """The agents that ran with this journal, newest first; None: an earlier release wrote it and did not record them."""

    async def open(self) -> None:
        def remember() -> dict[ServerId, _Memory]:
            self.file.open()
            turns = self.file.read(
                "SELECT server, operation_seq, attempt, phase, running FROM turns WHERE host=?", (self._host,)
            )
            servers = {
                ServerId(server): _Memory(FencingToken(seq, attempt, phase), bool(on))
                for server, seq, attempt, phase, on in turns
            }
            for server, step, result in self.file.read(
                "SELECT server, step, result FROM results WHERE host=?", (self._host,)
            ):
                if (memory := servers.get(ServerId(server))) is not None:
                    memory.results[step] = result
                else:  # an earlier release forgot its turn while that was written: it would answer the next one's commands
                    self._later.append((_DROP_RESULTS, (self._host, server)))
            for server, seq, attempt, phase, step in self.file.read(
                "SELECT server, operation_seq, attempt, phase, step FROM starts WHERE host=?", (self._host,)
            ):
                memory = servers.get(ServerId(server))
                if memory is not None and memory.turn == FencingToken(seq, attempt, phase):
                    memory.start = step
            lives = tuple(agent for (agent,) in self.file.read(_LIVES, (self._host,)))
            self.earlier_lives = None if servers and not lives else lives
            return servers

        self._servers = await asyncio.to_thread(remember)

    async def begin_life(self, agent: str) -> None:
        """Record this agent's incarnation. Await this before the agent sends its id: the next agent on this disk then knows what it replaces."""
        await self._write([(_LIVES_BEGUN, (self._host, agent)), (_LIVES_OVER, (self._host, self._host))])

    def turn_of(self, server: ServerId) -> FencingToken | None:
        memory = self._servers.get(server)
        return memory.turn if memory else None

    def turns(self) -> dict[ServerId, FencingToken]:
        return {server: memory.turn for server, memory in self._servers.items()}

    def running(self) -> set[ServerId]:
        """Return the servers whose last executed command left them running."""
        return {server for server, memory in self._servers.items() if memory.running}

    def result_of(self, key: ResultKey) -> bytes | None:
        memory = self._servers.get(key.server)
        return memory.results.get(key.step) if memory and memory.turn == key.turn else None

    def untaken(self, at_most: int) -> tuple[ResultKey, ...]:
        keys: list[ResultKey] = []
        for server, memory in self._servers.items():
            keys += [ResultKey(server, memory.turn, step) for step in memory.results]
            if len(keys) >= at_most:
                return tuple(keys[:at_most])
        return tuple(keys)

    def unacknowledged(self) -> set[ServerId]:
        """Return the servers with a start in their present turn that is not acknowledged."""
        return {server for server, memory in self._servers.items() if memory.start is not None}

    async def raise_turn(self, server: ServerId, turn: FencingToken, *, starts: bool = False) -> None:
        """Record a turn. Await this before doing anything in this turn.  Results of earlier turns are dropped; `starts`: it is a start's turn.

        If the server is forgotten while this is written, the next write would delete the turn again, so it is written once more.
        """
        whole = (self._host, server, turn.operation_seq, turn.attempt, turn.phase)
        while True:
            memory = self._servers.get(server)
            statements: list[Statement] = [(_RAISE, whole)]
            if memory is not None and memory.results:
                statements.append((_DROP_RESULTS, (self._host, server)))
            if starts:
                statements.append((_BEGUN, whole))
            elif memory is not None and memory.start is not None:
                statements.append((_COUNTS, (self._host, server)))
            await self._write(statements)
            if memory is None or server in self._servers:
                break
        self._servers[server] = _Memory(turn, memory.running if memory else False, start="" if starts else None)

    async def begin_start(self, server: ServerId) -> None:
        """Record a start that does not count yet. Await this before a start in a turn that another command has recorded."""
        memory = self._servers.get(server)
        if memory is None or memory.start is not None or memory.running:
            return
        turn = memory.turn
        await self._write([(_BEGUN, (self._host, server, turn.operation_seq, turn.attempt, turn.phase))])
        memory.start = ""

    async def keep(self, key: ResultKey, result: bytes, running: bool | None, *, started: bool = False) -> None:
        """Record a result of the server's present turn, and whether the guest shall run (None: as before).

        `started`: the result reports that the guest was started, so the start counts when this result is acknowledged.
        """
        memory = self._servers.get(key.server)
        if memory is None or memory.turn != key.turn:
            return  # forgotten meanwhile
        statements: list[Statement] = [(_KEEP, (self._host, key.server, key.step, result))]
        if started and memory.start is not None and memory.start != key.step:
            statements.append((_ANSWERED, (key.step, self._host, key.server)))
            memory.start = key.step
        if running is not None and running != memory.running:
            statements.append((_RUNNING, (running, self._host, key.server)))
            memory.running = running
        memory.results[key.step] = result
        await self._write(statements)

    def taken(self, keys: Iterable[ResultKey]) -> None:
        """Somebody else has these results now.  Written with the next thing that must be: nothing is lost by keeping them longer.

        But a start that counts: an agent that is killed before, and whose cell is slow to answer the next one, has its guest switched off.
        """
        for key in keys:
            memory = self._servers.get(key.server)
            if memory and memory.turn == key.turn and memory.results.pop(key.step, None) is not None:
                self._later.append((_TAKEN, (self._host, key.server, key.step)))
                if memory.start == key.step:
                    self._it_counts(key.server, memory)

    async def write_what_counts(self) -> None:
        """When something that waits for company says that a start counts."""
        if any(statement is _COUNTS for statement, _ in self._later):
            await self.flush()

    def counts(self, server: ServerId, up_to: int) -> None:
        """Record that all operations of the server up to this one have ended and left it here, so its start counts."""
        memory = self._servers.get(server)
        if memory is not None and memory.start is not None and memory.turn.operation_seq <= up_to:
            self._it_counts(server, memory)

    def _it_counts(self, server: ServerId, memory: _Memory) -> None:
        memory.start = None
        self._later.append((_COUNTS, (self._host, server)))

    async def reset_turn(self, server: ServerId, forged: FencingToken, turn: FencingToken) -> None:
        """Put a turn in place of one that no conductor gave, with that one's results; nothing happens if the turn is not `forged` any more."""
        memory = self._servers.get(server)
        if memory is None or memory.turn != forged:
            return
        whole = (self._host, server, turn.operation_seq, turn.attempt, turn.phase)
        await self._write([(_RAISE, whole), (_DROP_RESULTS, (self._host, server)), (_COUNTS, (self._host, server))])
        if self._servers.get(server) is memory:
            self._servers[server] = _Memory(turn, memory.running)
        _log.warning("%s: an operator takes back turn %s of %s; it is %s now", self._host, forged, server, turn)

    async def take_back(self, server: ServerId) -> None:
        """Drop the result of a start that does not count yet: a repeated command then starts the guest again."""
        memory = self._servers.get(server)
        if memory is not None and memory.start and memory.results.pop(memory.start, None) is not None:
            await self._write([(_TAKEN, (self._host, server, memory.start))])

    def forget(self, servers: Iterable[ServerId]) -> None:
        """Drop servers that are deleted for ever, with their tombstones, at the next write."""
        for server in servers:
            if self._servers.pop(server, None) is not None:
                self._later += [(each, (self._host, server)) for each in (_FORGET, _DROP_RESULTS, _COUNTS)]

    async def _write(self, statements: list[Statement]) -> None:
        first, self._later = self._later, []
        await self.file.write([*first, *statements])

    async def flush(self) -> None:
        """Write everything that waits for another write."""
        if self._later:
            await self._write([])
