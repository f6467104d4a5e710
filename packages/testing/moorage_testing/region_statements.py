"""What a small region is emptied and counted with before and after each case of a proof: statements that are put together once."""

import sqlalchemy as sa

from moorage.sql import PreparedStatement
from moorage.store.cell import actions, hosts, migrations, servers
from moorage.store.region import hidden_records, quotas
from moorage.store.region import servers as region_servers
from moorage.store.region.notifications import OUTBOX
from moorage.store.region.placement.tables import placement_metadata

_allocations, _inventories = placement_metadata.tables["allocations"], placement_metadata.tables["inventories"]
EMPTY_REGION = (
    PreparedStatement(sa.delete(_allocations)),
    PreparedStatement(sa.delete(placement_metadata.tables["consumers"])),
    PreparedStatement(sa.update(_inventories).values(used=0)),
    PreparedStatement(sa.delete(region_servers.servers)),
    PreparedStatement(sa.delete(quotas.quota_usage)),
    PreparedStatement(sa.delete(OUTBOX.table)),
    PreparedStatement(sa.delete(hidden_records.hidden_records)),
)
EMPTY_CELL = (
    PreparedStatement(sa.delete(servers.servers)),
    PreparedStatement(sa.delete(servers.fences)),
    PreparedStatement(sa.delete(actions.actions)),
    PreparedStatement(sa.delete(migrations.migrations)),
    PreparedStatement(sa.delete(hosts.hosts)),
)
CLAIMS = PreparedStatement(sa.select(sa.func.count()).select_from(_allocations))
USED = PreparedStatement(sa.select(sa.func.sum(_inventories.c.used)))
CELL = PreparedStatement(sa.select(region_servers.servers.c.cell))
OPERATION = PreparedStatement(sa.select(region_servers.servers.c.operation))
ALLOCATED = PreparedStatement(sa.select(_allocations.c.provider, _allocations.c["class"], _allocations.c.used))
