"""Builds consoles: the part of the API that issues tokens, and the proxy that accepts them (`moorage console`)."""

import asyncio
import uuid
from pathlib import Path

from msgspec.structs import replace

from moorage.api.console.app import ConsoleProxy, ProxySettings
from moorage.bus.agent_rpc import AgentClient
from moorage.main.cell_intake import CellIntake
from moorage.main.composition import RegionProcess, audible_hosts
from moorage.main.config import OPTIONAL_PORTS, Config
from moorage.main.databases import Databases, open_databases
from moorage.main.http_servers import HttpServer
from moorage.main.message_bus import open_bus
from moorage.main.observability import Observed, Sources, observe
from moorage.main.store_watch import StoreWatch
from moorage.model.clock import Clock, SystemClock
from moorage.model.console import ConsoleType
from moorage.model.errors import Invalid
from moorage.model.ids import ConductorId
from moorage.operations.guest.consoles import Consoles, ConsoleSettings
from moorage.operations.process_heartbeat import Presence

ROLE = "console"
DISTRIBUTIONS_NOVNC = "/usr/share/novnc"
"""Where Debian and others install noVNC."""


def urls(config: Config) -> dict[str, str]:
    """Return the public URL of the proxy for each console type: the configured one, or that of our own proxy."""
    mine = config.console
    listen = config.api.console
    own = replace(listen, port=listen.port or OPTIONAL_PORTS[ROLE]).url
    return {
        ConsoleType.NOVNC: mine.novnc_url or f"{own}/vnc_lite.html",
        ConsoleType.SERIAL: mine.serial_url or f"{own.replace('http', 'ws', 1)}/",
        ConsoleType.SPICE_HTML5: mine.spice_html5_url,
        ConsoleType.SPICE_DIRECT: mine.spice_direct_url,
        ConsoleType.WEBMKS: mine.mks_url,
    }


def make_consoles(config: Config, databases: Databases, hosts: AgentClient, clock: Clock) -> Consoles:
    """Build the part that issues console tokens and looks them up."""
    settings = ConsoleSettings(urls(config), config.console.token_life_s, config.console.single_use)
    cells = {str(cell): database for cell, database in databases.cells.items()}
    return Consoles(databases.region, cells, hosts, clock, settings)


def make_proxy(config: Config, consoles: Consoles) -> ConsoleProxy:
    """Build the console proxy. Raises Invalid when noVNC's directory does not exist."""
    mine = config.console
    directory = mine.novnc_directory and str(config.data / mine.novnc_directory)
    if not directory and Path(DISTRIBUTIONS_NOVNC).is_dir():
        directory = DISTRIBUTIONS_NOVNC
    if directory and not Path(directory).is_dir():
        raise Invalid(f"[console] novnc_directory {directory} is no directory")
    settings = ProxySettings(
        allowed_origins=mine.allowed_origins,
        novnc_directory=directory,
        connections_max=mine.connections_max,
        connections_of_a_server_max=mine.connections_of_a_server_max,
        enforce_expiry=mine.enforce_session_timeout,
    )
    return ConsoleProxy(consoles, settings)


def consoles_of(region: RegionProcess) -> Consoles:
    return make_consoles(region.config, region.databases, region.context.hosts, region.clock)


async def open_proxy(door: HttpServer, config: Config, consoles: Consoles, observed: Observed) -> ConsoleProxy:
    """Serve it."""
    proxy = make_proxy(config, consoles)
    await door.open(observed.app(ROLE, proxy), websockets_max=config.console.connections_max)
    return proxy


async def console(config: Config, stopping: asyncio.Event) -> None:
    """Run the role `console`: it needs the databases for tokens and the bus to reach hosts; no scheduler, no other services."""
    door = HttpServer(ROLE, config.api.console, config)
    observed = await observe(config, ROLE)
    databases = await open_databases(config)
    clock = SystemClock()
    stores = StoreWatch(databases.region, databases.cells, clock)
    await stores.start()
    intake = CellIntake(databases, stores, clock)
    intake.start()
    bus = await open_bus(config)
    me = f"{ROLE}-{uuid.uuid4().hex[:12]}"
    hosts = AgentClient(
        bus, ConductorId(me), clock, silent_s=config.compute.host_silence_s, audible=audible_hosts(config)
    )
    await hosts.start()
    proxy = await open_proxy(door, config, make_consoles(config, databases, hosts, clock), observed)
    presence = Presence(databases.region, clock, me, ROLE)
    await presence.start()
    observed.sees(Sources(databases=databases.by_name, bus=bus, hosts=hosts, proxy=proxy, doors={ROLE: door}))
    print(f"moorage: console on {config.api.console.url}: ready", flush=True)
    await stopping.wait()
    await door.close()
    await presence.stop()
    await intake.stop()
    await hosts.stop()
    await bus.close()
    await stores.stop()
    await databases.close()
    await observed.close()
