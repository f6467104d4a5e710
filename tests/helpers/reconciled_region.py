"""A small region with one ACTIVE server, a cell that does not answer, and readers of its quota counters, for tests of reconcilers."""

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from moorage.model.errors import Unavailable
from moorage.model.ids import CellId, OperationId, ServerId
from moorage.operations.cell_databases import AbsentDatabase, CellDatabase, Cells
from moorage.operations.registry import SAGAS
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.sql import Meter, Tx
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import SERVER, SmallRegion, a_boot, a_server

BOOT = OperationId("boot")


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    """A region with one ACTIVE server that nobody holds."""
    region = await SmallRegion.open(tmp_path)
    await region.fresh(a_server(), BOOT)
    boot = SAGAS["boot/1"]
    await execute(boot, BOOT, a_boot(BOOT), region.context, MemoryJournal(first_lines(boot), region.transact))
    yield region
    await region.close()


# -------------------------------------------------------------------------------------------- a cell that is out


class Out:
    """A cell's database that does not answer."""

    def __getattr__(self, name: str) -> Any:
        async def out(*_: Any) -> Any:
            raise Unavailable("the cell does not answer")

        return out


OTHERS = ServerId("0d0c0b0a-0000-4000-8000-0000000000aa")


async def with_a_dead_cell(small: SmallRegion) -> tuple[str, str]:
    """Another server, ACTIVE in the cell that is out; the cell, and the first server's."""
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, BOOT))
    where = await small.region.read(lambda tx: region_servers.find(tx, SERVER))
    assert where is not None
    dead = next(cell for cell in small.cells if cell != where.cell)

    def born(tx: Tx) -> None:
        region_servers.insert(tx, [a_server(id=OTHERS, operation=OperationId("other"))])
        region_servers.place(tx, OTHERS, OperationId("other"), dead)
        region_servers.release(tx, OTHERS, OperationId("other"), drop_order=True)

    await small.region.write(born)
    live = {cell: small.cells[cell] for cell in small.cells if cell != dead}
    small.context = dataclasses.replace(small.context, cells=Cells({dead: cast("Any", Out()), **live}))
    return dead, str(where.cell)


async def kept(small: SmallRegion) -> dict[str, int]:
    return cast("dict[str, int]", (await small.held())["quota"])


def a_cell_that_is_out() -> CellDatabase:
    return CellDatabase(CellId("out"), AbsentDatabase("out", "sqlite", Meter(), "it does not answer"))
