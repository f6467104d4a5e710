"""Databases that do not belong together, or of which one is older than the others know, are refused at start and at run time."""

import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from moorage.main.adopt import adopt
from moorage.main.config import Cell, Config, RegionSettings
from moorage.main.data_dir_lock import DataLock
from moorage.main.databases import Databases, open_databases
from moorage.main.local_cluster.postgres import PostgresServer, start_postgres
from moorage.main.schemas import CELL, PLACEMENT, REGION
from moorage.main.store_watch import StoreWatch
from moorage.model.clock import SystemClock
from moorage.model.errors import Conflict, Invalid, Unavailable
from moorage.model.ids import CellId, ConductorId, OperationId, ServerId
from moorage.model.resources import Inventory
from moorage.model.server import Server
from moorage.placement import inventory
from moorage.placement.inventory import HostInventory as InventoryReport
from moorage.sql import open_database
from moorage.sql.migrate import upgrade
from moorage.store.cell import identity as cell_identities
from moorage.store.cell import servers as cell_servers
from moorage.store.region import conductors
from moorage.store.region import servers as region_servers
from moorage.store.region.placement.change_feed import since
from moorage.store.servers import server_values
from moorage_testing.region_fixture import a_server

ONE = CellId("cell1")


def cloud_of(directory: Path) -> Config:
    return Config(data_dir=str(directory / "data"), region=RegionSettings(durability="process"))


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
    kept = file_of(config, name).with_suffix(f".{uuid.uuid4().hex}")
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


async def test_a_restored_cell_is_refused(tmp_path: Path) -> None:
    config = cloud_of(tmp_path)
    await lived_through(config)
    restore = keep(config, "cell1")
    await lived_through(config)
    restore()
    said = await refused(config)
    assert "the database of cell1 is older than the region remembers it" in said
    assert "moorage db adopt" in said


async def test_a_restored_region_is_refused(tmp_path: Path) -> None:
    config = cloud_of(tmp_path)
    await lived_through(config)
    restore = keep(config, "region")
    await lived_through(config)
    restore()
    assert "the region database is older than cell1 remembers it" in await refused(config)


async def test_swapped_and_foreign_cells_are_refused(tmp_path: Path) -> None:
    config, other = cloud_of(tmp_path / "a"), cloud_of(tmp_path / "b")
    await lived_through(config)
    await lived_through(other)
    swapped = (Cell("cell1", config.cell_url(Cell("cell2"))), Cell("cell2", config.cell_url(Cell("cell1"))))
    assert "configured for cell1 is that of cell2" in await refused(msgspec.structs.replace(config, cells=swapped))
    strange = (Cell("cell1", other.cell_url(Cell("cell1"))), Cell("cell2"))
    assert "belongs to region" in await refused(msgspec.structs.replace(config, cells=strange))
    empty = RegionSettings(database=f"sqlite:///{tmp_path}/empty.db")
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


async def test_a_file_replaced_under_a_process_is_barred(tmp_path: Path) -> None:
    config = cloud_of(tmp_path)
    await lived_through(config)
    opened = await open_databases(config)
    watch = await watched(opened)
    (config.data / "elsewhere").mkdir()
    file_of(config, "cell1").rename(config.data / "elsewhere" / "cell1.db")
    file_of(config, "cell1").write_bytes(b"")
    await watch.round()
    with pytest.raises(Unavailable, match="is not used until an administrator has checked") as barred:
        await opened.cells[ONE].read(lambda tx: tx.scalar(sa.text("SELECT 1")))
    assert "another file stands in the place of the cell1 database" in barred.value.named
    assert await opened.region.read(lambda tx: tx.scalar(sa.text("SELECT 1"))) == 1
    (config.data / "elsewhere" / "cell1.db").rename(file_of(config, "cell1"))
    await watch.round()
    assert await opened.cells[ONE].read(lambda tx: tx.scalar(sa.text("SELECT 1"))) == 1
    await watch.stop()
    await opened.close()


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_database_restored_under_a_process_is_barred(tmp_path: Path, keeps: bool) -> None:
    """As a dump loaded over a database that is in use: no connection is cut."""
    config = cloud_of(tmp_path)
    await lived_through(config)
    opened = await open_databases(config)
    watch = await watched(opened, keeps=keeps)
    before = await opened.cells[ONE].read(lambda tx: tx.scalar(sa.text("SELECT mark FROM store_identity")))
    await opened.cells[ONE].write(lambda tx: tx.run(sa.text("UPDATE store_identity SET mark = 0")))
    await watch.round()
    with pytest.raises(Unavailable, match="is not used until an administrator has checked") as barred:
        await opened.cells[ONE].write(lambda tx: None)
    assert "cell1 database is older than it was" in barred.value.named
    opened.cells[ONE].barred = ""
    await opened.cells[ONE].write(lambda tx: tx.run(sa.text(f"UPDATE store_identity SET mark = {before}")))
    await watch.round()
    await opened.cells[ONE].write(lambda tx: None)
    await watch.stop()
    await opened.close()


@pytest.mark.postgres
async def test_the_identity_is_checked_after_a_reconnect(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """A dump of an hour ago, loaded into a database of the same name: every new connection notices, before anything is read."""
    names = [f"identity_{tmp_path.name}_{each}".lower() for each in ("region", "cell1")]
    urls = [postgres_server.create_database(name) for name in names]
    config = msgspec.structs.replace(
        cloud_of(tmp_path), region=RegionSettings(database=urls[0]), cells=(Cell("cell1", urls[1]),)
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
        with pytest.raises(Unavailable, match="cell is older than it was") as barred:
            await opened.cells[ONE].read(lambda tx: tx.scalar(sa.text("SELECT 1")))
        assert "cell1 database is older than it was" in barred.value.named
        postgres_server.drop_database(names[1])
        postgres_server.create_database(names[1])
        with pytest.raises(Unavailable, match="cell is another one"):
            await opened.cells[ONE].write(lambda tx: tx.scalar(sa.text("SELECT 1")))
    finally:
        await watch.stop()
        await opened.close()
        for name in (*names, f"{names[1]}_kept"):
            postgres_server.drop_database(name)


# ------------------------------------------------------------------------------------------------------- adoption


async def book(config: Config, *names: str, seq: int = 1, deleted_in_region: bool = False) -> list[Server]:
    """Servers that the region placed in cell1, and their records there, as boots leave them."""
    opened = await open_databases(config)
    fence = cell_servers.Fence(OperationId("boot"), seq, 1, 1)
    made = [msgspec.structs.replace(a_server(), id=ServerId(str(uuid.uuid4())), name=name) for name in names]
    for each in made:
        row = {**server_values(each), "op_seq": seq, "cell": "cell1", "task": None, "doc": None, "operation": None}
        await opened.region.write(lambda tx, row=row: tx.run(region_servers.servers.insert(), row))  # type: ignore[misc]
        await opened.cells[ONE].write(lambda tx, each=each: cell_servers.record(tx, each, fence))  # type: ignore[misc]
        if deleted_in_region:
            await opened.region.write(lambda tx, each=each: region_servers.mark_deleted(tx, each.id, 1))  # type: ignore[misc]
    await opened.close()
    return made


async def test_a_restored_cell_is_adopted_and_missing_servers_are_listed(tmp_path: Path) -> None:
    config = cloud_of(tmp_path)
    await lived_through(config)
    (old, gone) = await book(config, "old", "gone")
    restore = keep(config, "cell1")
    (new,) = await book(config, "new")
    opened = await open_databases(config)
    await opened.region.write(lambda tx: region_servers.mark_deleted(tx, gone.id, 1))
    await opened.close()
    await lived_through(config)
    epoch_before = keep(config, "cell1")
    restore()
    assert "older than the region remembers" in await refused(config)
    said = "\n".join(await adopt(config))
    assert f"1 servers of the region are missing; their guests, ports and claims stay: {new.id}" in said
    assert "cell1: 1 servers were deleted after its backup" in said
    opened = await open_databases(config)
    rows = await opened.cells[ONE].read(
        lambda tx: {each.id: each.deleted for each in cell_identities.records(tx, "", 10)}
    )
    assert rows == {old.id: False, gone.id: True}
    await opened.close()
    await lived_through(config)
    epoch_before()  # somebody finds the disk of before, whose mark is higher
    assert "the database of cell1 is from before the last restore" in await refused(config)


async def test_a_restored_region_lists_its_cells_servers(tmp_path: Path) -> None:
    config = cloud_of(tmp_path)
    (old,) = await book(config, "old", seq=1)
    await lived_through(config)
    restore = keep(config, "region")
    (new,) = await book(config, "new", seq=7)
    opened = await open_databases(config)
    later = cell_servers.Fence(OperationId("stop"), 5, 1, 1)
    await opened.cells[ONE].write(lambda tx: cell_servers.take_over(tx, old.id, later))
    await opened.cells[ONE].write(lambda tx: cell_servers.record(tx, old, later))
    await opened.close()
    await lived_through(config)
    restore()
    assert "the region database is older" in await refused(config)
    said = "\n".join(await adopt(config))
    assert "1 servers were accepted after the region's backup, and are listed again" in said
    opened = await open_databases(config)
    where = await opened.region.read(lambda tx: region_servers.find(tx, new.id))
    assert where is not None
    assert (where.cell, where.recorded_in, where.operation) == (ONE, ONE, None)
    assert where.op_seq >= 7
    where = await opened.region.read(lambda tx: region_servers.find(tx, old.id))
    assert where is not None
    assert where.op_seq >= 5
    await opened.close()


async def test_a_lost_cell_is_adopted_only_by_name(tmp_path: Path) -> None:
    config = cloud_of(tmp_path)
    await book(config, "old")
    await lived_through(config)
    file_of(config, "cell1").unlink()
    with pytest.raises(Invalid, match="adopt --empty cell1"):
        await adopt(config)
    assert "missing" in "\n".join(await adopt(config, ["cell1"]))
    await lived_through(config)


async def test_nothing_is_adopted_while_a_process_runs(tmp_path: Path) -> None:
    config = cloud_of(tmp_path)
    await lived_through(config)
    lock = DataLock(config.data)
    with pytest.raises(Conflict, match="another moorage already runs"):
        await adopt(config)
    lock.release()
    config = msgspec.structs.replace(config, region=RegionSettings(database=config.region_url()))
    opened = await open_databases(config)
    await opened.region.write(lambda tx: conductors.take(tx, ConductorId("c1"), [], "host", ["boot/1"]))
    await opened.close()
    with pytest.raises(Conflict, match="conductors are running"):
        await adopt(config)


@pytest.mark.postgres
async def test_stamps_of_another_cluster_are_renewed_at_start(postgres_url: str, tmp_path: Path) -> None:
    """As a dump brings them: a catch-up reads nothing where nothing changed."""
    config = msgspec.structs.replace(cloud_of(tmp_path), region=RegionSettings(database=postgres_url))
    opened = await open_databases(config)
    report = InventoryReport(host="h1", cell="cell1", inventories={"VCPU": Inventory(8)})
    await opened.region.write(lambda tx: inventory.report_host(tx, report))
    for table in ("inventories", "providers"):
        await opened.region.write(lambda tx, table=table: tx.run(sa.text(f"UPDATE {table} SET changed = 50000000")))  # type: ignore[misc]
    await opened.close()
    opened = await open_databases(config)
    await opened.region.write(lambda tx: tx.run(sa.text("SELECT pg_current_xact_id()")))
    horizon = (await opened.region.read(lambda tx: since(tx, 0))).horizon
    assert (await opened.region.read(lambda tx: since(tx, horizon))).empty
    await opened.close()


@pytest.mark.postgres
async def test_dumps_are_restored_into_another_cluster(postgres_server: PostgresServer, tmp_path: Path) -> None:
    """`pg_dump` and `pg_restore`, as docs/operating/restore.md says it: it starts, and old stamps are none of the future's."""
    names = [f"dumped_{uuid.uuid4().hex[:8]}_{each}" for each in ("region", "cell1")]
    urls = [postgres_server.create_database(name) for name in names]

    def config_of(urls: list[str]) -> Config:
        region = RegionSettings(database=urls[0])
        return msgspec.structs.replace(cloud_of(tmp_path), region=region, cells=(Cell("cell1", urls[1]),))

    (server,) = await book(config_of(urls), "old")
    await lived_through(config_of(urls))
    other = start_postgres()
    try:
        for name, url in zip(names, urls, strict=True):
            ran(postgres_server.bin / "pg_dump", "--format=custom", f"--file={tmp_path}/{name}", url)
            ran(
                postgres_server.bin / "pg_restore",
                "--no-owner",
                f"--dbname={other.create_database(name)}",
                f"{tmp_path}/{name}",
            )
        moved = config_of([other.url_of(name) for name in names])
        said = "\n".join(await adopt(moved))
        assert "epoch 1 -> 2" in said
        await lived_through(moved)
        opened = await open_databases(moved)
        assert await opened.cells[ONE].read(lambda tx: cell_servers.get(tx, server.id)) is not None
        await opened.close()
        half = msgspec.structs.replace(
            moved, cells=(Cell("cell1", urls[1]),)
        )  # one URL was forgotten in the old cluster
        assert "the database of cell1 is from before the last restore" in await refused(half)
    finally:
        other.stop()
        for name in names:
            postgres_server.drop_database(name)


def ran(*command: object) -> None:
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
