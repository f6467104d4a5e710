"""What a simulated host keeps through the death of its agent: the journal, in memory, and its disk's delays."""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from moorage.agent.journal import _SCHEMA, JournalFile, Statement  # pyright: ignore[reportPrivateUsage]
from moorage.model.errors import Internal

SYNC_S = 0.001


class MachineDisk:
    """Of one host; outlives every agent on it."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.executescript(_SCHEMA)
        self.full = False


class DiskJournal(JournalFile):
    """`agent.journal.JournalFile` on a simulated disk, without a thread."""

    def __init__(self, disk: MachineDisk) -> None:
        super().__init__(Path("/nowhere"))
        self._disk = disk
        self._is_open = False

    @override
    def open(self) -> None:
        self._is_open = True

    @override
    def close(self) -> None:
        self._is_open = False

    @override
    def read(self, question: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return self._disk.database.execute(question, values).fetchall()

    @override
    async def write(self, statements: Sequence[Statement]) -> None:
        """Return when it is durable; a process that dies before leaves all of it or nothing. Raises Internal when it is
        closed, or the disk is full.
        """
        if not self._is_open:
            raise Internal("the host's journal is closed")
        await asyncio.sleep(SYNC_S / 2)
        if self._disk.full:
            raise Internal("the host's journal cannot be written", private="the disk is full")
        database = self._disk.database
        database.execute("BEGIN")
        for statement, values in statements:
            database.execute(statement, values)
        database.execute("COMMIT")
        self.commits += 1
        await asyncio.sleep(SYNC_S / 2)
