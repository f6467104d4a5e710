"""A lease is taken and renewed only in the region's own database: its connections check the identity of the database, and are closed with the others."""

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from moorage.conductor.lease import ConductorLease
from moorage.main.config import Cell, Config, RegionSettings
from moorage.main.databases import Databases, open_databases, open_for_lease
from moorage.main.local_cluster.postgres import PostgresServer
from moorage.main.store_watch import StoreWatch
from moorage.model.clock import SystemClock
from moorage.model.errors import Unavailable
from moorage.model.ids import ConductorId
from moorage.sql import Database, open_database
from moorage.store.region import conductors

pytestmark = pytest.mark.postgres
RAISE = sa.text("UPDATE store_identity SET mark = mark + 1")


@dataclass
class Process:
    """A conductor's databases, and its lease."""

    opened: Databases
    pool: Database
    watch: StoreWatch
    lease: ConductorLease


@pytest.fixture
def name(postgres_server: PostgresServer) -> Iterator[str]:
    """Of the region's database; `{name}_kept` is one of an hour ago."""
    name = f"lease_{uuid.uuid4().hex[:8]}"
    postgres_server.create_database(name)
    yield name
    for each in (name, f"{name}_kept"):
        postgres_server.drop_database(each)


def config_of(server: PostgresServer, name: str, tmp_path: Path) -> Config:
    region = RegionSettings(database=server.url_of(name))
    cells = (Cell("cell1", f"sqlite:///{tmp_path}/cell1.db"),)
    return Config(data_dir=str(tmp_path / "data"), region=region, cells=cells)


@asynccontextmanager
async def process(config: Config) -> AsyncIterator[Process]:
    """As a conductor has them."""
    opened = await open_databases(config)
    watch = StoreWatch(opened.region, opened.cells, SystemClock(), every_s=3600)
    await watch.start()
    watch.keeps_marks = True
    pool = await open_for_lease(config, opened.region)
    assert pool is not opened.region
    await watch.also(pool)
    try:
        yield Process(
            opened, pool, watch, ConductorLease(ConductorId("me"), pool, SystemClock(), ["boot/1"], lease_s=600)
        )
    finally:
        await watch.stop()
        await pool.close()
        await opened.close()


async def leases(server: PostgresServer, name: str) -> int:
    looked = await open_database(server.url_of(name), name="looked")
    try:
        return int(
            await looked.read(lambda tx: tx.scalar(sa.select(sa.func.count()).select_from(conductors.conductors)))
        )
    finally:
        await looked.close()


@pytest.mark.parametrize("how", ["older", "another"])
async def test_no_lease_is_taken_or_renewed_in_another_database(
    postgres_server: PostgresServer, tmp_path: Path, name: str, how: str
) -> None:
    config = config_of(postgres_server, name, tmp_path)
    await (await open_databases(config)).close()
    postgres_server.create_database(f"{name}_kept", template=name)
    async with process(config) as mine:
        await mine.watch.round()
        await mine.lease.take()
        await mine.lease.renew()
        postgres_server.drop_database(name)
        postgres_server.create_database(name, template=f"{name}_kept")
        if how == "another":
            stranger = await open_database(postgres_server.url_of(name), name="stranger")
            await stranger.write(
                lambda tx: tx.run(sa.text(f"UPDATE store_identity SET uuid = '{uuid.uuid4()}', mark = 99"))
            )
            await stranger.close()
        words = "older than it was" if how == "older" else "another one"
        with pytest.raises(Unavailable, match=words):
            await mine.lease.renew()
        with pytest.raises(Unavailable, match=words):
            await mine.lease.take()
        assert await leases(postgres_server, name) == 0


async def test_no_lease_is_renewed_after_the_database_was_restored_under_its_connection(
    postgres_server: PostgresServer, tmp_path: Path, name: str
) -> None:
    """No connection is cut: the look at the databases bars the lease's as well, and lets it go on when they are right again."""
    async with process(config_of(postgres_server, name, tmp_path)) as mine:
        await mine.opened.region.write(lambda tx: tx.run(RAISE))
        await mine.watch.round()
        await mine.lease.take()
        before = await mine.opened.region.read(lambda tx: tx.scalar(sa.text("SELECT mark FROM store_identity")))
        await mine.pool.write(lambda tx: tx.run(sa.text("UPDATE store_identity SET mark = 0")))
        await mine.watch.round()
        for each in (mine.lease.renew, mine.lease.take):
            with pytest.raises(Unavailable, match="older than it was"):
                await each()
        mine.pool.barred = ""
        await mine.pool.write(lambda tx: tx.run(sa.text(f"UPDATE store_identity SET mark = {before}")))
        await mine.watch.round()
        await mine.lease.renew()


async def test_the_first_connection_of_a_lease_is_checked_too(
    postgres_server: PostgresServer, tmp_path: Path, name: str
) -> None:
    """Another database came between the region's connections and this one."""
    async with process(config_of(postgres_server, name, tmp_path)) as mine:
        await mine.watch.round()
        await mine.pool.write(lambda tx: tx.run(sa.text("UPDATE store_identity SET mark = 0")))
        with pytest.raises(Unavailable, match="older than it was"):
            await mine.watch.also(mine.pool)
