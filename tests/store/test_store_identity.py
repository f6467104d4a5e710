"""Databases that do not belong together, or of which one is older than the others know, are refused at start and while running."""

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from moorage.main.config import Cell, Config, Region
from moorage.main.databases import Databases, open_databases
from moorage.main.store_watch import StoreWatch
from moorage.main.trees import CELL, PLACEMENT, REGION
from moorage.model.clock import SystemClock
from moorage.model.errors import Invalid, Unavailable
from moorage.model.ids import CellId
from moorage.sql import open_database
from moorage.sql.migrate import upgrade
from moorage.store.cell import servers as cell_servers
from moorage.store.region import servers as region_servers
from moorage.store.servers import server_values
from moorage.testing.postgres import Server
from moorage.testing.small_region import a_server

ONE = CellId("cell1")


def cloud_of(directory: Path) -> Config:
    return Config(data_dir=str(directory / "data"), region=Region(durability="process"))


async def watched(opened: Databases, *, keeps: bool = True) -> StoreWatch:
    watch = StoreWatch(opened.region, opened.cells, SystemClock(), every_s=3600)
    await watch.start()
    watch.keeps_marks = keeps
    return watch


async def lived_through(config: Config, rounds: int = 3) -> None:
    """A process started on it, went on for some rounds, and ended."""
    opened = await open_databases(config)
    watch = await watched(opened)
    for _ in range(rounds):
        await watch.round()
    await watch.stop()
    await opened.close()


async def refused(config: Config) -> str:
    with pytest.raises(Invalid) as said:
        await open_databases(config)
    return said.value.public


def file_of(config: Config, name: str) -> Path:
    return config.data / f"{name}.db"


def keep(config: Config, name: str) -> Callable[[], None]:
    """Back up one database's file; what comes back restores it."""
    kept = file_of(config, name).with_suffix(".kept")
    shutil.copy(file_of(config, name), kept)

    def restore() -> None:
        for more in ("-wal", "-shm"):
            Path(f"{file_of(config, name)}{more}").unlink(missing_ok=True)
        shutil.copy(kept, file_of(config, name))

    return restore


async def test_a_fresh_cloud_starts_again_and_takes_another_cell(tmp_path: Path) -> None:
    config = cloud_of(tmp_path)
    await lived_through(config)
    await lived_through(config)
    more = msgspec.structs.replace(config, cells=(*config.cells, Cell("cell3")))
    await lived_through(more)
    await lived_through(config)
    await lived_through(more)


async def test_a_cell_that_is_empty_is_refused(tmp_path: Path) -> None:
    config = cloud_of(tmp_path)
    await lived_through(config)
    file_of(config, "cell1").unlink()
    said = await refused(config)
    assert "cell1 is empty" in said
    assert "moorage db adopt" in said


async def test_an_older_cell_is_refused(tmp_path: Path) -> None:
    config = cloud_of(tmp_path)
    await lived_through(config)
    restore = keep(config, "cell1")
    await lived_through(config)
    restore()
    said = await refused(config)
    assert "the database of cell1 is older than the region remembers it" in said
    assert "moorage db adopt" in said


async def test_an_older_region_is_refused(tmp_path: Path) -> None:
    config = cloud_of(tmp_path)
    await lived_through(config)
    restore = keep(config, "region")
    await lived_through(config)
    restore()
    assert "the region database is older than cell1 remembers it" in await refused(config)


async def test_cells_that_changed_places_and_strangers_are_refused(tmp_path: Path) -> None:
    config, other = cloud_of(tmp_path / "a"), cloud_of(tmp_path / "b")
    await lived_through(config)
    await lived_through(other)
    swapped = (Cell("cell1", config.cell_url(Cell("cell2"))), Cell("cell2", config.cell_url(Cell("cell1"))))
    assert "configured for cell1 is that of cell2" in await refused(msgspec.structs.replace(config, cells=swapped))
    strange = (Cell("cell1", other.cell_url(Cell("cell1"))), Cell("cell2"))
    assert "belongs to region" in await refused(msgspec.structs.replace(config, cells=strange))
    empty = Region(database=f"sqlite:///{tmp_path}/empty.db")
    assert "and the region database is empty" in await refused(msgspec.structs.replace(config, region=empty))


async def test_the_databases_of_the_release_before_get_an_identity(tmp_path: Path) -> None:
    """Their servers show whether a cell is theirs."""
    config = cloud_of(tmp_path)
    config.data.mkdir(parents=True)
    server = a_server()
    for url, trees in (
        (config.region_url(), ((REGION, "0006"), (PLACEMENT, "0002"))),
        (config.cell_url(Cell("cell1")), ((CELL, "0004"),)),
        (config.cell_url(Cell("cell2")), ((CELL, "0004"),)),
    ):
        database = await open_database(url, name="before")
        for tree, number in trees:
            await database.alter(lambda connection, tree=tree, number=number: upgrade(connection, tree, number))
        if trees[0][0] is REGION:
            row = {**server_values(server), "op_seq": 1, "cell": "cell1", "task": None, "doc": None, "operation": None}
            await database.write(lambda tx, row=row: tx.run(region_servers.servers.insert(), row))
        await database.close()
    assert "cell1 has no identity, and is older than the region" in await refused(config)
    cell = await open_database(config.cell_url(Cell("cell1")), name="before")
    await cell.write(lambda tx: tx.run(cell_servers.servers.insert(), server_values(server)))
    await cell.close()
    await lived_through(config)
    file_of(config, "cell1").unlink()
    assert "cell1 is empty" in await refused(config)


async def test_a_file_that_was_replaced_below_a_process_is_barred_and_nothing_is_read_from_it(tmp_path: Path) -> None:
    config = cloud_of(tmp_path)
    await lived_through(config)
    opened = await open_databases(config)
    watch = await watched(opened)
    (config.data / "elsewhere").mkdir()
    file_of(config, "cell1").rename(config.data / "elsewhere" / "cell1.db")
    file_of(config, "cell1").write_bytes(b"")
    await watch.round()
    with pytest.raises(Unavailable, match="another file stands in the place of the cell1 database"):
        await opened.cells[ONE].read(lambda tx: tx.scalar(sa.text("SELECT 1")))
    assert await opened.region.read(lambda tx: tx.scalar(sa.text("SELECT 1"))) == 1
    (config.data / "elsewhere" / "cell1.db").rename(file_of(config, "cell1"))
    await watch.round()
    assert await opened.cells[ONE].read(lambda tx: tx.scalar(sa.text("SELECT 1"))) == 1
    await watch.stop()
    await opened.close()


@pytest.mark.parametrize("keeps", [True, False])
async def test_rows_that_became_older_below_a_process_bar_their_database(tmp_path: Path, keeps: bool) -> None:
    """As a dump loaded over a database that is in use: no connection is cut."""
    config = cloud_of(tmp_path)
    await lived_through(config)
    opened = await open_databases(config)
    watch = await watched(opened, keeps=keeps)
    before = await opened.cells[ONE].read(lambda tx: tx.scalar(sa.text("SELECT mark FROM store_identity")))
    await opened.cells[ONE].write(lambda tx: tx.run(sa.text("UPDATE store_identity SET mark = 0")))
    await watch.round()
    with pytest.raises(Unavailable, match="cell1 database is older than it was"):
        await opened.cells[ONE].write(lambda tx: None)
    opened.cells[ONE].barred = ""
    await opened.cells[ONE].write(lambda tx: tx.run(sa.text(f"UPDATE store_identity SET mark = {before}")))
    await watch.round()
    await opened.cells[ONE].write(lambda tx: None)
    await watch.stop()
    await opened.close()


@pytest.mark.postgres
async def test_whoever_answers_after_a_reconnect_is_asked_who_it_is(postgres_server: Server, tmp_path: Path) -> None:
    """A dump of an hour ago, loaded into a database of the same name: every new connection notices, before anything is read."""
    names = [f"identity_{tmp_path.name}_{each}".lower() for each in ("region", "cell1")]
    urls = [postgres_server.create_database(name) for name in names]
    config = msgspec.structs.replace(
        cloud_of(tmp_path), region=Region(database=urls[0]), cells=(Cell("cell1", urls[1]),)
    )
    await lived_through(config)
    postgres_server.create_database(f"{names[1]}_kept", template=names[1])
    opened = await open_databases(config)
    watch = await watched(opened)
    for _ in range(3):
        await watch.round()
    try:
        postgres_server.drop_database(names[1])
        postgres_server.create_database(names[1], template=f"{names[1]}_kept")
        with pytest.raises(Unavailable, match="cell1 database is older than it was"):
            await opened.cells[ONE].read(lambda tx: tx.scalar(sa.text("SELECT 1")))
        postgres_server.drop_database(names[1])
        postgres_server.create_database(names[1])
        with pytest.raises(Unavailable, match="cell1 database is another one"):
            await opened.cells[ONE].write(lambda tx: tx.scalar(sa.text("SELECT 1")))
    finally:
        await watch.stop()
        await opened.close()
        for name in (*names, f"{names[1]}_kept"):
            postgres_server.drop_database(name)
