"""Reads the shown records of servers from all cells (docs/decisions/0021): each server once, never zero or two times,
also while a server moves into another cell.

No read spans two databases. So the region is read before and after the cells. Where both reads agree about a server's
hidden records, the shown record was shown all the time, and the hidden one was left out. A server about which they
differ is read again, until two reads agree. With one cell the region is not read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import msgspec

from moorage.model.ids import CellId, ServerId
from moorage.sql import Database, Tx
from moorage.store.region import hidden_records
from moorage.store.region.hidden_records import HiddenRecord

R = TypeVar("R")

RECENT_US = 600 * 1_000_000
"""How long the region is asked about records that were hidden and are shown again; a list takes less."""
NEVER_US = 1 << 62
READS_MAX = 5
"""How often servers that move, or all, are read again; then the last read of the region decides."""
WITHOUT_MAX = 5_000
"""How many servers a query to a cell may exclude by name; for each further one it asks for one row more."""


class Hidden(msgspec.Struct, frozen=True):
    """What the region says about hidden records, at one moment."""

    rows: Mapping[tuple[ServerId, CellId], HiddenRecord]

    def of_cell(self, cell: str) -> frozenset[str]:
        """Servers whose record in this cell is hidden."""
        return frozenset(server for (server, where), row in self.rows.items() if where == cell and row.is_open)

    def moved_since(self, before: "Hidden") -> frozenset[str]:
        """Servers about which the earlier read differs."""
        now = {server for (server, cell), row in self.rows.items() if before.rows.get((server, cell)) != row}
        lost = {key[0] for key, row in before.rows.items() if row.is_open and key not in self.rows}
        return frozenset(now | lost)


NOTHING_HIDDEN = Hidden({})


class CellQuery(msgspec.Struct, frozen=True):
    """What a cell's query adds to the question itself."""

    without: tuple[str, ...] = ()
    """Servers to leave out."""
    only: tuple[str, ...] | None = None
    """Only these servers."""
    more: int = 0
    """The number of rows to read beyond the page, because rows of the answer may be removed."""


Ask: TypeAlias = Callable[[str, Database, CellQuery], Awaitable[Sequence[R] | None]]
"""(cell, its database, query) → rows; None: the cell does not answer."""


AlsoRead: TypeAlias = Callable[[Tx, Sequence[str]], None]
"""An additional read of the region, in the transaction of the last read of hidden records; it gets the cells that did
not answer.
"""


@dataclass(slots=True)
class Shown(Generic[R]):
    """Rows of all cells that answer, unordered."""

    rows: list[R]
    out: tuple[str, ...]
    """Cells that did not answer."""


@dataclass(slots=True)
class _Read(Generic[R]):
    """One read of the cells, and of the region after it."""

    answers: Mapping[str, Sequence[R] | None]
    out: tuple[str, ...]
    """Cells that did not answer, now or before."""
    hidden: Hidden
    moved: frozenset[str]
    """Servers that moved during the read: their rows do not count."""


@dataclass(slots=True)
class EveryCell(Generic[R]):
    """One query to all cells."""

    region: Database
    cells: Mapping[str, Database]
    now_us: int
    ask: Ask[R]
    server_of: Callable[[R], str]
    limit: int | None = None
    """Rows of a page: a cell that returned as many may have more."""
    also: AlsoRead | None = None

    def hidden(self, tx: Tx) -> Hidden:
        """Read the hidden records before the cells are queried."""
        if len(self.cells) < 2:
            return NOTHING_HIDDEN
        return _hidden_since(tx, self.now_us - RECENT_US)

    async def rows(self, hidden_then: Hidden | None = None) -> Shown[R]:
        """Return the rows. `hidden_then`: what `hidden` returned, when the caller has read it already."""
        if len(self.cells) < 2:
            answers = await self._query(NOTHING_HIDDEN)
            out = _silent(answers)
            if out and self.also is not None:
                await self._read_hidden(out)
            return Shown(_together(answers), out)
        if hidden_then is None:
            hidden_then = await self.region.read(self.hidden)
        last = await self._read(hidden_then, ())
        tries = 1
        while tries < READS_MAX and any(self._lost_of_a_full_page(each, last.moved) for each in last.answers.values()):
            last = await self._read(last.hidden, last.out)
            tries += 1
        rows = [row for row in _together(last.answers) if self.server_of(row) not in last.moved]
        for _ in range(READS_MAX):
            if not last.moved:
                break
            last = await self._read(last.hidden, last.out, last.moved)
            rows += [row for row in _together(last.answers) if self.server_of(row) not in last.moved]
        return Shown(rows + self._latest(last), last.out)

    async def _read(
        self, hidden_then: Hidden, were_out: Collection[str], only: Collection[str] | None = None
    ) -> "_Read[R]":
        answers = await self._query(hidden_then, only)
        out = tuple(sorted({*were_out, *_silent(answers)}))
        now = await self._read_hidden(out)
        moved = now.moved_since(hidden_then)
        return _Read(answers, out, now, moved if only is None else moved & frozenset(only))

    async def _query(self, hidden_then: Hidden, only: Collection[str] | None = None) -> dict[str, Sequence[R] | None]:
        answers = await asyncio.gather(*(self._of_cell(name, hidden_then, only) for name in self.cells))
        return dict(zip(self.cells, answers, strict=True))

    async def _of_cell(self, name: str, hidden_then: Hidden, only: Collection[str] | None) -> Sequence[R] | None:
        hidden = hidden_then.of_cell(name) if only is None else hidden_then.of_cell(name) & frozenset(only)
        left_out = tuple(sorted(hidden))[:WITHOUT_MAX]
        chosen = None if only is None else tuple(sorted(only))
        rows = await self.ask(name, self.cells[name], CellQuery(left_out, chosen, len(hidden) - len(left_out)))
        if rows is None or len(left_out) == len(hidden):
            return rows
        return [row for row in rows if self.server_of(row) not in hidden]

    async def _read_hidden(self, out: Sequence[str]) -> Hidden:
        def work(tx: Tx) -> Hidden:
            if self.also is not None:
                self.also(tx, out)
            return self.hidden(tx)

        return await self.region.read(work)

    def _lost_of_a_full_page(self, answer: Sequence[R] | None, moved: Collection[str]) -> bool:
        """A removed row of a full page would leave rows missing that follow it."""
        full = answer is not None and self.limit is not None and len(answer) >= self.limit
        return full and any(self.server_of(row) in moved for row in answer or ())

    def _latest(self, last: "_Read[R]") -> list[R]:
        """The rows of servers that moved between every two reads, from where they are now."""
        rows: list[R] = []
        for cell, answer in last.answers.items():
            hidden = last.hidden.of_cell(cell)
            moved = [row for row in answer or () if self.server_of(row) in last.moved]
            rows += [row for row in moved if self.server_of(row) not in hidden]
        return rows


async def unmoved(region: Database, cells: Mapping[str, Database], count: Callable[[Hidden], Awaitable[R]]) -> R:
    """Repeat a count over all cells until no server moved meanwhile: a count cannot be corrected server by server."""
    if len(cells) < 2:
        return await count(NOTHING_HIDDEN)

    def all_hidden(tx: Tx) -> Hidden:
        return _hidden_since(tx, 0)

    hidden = await region.read(all_hidden)
    counted = await count(hidden)
    for _ in range(READS_MAX):
        now = await region.read(all_hidden)
        if not now.moved_since(hidden):
            break
        hidden, counted = now, await count(now)
    return counted


def hidden_now(tx: Tx) -> Hidden:
    """What is hidden now, without what was hidden a moment ago."""
    return _hidden_since(tx, NEVER_US)


def _hidden_since(tx: Tx, since_us: int) -> Hidden:
    return Hidden({(row.server, row.cell): row for row in hidden_records.open_or_ended_since(tx, since_us)})


def _together(answers: Mapping[str, Sequence[R] | None]) -> list[R]:
    return [row for answer in answers.values() if answer is not None for row in answer]


def _silent(answers: Mapping[str, Sequence[R] | None]) -> tuple[str, ...]:
    return tuple(name for name, answer in answers.items() if answer is None)
