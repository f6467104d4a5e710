"""`moorage up` from a second data directory, on databases that a living conductor uses: it adopts none of its operations."""

from pathlib import Path

import msgspec
import pytest
from tests.cloud.conftest import a_config

from moorage.main.config import Cell, Config, Hosts, RegionSettings
from moorage.main.databases import open_databases
from moorage.main.local_cluster.postgres import PostgresServer
from moorage.main.up import start_cloud
from moorage.model.ids import ConductorId, OperationId
from moorage.operations.accept import accepted
from moorage.operations.registry import SAGAS
from moorage.sql.postgresql import PostgresqlDatabase
from moorage.store.region import conductors, operations
from moorage_testing.region_fixture import a_boot, a_server

LIVING, DEAD = ConductorId("living"), ConductorId("dead")
LEASE_S = 600.0


def on_postgresql(server: PostgresServer, directory: Path) -> Config:
    urls = [server.create_database(f"{directory.name}_{each}".lower()) for each in ("region", "cell1")]
    return a_config(
        directory / "data",
        hosts=Hosts(count=1),
        region=RegionSettings(database=urls[0]),
        cells=(Cell("cell1", urls[1]),),
    )


@pytest.mark.postgres
async def test_a_second_directory_adopts_no_living_operations(postgres_server: PostgresServer, tmp_path: Path) -> None:
    config = on_postgresql(postgres_server, tmp_path)
    opened = await open_databases(config)
    for owner in (LIVING, DEAD):
        new = accepted(
            SAGAS["boot/1"],
            OperationId(f"boot of the {owner}"),
            a_server(),
            a_boot(OperationId("boot")),
            owner=owner,
            user="u",
            seq=1,
            request_id="r",
        )
        await opened.region.write(lambda tx, new=new: operations.accept(tx, [new]))  # type: ignore[misc]
    await opened.region.write(lambda tx: conductors.take(tx, LIVING, [], "host", list(SAGAS), LEASE_S))
    second = await start_cloud(msgspec.structs.replace(config, data_dir=str(tmp_path / "second")))
    try:
        assert second.region.conductor is not None

        async def of(owner: ConductorId) -> str:
            row = await opened.region.read(lambda tx: operations.get(tx, OperationId(f"boot of the {owner}")))
            assert row is not None
            return row.owner

        assert await of(DEAD) == second.region.conductor.id
        assert await of(LIVING) == LIVING
        assert LIVING in {each.id for each in await opened.region.read(conductors.living)}
        lease_on = second.region.lease_on
        assert isinstance(lease_on, PostgresqlDatabase)
        assert lease_on.greet is not None  # its connections ask who answers, as those of the region do
    finally:
        await second.stop()
        await opened.close()
