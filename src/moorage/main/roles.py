"""The roles of a cloud beyond one process: `moorage api`, `conductor`, `agent` and `embedded`, from one TOML file.

Each is a process of its own; any number of API and conductor processes share one region (RULES §3, §6).  They need a database
and a bus that more than one process can reach: PostgreSQL and NATS.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from moorage.agent.agent import Agent, AgentOptions
from moorage.agent.journal import AgentJournal, JournalFile
from moorage.agent.legacy_ports import PORTS_ARRIVE_BOUND
from moorage.bus.memory import MemoryBus
from moorage.conductor.reconcile_loop import ReconcileLoop
from moorage.drivers.driver import Driver
from moorage.drivers.fault_injection import FaultSettings
from moorage.drivers.simulated import SimulatedDriver
from moorage.main import agent_clean
from moorage.main.api_app import make_compute_app
from moorage.main.audit_log import open_audit_log
from moorage.main.composition import RegionProcess, cells_out, open_bus, open_region, start_conducting
from moorage.main.config import OPTIONAL_PORTS, Config, checked, read_config
from moorage.main.consoles import console
from moorage.main.event_bridge import EventsOverHttp
from moorage.main.event_loop import run_loop
from moorage.main.guarantees import GuaranteesOverHttp
from moorage.main.hosts import HostPlan, make_driver, planned_hosts, plumbing_of
from moorage.main.http_servers import HttpServer
from moorage.main.metadata import metadata
from moorage.main.observability import Sources, observe, of_region
from moorage.main.optional_packages import require_embedded
from moorage.main.placement_app import PREFIX, make_placement
from moorage.main.private_data_dir import keep_private
from moorage.main.process import set_up_process, stop_on_signals
from moorage.main.reconcilers import add_rounds
from moorage.main.seed_data import seed
from moorage.main.server_volumes import ServerVolumesOverHttp
from moorage.main.service_clients import Clients, HostsImages, make_clients, make_hosts_images, make_own_apis
from moorage.main.webconsole import webconsole
from moorage.model.clock import SystemClock
from moorage.model.errors import Invalid, Problem
from moorage.model.ids import CellId

_log = logging.getLogger(__name__)

Role = Callable[[Config, asyncio.Event], Awaitable[None]]


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
    _print_ready(f"api on {config.api.compute.url}, placement on {config.api.placement.url}{PREFIX}")
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
    _print_ready(f"conductor {region.context.hosts.me}")
    await stopping.wait()
    await rounds.stop()
    await region.stop()
    await observed.close()


async def agent(config: Config, stopping: asyncio.Event) -> None:
    """Run the role `agent` for one host: it has a bus and a driver, no database, and from level 3 on no credentials (S0.20).

    Raises Invalid when no host is named.
    """
    mine = config.agent
    if not mine.host:
        raise Invalid("say which host this is: [agent] host in the file, or --host")
    observed = await observe(config, "agent")
    bus, clock = await open_bus(config), SystemClock()
    room = config.data / "hosts" / mine.host
    file = JournalFile(room / "agent.db")
    old = mine.level < PORTS_ARRIVE_BOUND
    for line in not_a_hosts(config):
        _log.warning("%s", line)
    clients: Clients | None = None
    of_images: HostsImages | None = None
    if config.image_user.password:
        of_images = make_hosts_images(config)
    if old or (of_images is None and (config.service_user.password or not config.identity.url)):
        clients = make_clients(config)
    images = of_images.data if of_images is not None else None if clients is None else clients.image_data
    driver: Driver
    if mine.driver == "libvirt":
        plan = HostPlan(mine.host, CellId(mine.cell), mine.physical_networks, mine.level, real=True)
        driver = make_driver(config, plan, clock, images)
    else:
        dials = FaultSettings(
            vcpus=mine.vcpus, ram_mib=mine.ram_mib, disk_gib=mine.disk_gib, physical_networks=mine.physical_networks
        )
        driver = SimulatedDriver(room, clock, dials, hostname=mine.host, images=images)
    plumbing = plumbing_of(mine.host, mine.level, clients.network if old and clients is not None else None)
    serving = Agent(
        mine.host,
        CellId(mine.cell),
        bus,
        driver,
        AgentJournal(file, mine.host),
        clock,
        AgentOptions(plumbing=plumbing, silence_s=config.compute.host_silence_s, earlier=config.bus.earlier),
    )
    await serving.start()
    services = () if clients is None else clients.services
    observed.sees(Sources(bus=bus, agents=lambda: (serving,), services=services))
    _print_ready(f"agent of {mine.host} in {mine.cell}")
    await stopping.wait()
    await serving.stop()
    for each in (clients, of_images):
        if each is not None:
            await each.close()
    file.close()
    await bus.close()
    await observed.close()


def not_a_hosts(config: Config) -> list[str]:
    """Return warnings about secrets in an agent's file that a host does not need: an attacker on that machine could read them."""
    lines = []
    if config.region.database or any(cell.database for cell in config.cells):
        lines.append(
            "the file of this agent holds the address of a database, which an agent never uses: take [region] database and "
            "[[cells]] out of it, for whoever takes this machine has them"
        )
    if config.service_user.password and config.agent.level >= PORTS_ARRIVE_BOUND:
        lines.append(
            f"the file of this agent holds the password of [service_user], which no agent of level {config.agent.level} needs: take it "
            "out, and give it [image_user] for the data of images (docs/operating/bus.md)"
        )
    return lines


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
    _print_ready("embedded " + ", ".join(services.apps))
    await stopping.wait()
    services.end_waits()
    for door in doors.values():
        await door.close()
    await audited.close()
    await services.stop()
    await own.close()
    await observed.close()


ROLES: dict[str, Role] = {
    "api": api,
    "conductor": conductor,
    "agent": agent,
    "embedded": embedded,
    "metadata": metadata,
    "console": console,
    "console-web": webconsole,
}
OWN_LISTENERS = {"metadata": "metadata", "console": "console", "console-web": "webconsole"}
"""Role → the listener whose port `--port` sets."""


def _print_cells_out(region: RegionProcess) -> None:
    for line in cells_out(region):
        print(f"moorage: {line}", flush=True)


def _print_ready(what: str) -> None:
    print(f"moorage: {what}: ready", flush=True)


async def _run(role: Role, config: Config) -> None:
    await role(config, stop_on_signals(config))


def main(argv: list[str]) -> int:
    """Run a role; `argv[0]` is its name. Returns 2 for an error that the caller can correct."""
    if argv[:2] == ["agent", "clean"]:
        return agent_clean.main(argv[2:])
    parser = argparse.ArgumentParser(prog="moorage", description=__doc__)
    parser.add_argument("role", choices=sorted(ROLES))
    parser.add_argument("--config", type=Path, required=True, help="the TOML file that all processes share")
    parser.add_argument("--host", help="agent: the name of this host")
    parser.add_argument("--cell", help="agent: the cell it belongs to")
    parser.add_argument("--driver", choices=("simulated", "libvirt"), help="agent: what makes its guests")
    parser.add_argument("--physical-networks", help="agent: comma-separated")
    parser.add_argument("--level", type=int, choices=(1, 2, 3), help="agent: its protocol level")
    parser.add_argument(
        "--port",
        type=int,
        help="api, console, console-web, metadata: the port of this one, when several run on one machine",
    )
    parser.add_argument("--placement-port", type=int, help="api: the same for its Placement API")
    parser.add_argument("--metrics-port", type=int, help="the port of /metrics and /healthz of this process")
    arguments = parser.parse_args(argv)
    try:
        config = _with_arguments(read_config(arguments.config), arguments)
        set_up_process(config)
        keep_private(config.data)
        run_loop(_run(ROLES[arguments.role], config))
    except Problem as problem:
        print(f"moorage: {problem.public}", file=sys.stderr)
        return 2
    return 0


def _with_arguments(config: Config, arguments: argparse.Namespace) -> Config:
    replace = msgspec.structs.replace
    if arguments.role == "agent":
        mine = config.agent
        wires = mine.physical_networks
        if arguments.physical_networks:
            wires = tuple(arguments.physical_networks.split(","))
        config = replace(
            config,
            agent=replace(
                mine,
                host=arguments.host or mine.host,
                cell=arguments.cell or mine.cell,
                driver=arguments.driver or mine.driver,
                physical_networks=wires,
                level=arguments.level or mine.level,
            ),
        )
    own = OWN_LISTENERS.get(arguments.role, "compute")
    port_of_own = arguments.port
    if own in OPTIONAL_PORTS and port_of_own is None:
        port_of_own = getattr(config.api, own).port or OPTIONAL_PORTS[own]
    for name, port in ((own, port_of_own), ("placement", arguments.placement_port)):
        if port is not None:
            config = replace(config, api=replace(config.api, **{name: replace(getattr(config.api, name), port=port)}))
    if arguments.metrics_port is not None:
        config = replace(config, metrics=replace(config.metrics, port=arguments.metrics_port))
    return checked(config)
