"""One boot keeps its counting budget (P1): fourteen statements, five commits, six messages, two network calls."""

import pytest

from moorage.main.local_cluster.nats import nats_server_program
from moorage.main.local_cluster.postgres import find_binaries
from moorage_testing.bench import counts
from moorage_testing.bench.clouds import backing, cloud
from moorage_testing.bench.table import Table


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.skipif(find_binaries() is None or nats_server_program() is None, reason="no PostgreSQL or NATS here")
async def test_a_boot_keeps_its_budget_on_postgresql_and_nats() -> None:
    table = Table()
    with backing("postgresql") as found:
        async with cloud(found, hosts=4) as running:
            await counts.count(table, running)
    counted = {row.name: row.value for row in table.rows if row.counting}
    assert table.broken == []
    assert counted["SQL statements of one boot with one new port"] >= 10, "something was not counted"
    assert counted["write commits"] == 5
    assert counted["bus messages"] >= 2
    assert counted["calls to the network service"] == 2
    assert counted["on top, for the stored event of its port: statements"] == 1
