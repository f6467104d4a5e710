"""The role `agent`: one host, as a process of its own.

It stands apart from the other roles, because a host needs neither databases nor APIs, and whatever this module imports is in the
memory of every host's agent.
"""

import asyncio
import logging
from zlib import crc32

from moorage.agent.agent import Agent
from moorage.agent.journal import AgentJournal, JournalFile
from moorage.agent.legacy_ports import PORTS_ARRIVE_BOUND
from moorage.agent.options import AgentOptions
from moorage.drivers.driver import Driver
from moorage.drivers.fault_injection import FaultSettings
from moorage.drivers.simulated import SimulatedDriver
from moorage.main.config import Config
from moorage.main.config_hosts import AgentConfig
from moorage.main.hosts import HostPlan, cards, make_driver, plumbing_of
from moorage.main.message_bus import open_bus
from moorage.main.observability import Sources, observe
from moorage.main.process import print_ready
from moorage.main.service_clients import Clients, HostsImages, make_clients, make_hosts_images
from moorage.model.clock import SystemClock
from moorage.model.errors import Invalid
from moorage.model.ids import CellId

_log = logging.getLogger(__name__)


def simulated_machine(mine: AgentConfig) -> FaultSettings:
    """Return what the simulated host of an agent of its own has."""
    return FaultSettings(
        vcpus=mine.vcpus,
        ram_mib=mine.ram_mib,
        disk_gib=mine.disk_gib,
        physical_networks=mine.physical_networks,
        physical_functions=cards(crc32(mine.host.encode()), mine.physical_networks, mine.virtual_functions),
    )


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
    if config.image_user.password or (config.image.url and not config.service_user.password):
        of_images = make_hosts_images(config)
    if old or (of_images is None and (config.service_user.password or not config.identity.url)):
        clients = make_clients(config)
    images = of_images.data if of_images is not None else None if clients is None else clients.image_data
    driver: Driver
    if mine.driver == "libvirt":
        plan = HostPlan(mine.host, CellId(mine.cell), mine.physical_networks, mine.level, real=True)
        driver = make_driver(config, plan, clock, images)
    else:
        driver = SimulatedDriver(room, clock, simulated_machine(mine), hostname=mine.host, images=images)
    plumbing = plumbing_of(mine.host, mine.level, clients.network if old and clients is not None else None)
    serving = Agent(
        mine.host,
        CellId(mine.cell),
        bus,
        driver,
        AgentJournal(file, mine.host),
        clock,
        AgentOptions(
            plumbing=plumbing,
            silence_s=config.compute.host_silence_s,
            earlier=config.bus.earlier,
            tickets=None if of_images is None else of_images.tickets,
        ),
    )
    await serving.start()
    services = () if clients is None else clients.services
    observed.sees(Sources(bus=bus, agents=lambda: (serving,), services=services))
    print_ready(f"agent of {mine.host} in {mine.cell}")
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
            "out (docs/operating/bus.md)"
        )
    if config.image.ticket_secret:
        lines.append(
            "the file of this agent holds [image] ticket_secret, with which conductors sign what a host may do with images: take it "
            "out, for whoever takes this machine could sign tickets for all images"
        )
    return lines
