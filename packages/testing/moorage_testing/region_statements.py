"""What a small region is emptied and counted with before and after each case of a proof: statements that are put together once."""

from collections.abc import Iterable

import sqlalchemy as sa

from moorage.model.ids import CellId
from moorage.model.server import Server
from moorage.sql import Tx
from moorage.store.cell import actions, hosts, migrations, servers
from moorage.store.region import debts, hidden_records, quotas
from moorage.store.region import servers as region_servers
from moorage.store.region.notifications import OUTBOX
from moorage.store.region.placement.tables import placement_metadata

_allocations, _inventories = placement_metadata.tables["allocations"], placement_metadata.tables["inventories"]
EMPTY_REGION = (
    sa.delete(_allocations),
    sa.delete(placement_metadata.tables["consumers"]),
    sa.update(_inventories).values(used=0),
    sa.delete(region_servers.servers),
    sa.delete(quotas.quota_usage),
    sa.delete(OUTBOX.table),
    sa.delete(hidden_records.hidden_records),
    sa.delete(debts.debts),
)
EMPTY_CELL = (
    sa.delete(servers.servers),
    sa.delete(servers.fences),
    sa.delete(actions.actions),
    sa.delete(migrations.migrations),
    sa.delete(hosts.hosts),
)
CLAIMS = sa.select(sa.func.count()).select_from(_allocations)
USED = sa.select(sa.func.sum(_inventories.c.used))
CELL = sa.select(region_servers.servers.c.cell)
OPERATION = sa.select(region_servers.servers.c.operation)
ALLOCATED = sa.select(_allocations.c.provider, _allocations.c["class"], _allocations.c.used)
MOVES = (
    sa.select(migrations.migrations.c.status)
    .order_by(
        migrations.migrations.c.created_at.desc(),
        migrations.migrations.c.number.desc(),
        migrations.migrations.c.uuid.desc(),
    )
    .limit(10)
)


def records_on(tx: Tx, places: Iterable[tuple[str, CellId]]) -> list[Server]:
    """The records of servers on these hosts, whatever cell they are said to be in."""
    return [each for host, _ in places for each in servers.on_host(tx, host=host)]
