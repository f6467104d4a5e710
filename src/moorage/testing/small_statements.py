"""What a small region is emptied and counted with before and after each case of a proof: statements that are put together once."""

import sqlalchemy as sa

from moorage.sql import Ready
from moorage.store.cell import actions, hosts, migrations, servers
from moorage.store.region import hidden_records, quotas
from moorage.store.region import servers as region_servers
from moorage.store.region.notifications import OUTBOX
from moorage.store.region.placement.tables import placement_metadata

_allocations, _inventories = placement_metadata.tables["allocations"], placement_metadata.tables["inventories"]
EMPTY_REGION = (
    Ready(sa.delete(_allocations)),
    Ready(sa.delete(placement_metadata.tables["consumers"])),
    Ready(sa.update(_inventories).values(used=0)),
    Ready(sa.delete(region_servers.servers)),
    Ready(sa.delete(quotas.quota_usage)),
    Ready(sa.delete(OUTBOX.table)),
    Ready(sa.delete(hidden_records.hidden_records)),
)
EMPTY_CELL = (
    Ready(sa.delete(servers.servers)),
    Ready(sa.delete(servers.fences)),
    Ready(sa.delete(actions.actions)),
    Ready(sa.delete(migrations.migrations)),
    Ready(sa.delete(hosts.hosts)),
)
CLAIMS = Ready(sa.select(sa.func.count()).select_from(_allocations))
USED = Ready(sa.select(sa.func.sum(_inventories.c.used)))
CELL = Ready(sa.select(region_servers.servers.c.cell))
OPERATION = Ready(sa.select(region_servers.servers.c.operation))
ALLOCATED = Ready(sa.select(_allocations.c.provider, _allocations.c["class"], _allocations.c.used))
