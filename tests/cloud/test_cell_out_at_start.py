"""A cell whose database does not answer does not keep a process from starting, and is added when it answers."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.cloud.conftest import Running, Start, a_config

from moorage.main.config import Cell, Hosts, Listen
from moorage.main.consoles import console
from moorage.main.databases import open_databases
from moorage.main.local_cluster.ports import free_ports
from moorage.main.metadata import metadata
from moorage.main.roles import Role
from moorage.main.up import print_ready
from moorage.model.errors import Invalid
from moorage.model.ids import CellId
from moorage.operations.cell_databases import CellDatabase
from moorage_testing.waiting import until

CELL1 = CellId("cell1")
TAKEN_IN_S = 180.0


class Away:
    """The file of a cell's database is not there, and cannot be made: a directory stands in its place."""

    def __init__(self, data: Path, cell: CellId = CELL1) -> None:
        self._file = data / f"{cell}.db"
        self._kept = data / "kept"

    def begin(self) -> None:
        self._kept.mkdir()
        for each in self._files():
            each.rename(self._kept / each.name)
        self._file.mkdir()

    def end(self) -> None:
        self._file.rmdir()
        for each in self._kept.iterdir():
            each.rename(self._file.parent / each.name)
        self._kept.rmdir()

    def _files(self) -> list[Path]:
        return [path for path in self._file.parent.glob(f"{self._file.name}*") if path.is_file()]


def guarded(running: Running, cell: CellId = CELL1) -> CellDatabase:
    found = running.cloud.region.databases.cells[cell]
    assert isinstance(found, CellDatabase)
    return found


def taken_in(running: Running, cell: CellId = CELL1) -> bool:
    return not guarded(running, cell).circuits and any(each.cell == cell for each in running.cloud.region.cells)


async def servers_of_both(running: Running) -> dict[str, str]:
    """Server → its cell; each cell has some."""
    cells = {plan.host: str(plan.cell) for plan in running.cloud.plans}
    found = await asyncio.gather(
        *(running.admin.active(f"s-{host}", availability_zone=f"nova:{host}") for host in cells)
    )
    where = {each["id"]: cells[each["OS-EXT-SRV-ATTR:host"]] for each in found}
    assert set(where.values()) == {"cell1", "cell2"}
    return where


async def states(running: Running) -> dict[str, str]:
    listed = (await running.admin.compute("GET", "/servers/detail")).json()["servers"]
    return {each["id"]: each["status"] for each in listed}


async def test_other_cells_are_served_and_the_cell_is_added_later(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = Away(tmp_path / "data")
    async with start() as running:
        where = await servers_of_both(running)
    away.begin()
    async with start() as running:
        admin = running.admin
        print_ready(running.cloud, 0.0, None)
        assert (
            "cell cell1 is out, and its hosts take nothing until it answers: the cell1 database"
            in capsys.readouterr().out
        )
        assert await states(running) == {key: "UNKNOWN" if cell == "cell1" else "ACTIVE" for key, cell in where.items()}
        assert "the cell1 database" in (await admin.compute("GET", "/ext/neighbours")).text
        cells = {plan.host: str(plan.cell) for plan in running.cloud.plans}
        made = await admin.active("elsewhere")
        assert cells[made["OS-EXT-SRV-ATTR:host"]] == "cell2"
        explained = await admin.compute("GET", f"/ext/servers/{made['id']}/explain")
        assert "cell_answers" in explained.text
        deleted = next(key for key, cell in where.items() if cell == "cell1")
        away.end()
        await until(lambda: taken_in(running), TAKEN_IN_S)
        await admin.gone(deleted, TAKEN_IN_S)
        assert set((await states(running)).values()) == {"ACTIVE"}
        await until(lambda: not any(each.unheard() for each in running.cloud.region.cells), TAKEN_IN_S)
        await asyncio.gather(*(admin.active(f"again-{host}", availability_zone=f"nova:{host}") for host in cells))


async def test_a_boot_without_another_cell_waits_for_it(start: Start, tmp_path: Path) -> None:
    away = Away(tmp_path / "data")
    async with start(hosts=Hosts(count=2), cells=(Cell("cell1"),)):
        pass
    away.begin()
    async with start(hosts=Hosts(count=2), cells=(Cell("cell1"),)) as running:
        server = await running.admin.boot("patient")
        away.end()
        await until(lambda: taken_in(running), TAKEN_IN_S)
        assert (await running.admin.settled(server, TAKEN_IN_S))["status"] == "ACTIVE"


async def test_a_new_cell_is_created_when_its_database_answers(start: Start, tmp_path: Path) -> None:
    """The first start of a region: its tables and its identity are made then, and its hosts are heard."""
    (tmp_path / "data" / "cell1.db").mkdir(parents=True)
    async with start(hosts=Hosts(count=2), cells=(Cell("cell1"),)) as running:
        assert not running.cloud.region.engine.world().slots_by_name
        (tmp_path / "data" / "cell1.db").rmdir()
        await until(lambda: taken_in(running), TAKEN_IN_S)
        await until(lambda: len(running.cloud.region.engine.world().slots_by_name) == 2, TAKEN_IN_S)
        await running.admin.active("first")


async def test_a_database_of_another_cell_is_not_added(start: Start, tmp_path: Path) -> None:
    """Its identity is looked at when it is there; an empty file in the place of one that had servers is not made use of."""
    away = Away(tmp_path / "data")
    async with start() as running:
        where = await servers_of_both(running)
    away.begin()
    async with start() as running:
        (tmp_path / "data" / "cell1.db").rmdir()
        await until(
            lambda: any("is empty, and the region knows the cell" in each.why for each in guarded(running).circuits),
            TAKEN_IN_S,
        )
        assert (await states(running)) == {
            key: "UNKNOWN" if cell == "cell1" else "ACTIVE" for key, cell in where.items()
        }
        for path in (tmp_path / "data").glob("cell1.db*"):
            path.unlink()
        (tmp_path / "data" / "cell1.db").mkdir()
        away.end()
        await until(lambda: taken_in(running), TAKEN_IN_S)
        assert set((await states(running)).values()) == {"ACTIVE"}


@pytest.mark.parametrize("role", [metadata, console])
async def test_read_only_processes_add_it_too(tmp_path: Path, caplog: pytest.LogCaptureFixture, role: Role) -> None:
    file, ports = tmp_path / "data" / "cell1.db", free_ports(2)
    file.mkdir(parents=True)
    config = a_config(tmp_path / "data", cells=(Cell("cell1"),))
    api = msgspec.structs.replace(config.api, metadata=Listen(port=ports[0]), console=Listen(port=ports[1]))
    stopping = asyncio.Event()
    running = asyncio.ensure_future(role(msgspec.structs.replace(config, api=api), stopping))
    await until(lambda: running.done() or "cell cell1 is out" in caplog.text)
    file.rmdir()
    await until(lambda: running.done() or "cell cell1 answers, and is taken in" in caplog.text, TAKEN_IN_S)
    stopping.set()
    await running


async def test_a_refused_cell_stops_the_start_though_another_is_down(start: Start, tmp_path: Path) -> None:
    async with start() as running:
        config = running.config
    Away(tmp_path / "data").begin()
    (tmp_path / "data" / "cell2.db").unlink()
    for more in (tmp_path / "data").glob("cell2.db-*"):
        more.unlink()
    with pytest.raises(Invalid, match="cell2 is empty"):
        await open_databases(config)
