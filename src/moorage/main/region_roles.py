"""The roles that have the region's databases: `api` and `conductor`; and `embedded`, which seeds them for a set without real services."""

import asyncio

from moorage.bus.memory import MemoryBus
from moorage.conductor.reconcile_loop import ReconcileLoop
from moorage.main.api_app import make_compute_app
from moorage.main.audit_log import open_audit_log
from moorage.main.composition import RegionProcess, cells_out, open_region, start_conducting
from moorage.main.config import Config
from moorage.main.event_bridge import EventsOverHttp
from moorage.main.guarantees import GuaranteesOverHttp
from moorage.main.hosts import planned_hosts
from moorage.main.http_servers import HttpServer
from moorage.main.observability import Sources, observe, of_region
from moorage.main.optional_packages import require_embedded
from moorage.main.placement_app import PREFIX, make_placement
from moorage.main.process import print_ready
from moorage.main.reconcilers import add_rounds
from moorage.main.seed_data import seed
from moorage.main.server_volumes import ServerVolumesOverHttp
from moorage.main.service_clients import make_own_apis
from moorage.model.errors import Problem


async def api(config: Config, stopping: asyncio.Event) -> None:
    """Run the role `api`: the Compute API and the Placement API. It accepts operations and executes none."""
    listens = {"compute": config.api.compute, "placement": config.api.placement}
    doors = {name: HttpServer(name, listen, config) for name, listen in listens.items()}
    observed = await observe(config, "api")
    region = await open_region(config)
    audited = open_audit_log(config, region)
    await doors["placement"].open(observed.app("placement", audited.around("placement", make_placement(region))))
    await doors["compute"].open(observed.app("compute", audited.around("compute", make_compute_app(region))))
    await region.appear("api")
    observed.sees(of_region(region, doors=doors))
    _print_cells_out(region)
    print_ready(f"api on {config.api.compute.url}, placement on {config.api.placement.url}{PREFIX}")
    await stopping.wait()
    await asyncio.gather(*(door.close() for door in doors.values()))
    await audited.close()
    await region.stop()
    await observed.close()


async def conductor(config: Config, stopping: asyncio.Event) -> None:
    """Run the role `conductor`: it executes operations, takes the reports of every configured cell's hosts, and runs reconcilers.

    Raises Invalid when a conductor must not start with this configuration, and Unavailable when the region cannot be reached.
    """
    observed = await observe(config, "conductor")
    region = await open_region(config)
    try:
        await start_conducting(region, alone=False)
    except Problem:
        await region.stop()
        raise
    rounds = ReconcileLoop(region.clock, region.leads)
    add_rounds(rounds, region)
    await region.appear("conductor")
    observed.sees(of_region(region, rounds))
    _print_cells_out(region)
    print_ready(f"conductor {region.context.hosts.me}")
    await stopping.wait()
    await rounds.stop()
    await region.stop()
    await observed.close()


async def embedded(config: Config, stopping: asyncio.Event) -> None:
    """Run the role `embedded`: the embedded identity, image, network and volume services, for a set without real ones.

    Raises Invalid where the package with these services is not installed.
    """
    require_embedded()
    from moorage.main.embedded import host_networks, open_embedded

    doors = {
        name: HttpServer(name, getattr(config.api, name), config) for name in ("identity", "image", "network", "volume")
    }
    observed = await observe(config, "embedded")
    own = make_own_apis(config)
    services = await open_embedded(
        config,
        notify_compute=EventsOverHttp(own.compute),
        guarantees=GuaranteesOverHttp(own.placement),
        server_volumes=ServerVolumesOverHttp(own.compute),
    )
    region = await open_region(
        config, embedded=services.apps, bus=MemoryBus()
    )  # only to seed the data: no other process is connected
    demo = "" if services.identity is None else await services.identity.project_id("demo")
    if services.network is not None:
        plans = planned_hosts(config)
        await services.network.declare_hosts(host_networks(config, plans))
    await seed(config, region.databases.region, services.image, services.network, demo)
    await region.stop()
    audited = open_audit_log(config, None)
    for name, app in services.apps.items():
        await doors[name].open(observed.app(name, audited.around(name, app)))
    databases = {each.name: each for each in services.databases}
    observed.sees(Sources(databases=databases, services=(own.compute, own.placement, own.identity), doors=doors))
    print_ready("embedded " + ", ".join(services.apps))
    await stopping.wait()
    services.end_waits()
    for door in doors.values():
        await door.close()
    await audited.close()
    await services.stop()
    await own.close()
    await observed.close()


def _print_cells_out(region: RegionProcess) -> None:
    for line in cells_out(region):
        print(f"moorage: {line}", flush=True)
