"""A server that moves into another cell step by step, between the reads of a request."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.model.action import Action
from moorage.model.errors import Unavailable
from moorage.model.ids import CellId, OperationId
from moorage.model.migration import MigrationStatus, MigrationType
from moorage.model.server import BlockDevice, Server
from moorage.sql import Database, Tx
from moorage.store.cell import actions as cell_actions
from moorage.store.cell import migrations as cell_migrations
from moorage.store.cell import record_transfer
from moorage.store.cell.servers import Fence
from moorage.store.region import hidden_records
from moorage.store.region import servers as region_servers
from moorage_testing.compute_app import MEMBER, ApiClient, cells_in, compute_api
from moorage_testing.fake_server_service import RecordingServerService, a_migration, a_server, keep

CELLS = (CellId("cell1"), CellId("cell2"))
HERE = 4
"""The number of the server that moves: others are before and behind it in every order."""
ID = a_server(HERE).id
OTHERS = (1, 2, 3, 5, 6, 7)
VOLUME = "7d2f3f3e-4d6f-4a07-9dd1-3f1e8f7a2f60"
OPERATION = OperationId("a move")
STEPS = 6
"""Of a move one way; as many lead back."""


class Between:
    """A database of whose reads each waits for what is to happen before it; one at a time."""

    def __init__(self, under: Database, moving: "Moving") -> None:
        self._under, self._moving = under, moving
        self._turn = moving.turn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._under, name)

    async def read(self, work: Any) -> Any:
        async with self._turn:
            await self._moving.before_a_read()
            if self._under.name in self._moving.out:
                raise Unavailable("the database is out")
            return await self._under.read(work)

    async def read_inline(self, work: Any) -> Any:
        async with self._turn:
            await self._moving.before_a_read()
            return await self._under.read_inline(work)


class Moving(ApiClient):
    """A API of two cells, and a server on its way."""

    region: Database
    cells: dict[str, Database]

    def begin(self) -> None:
        self.turn = asyncio.Lock()
        self.done = 0
        self.line = 0
        self.reads = 0
        self.out: set[str] = set()
        self.steps_at: dict[int, int] = {}
        """Number of a read → so many steps before it."""
        self.book = RecordingServerService(self.context.region)
        self.context.operations = self.book

    async def before_a_read(self) -> None:
        for _ in range(self.steps_at.get(self.reads, 0)):
            await self.step()
        self.reads += 1

    async def step(self) -> None:
        """The next one, of a move from the cell that shows the server into the other, or what is left behind of it."""
        there = self.done // STEPS % 2
        left, shown = (CELLS[1], CELLS[0]) if there else CELLS
        self.line += 1
        fence = Fence(OPERATION, 2, 0, self.line // STEPS * STEPS)  # steps of one intent have one line
        await (self._open, self._seal, self._copy, self._flip, self._remove, self._end)[self.done % STEPS](
            left, shown, fence
        )
        self.done += 1

    async def _open(self, left: CellId, shown: CellId, fence: Fence) -> None:
        await self.region.write(lambda tx: hidden_records.open_row(tx, ID, shown))

    async def _seal(self, left: CellId, shown: CellId, fence: Fence) -> None:
        await self.cells[left].write(lambda tx: record_transfer.seal(tx, ID, fence))

    async def _copy(self, left: CellId, shown: CellId, fence: Fence) -> None:
        """A host's name says in which cell it is."""
        found = await self.cells[left].read(lambda tx: record_transfer.read(tx, ID))
        assert found is not None
        there = msgspec.structs.replace(found.server, cell=shown, host=f"host-{shown}")
        copy = msgspec.structs.replace(found, server=there)
        await self.cells[shown].write(lambda tx: record_transfer.copy(tx, copy, fence))

    async def _flip(self, left: CellId, shown: CellId, fence: Fence) -> None:
        def work(tx: Tx) -> None:
            assert region_servers.show_in(tx, ID, OPERATION, left, shown)
            hidden_records.end_row(tx, ID, shown, int(self.context.clock.now() * 1e6))
            hidden_records.open_row(tx, ID, left)

        await self.region.write(work)

    async def _remove(self, left: CellId, shown: CellId, fence: Fence) -> None:
        await self.cells[left].write(lambda tx: record_transfer.remove_record(tx, ID, fence))

    async def _end(self, left: CellId, shown: CellId, fence: Fence) -> None:
        now = int(self.context.clock.now() * 1e6)
        await self.region.write(lambda tx: hidden_records.end_row(tx, ID, left, now))

    async def to(self, done: int) -> None:
        """On, or round, until the move has got so far."""
        while self.done % (2 * STEPS) != done:
            await self.step()

    async def ids(self, path: str, *, by: Any = MEMBER) -> list[str]:
        answer = await self.get(path, at="latest", by=by)
        assert answer.status_code == 200, answer.text
        return [row["id"] for row in answer.json()["servers"]]


def mover() -> Server:
    volume = BlockDevice("volume", "volume", volume=VOLUME, device="/dev/vdb", attachment="a", bdm="b")
    return server(HERE, CELLS[0], block_devices=(volume,), tags=("moves",))


def server(number: int, cell: CellId, **fields: Any) -> Server:
    return a_server(number, cell=cell, host=f"host-{cell}", node=None, **fields)


@pytest.fixture
async def moving(tmp_path: Path) -> AsyncIterator[Moving]:
    async with cells_in(tmp_path, *CELLS) as opened, compute_api(tmp_path) as client:
        found = Moving(client.context, client.http)
        found.region = client.context.region
        found.cells = {name: opened[name] for name in CELLS}
        found.begin()
        for name, numbers in zip(CELLS, (OTHERS[::2], OTHERS[1::2]), strict=True):
            await keep(found.region, found.cells[name], *(server(each, name) for each in numbers))
        await keep(found.region, found.cells[CELLS[0]], mover())
        hold = region_servers.servers.update().where(region_servers.servers.c.id == ID).values(operation=OPERATION)
        await found.region.write(lambda tx: tx.run(hold))
        await _history(found)
        client.context.region = Between(found.region, found)  # type: ignore[assignment]
        client.context.cells = {name: Between(each, found) for name, each in found.cells.items()}  # type: ignore[dict-item]
        yield found
        client.context.region = found.region


async def _history(found: Moving) -> None:
    """Migrations of two servers in either cell, so that the copy's number is another one; and an action."""
    other = a_migration(9, MigrationType.MIGRATION, MigrationStatus.CONFIRMED, server=a_server(2).id)
    mine = [a_migration(n, MigrationType.RESIZE, MigrationStatus.FINISHED, server=ID) for n in (3, 5)]
    for name in CELLS:
        theirs = [msgspec.structs.replace(other, uuid=f"{name}-{n}", created_at=n) for n in (0, 4_000_000_000_000_000)]

        def write(tx: Tx, rows: Any = (*theirs, *(mine if name == CELLS[0] else ()))) -> None:
            cell_migrations.put_all(tx, rows)

        await found.cells[name].write(write)
    begun = Action(ID, "create", "req-1", "1" * 32, "2" * 32, 1, 2)
    await found.cells[CELLS[0]].write(lambda tx: cell_actions.write(tx, begun))


async def shown(moving: Moving) -> None:
    assert (await moving.get(f"/servers/{ID}", by=MEMBER)).status_code == 200
