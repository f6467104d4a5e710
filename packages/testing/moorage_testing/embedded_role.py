"""The embedded services by themselves, over sockets, as the role `embedded` runs them: for clouds that reach them some other way."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from moorage.main.composition import open_region
from moorage.main.config import Config
from moorage.main.embedded import Embedded, open_embedded
from moorage.main.hosts import planned_hosts
from moorage.main.http_servers import HttpServer
from moorage.main.seed_data import seed
from moorage_embedded.network.hosts import HostNetworks
from moorage_embedded.network.outbox import NotifyCompute


@asynccontextmanager
async def embedded_alone(
    config: Config, notify_compute: NotifyCompute | None = None, around_network: Callable[[Any], Any] | None = None
) -> AsyncIterator[Embedded]:
    """Identity, image and network at the configuration's addresses, seeded, and wired to its simulated hosts."""
    async with AsyncExitStack() as stack:
        services = await open_embedded(config, notify_compute=notify_compute)
        stack.push_async_callback(services.stop)
        assert services.network is not None
        assert services.identity is not None
        region = await open_region(config, embedded=services.apps)
        plans = planned_hosts(config)
        await services.network.declare_hosts([HostNetworks(each.host, each.physical_networks) for each in plans])
        demo = await services.identity.project_id("demo")
        await seed(config, region.databases.region, services.image, services.network, demo)
        await region.stop()
        for name, app in services.apps.items():
            door = HttpServer(name, getattr(config.api, name), config)
            stack.push_async_callback(door.close)
            await door.open(around_network(app) if name == "network" and around_network is not None else app)
        yield services
