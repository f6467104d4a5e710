"""Opens the limits of the identity service for a process whose configuration says that they hold."""

from moorage.main.config import Config
from moorage.main.databases import Databases
from moorage.main.service_clients import Clients
from moorage.operations.class_counts import ClassCounts
from moorage.operations.unified_limits import UnifiedLimitsCache, check_at_start


async def open_limits(config: Config, clients: Clients, databases: Databases) -> UnifiedLimitsCache | None:
    """None: our own limits hold. Raises Invalid when the identity service's limits cannot be followed."""
    if config.quota.driver == "local":
        return None
    cells = {str(cell): database for cell, database in databases.cells.items()}
    cache = UnifiedLimitsCache(clients.limits, config.quota.missing, ClassCounts(databases.region, cells).ready)
    await check_at_start(cache)
    return cache
