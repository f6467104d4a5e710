"""Opens the limits of the identity service for a process whose configuration says that they hold."""

from moorage.main.config import Config
from moorage.main.service_clients import Clients
from moorage.operations.unified_limits import UnifiedLimitsCache, check_at_start


async def open_limits(config: Config, clients: Clients) -> UnifiedLimitsCache | None:
    """None: our own limits hold. Raises Invalid when the identity service's limits cannot be followed."""
    if config.quota.driver == "local":
        return None
    cache = UnifiedLimitsCache(clients.limits, config.quota.missing)
    await check_at_start(cache)
    return cache
