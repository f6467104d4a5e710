"""Reconcilers read servers in pages: the number of statements does not grow with the number of servers."""

from pathlib import Path

from moorage.model.ids import OperationId
from moorage_testing.bench.rounds import STATEMENTS_MOST, filled, measured
from moorage_testing.bench.table import Table
from moorage_testing.region_fixture import SmallRegion, a_server

SERVERS = 400


async def test_rounds_check_many_servers_with_few_statements(tmp_path: Path) -> None:
    small = await SmallRegion.open(tmp_path)
    try:
        await small.fresh(a_server(), OperationId("x"))
        table = Table()
        await measured(table, small, await filled(small, SERVERS), SERVERS)
    finally:
        await small.close()
    counted = [row for row in table.rows if row.counting]
    assert len(counted) == 4
    assert [row.value for row in counted if row.value > STATEMENTS_MOST] == []
