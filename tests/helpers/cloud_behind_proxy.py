"""A cloud whose network service is behind a proxy that makes faults; the service is the embedded one, on its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from moorage.conductor.reconcilers.orphan_allocations import OrphanAllocations
from moorage.conductor.reconcilers.orphan_ports import OrphanPorts
from moorage.main.config import Compute, Config, Hosts, ImageConfig, ServiceSettings
from moorage.main.embedded import Embedded
from moorage.main.event_bridge import EventReceiver
from moorage.main.up import start_cloud
from moorage.model.errors import Unavailable
from moorage_testing.api_user import Person
from moorage_testing.embedded_role import embedded_alone
from moorage_testing.fault_proxy import FlakyProxy
from moorage_testing.leak_audit import Census, nothing_leaked
from moorage_testing.waiting import PATIENCE_S, until
from tests.cloud.conftest import Running, a_config, plain

CALL_S = 1.0
"""How long a call to the network service may take here; a reply that comes later is late."""


@dataclass
class CloudBehindProxy:
    """A running cloud, the way to its network service, and that service."""

    running: Running
    proxy: FlakyProxy
    embedded: Embedded
    config: Config
    """As people see the cloud: the services' own addresses, not the proxy's."""

    @property
    def admin(self) -> Person:
        return self.running.admin

    async def _swept(self) -> bool:
        """False: a machine that is busy let a call take longer than `CALL_S`; the rounds come again."""
        context = self.running.cloud.region.context
        try:
            await OrphanPorts(context).run()
            await OrphanAllocations(context).run()
        except Unavailable:
            return False
        return True

    async def nothing_leaked(self) -> Census:
        """Calls that land late have landed, the rounds that look for such have been; then everything must add up."""
        await until(lambda: self.proxy.quiet)
        async with asyncio.timeout(PATIENCE_S):
            while not await self._swept():  # noqa: ASYNC110  what is asked of the service has no event
                await asyncio.sleep(0.1)
        return await nothing_leaked(self.config, self.admin)


@asynccontextmanager
async def cloud_behind_proxy(data: Path, **changes: Any) -> AsyncIterator[CloudBehindProxy]:
    """The role `embedded` and all the others of one configuration, and a proxy between them; counted at the end."""
    changes = {"hosts": Hosts(count=4), "compute": Compute(lease_s=60.0), **changes}
    alone = a_config(data, **changes)
    async with AsyncExitStack() as stack:
        events = EventReceiver()
        services = await stack.enter_async_context(embedded_alone(alone, events))
        proxy = await stack.enter_async_context(FlakyProxy(alone.api.network.url))
        config = a_config(data, **changes)
        config = msgspec.structs.replace(
            config,
            identity=ServiceSettings(f"{alone.api.identity.url}/v3"),
            image=ImageConfig(alone.api.image.url),
            network=msgspec.structs.replace(config.network, url=proxy.url, timeout_s=CALL_S),
        )
        cloud = await start_cloud(config)
        stack.push_async_callback(cloud.stop)
        events.region = cloud.region
        ours = {name: getattr(config.api, name) for name in ("compute", "placement")}
        seen = msgspec.structs.replace(alone, api=msgspec.structs.replace(alone.api, **ours))
        admin = await stack.enter_async_context(Person(seen))
        running = Running(cloud, admin)
        await running.listen()
        behind = CloudBehindProxy(running, proxy, services, seen)
        yield behind
        proxy.clear_faults()
        for host, driver in cloud.fleet.drivers.items():
            driver.turn(plain(cloud, host))
        await behind.nothing_leaked()
