"""The hosts of one process (simulated ones, or this machine), each with its agent, its driver and its directory."""

import socket
from dataclasses import dataclass

from moorage.agent.agent import Agent
from moorage.agent.journal import AgentJournal, JournalFile
from moorage.agent.legacy_ports import PORTS_ARRIVE_BOUND, HostPortClient, Plumbing
from moorage.agent.options import AgentOptions
from moorage.bus.transport import Bus
from moorage.drivers.driver import Driver
from moorage.drivers.fault_injection import FaultSettings
from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.drivers.simulated import SimulatedDriver
from moorage.main.config import Config
from moorage.main.metadata_secret import shared_secret
from moorage.model.clock import Clock
from moorage.model.errors import Invalid
from moorage.model.guest import PhysicalFunction
from moorage.model.ids import CellId
from moorage.model.image import ImageStore
from moorage.model.image_ticket import TicketBox


@dataclass(frozen=True)
class HostPlan:
    """The settings of one host that is to be started."""

    host: str
    cell: CellId
    physical_networks: tuple[str, ...]
    level: int = PORTS_ARRIVE_BOUND
    physical_functions: tuple[PhysicalFunction, ...] = ()
    real: bool = False
    """By the driver `libvirt`."""


DEFAULT_COUNT, EARLIER_COUNT = 8, 6


def this_machine(config: Config) -> HostPlan:
    """Describe this machine as the one host of `moorage up`. Raises Invalid when its cell does not exist."""
    mine = config.agent
    if mine.cell not in {each.name for each in config.cells}:
        raise Invalid(f"[agent] cell is {mine.cell}, which is no cell of this configuration")
    return HostPlan(mine.host or socket.gethostname(), CellId(mine.cell), mine.physical_networks, real=True)


def planned_hosts(config: Config) -> list[HostPlan]:
    """Describe the configured number of hosts: neighbouring numbers share a cell, and physical networks alternate.

    Where no number is configured, the first six hosts are in the cells in which they were by default in earlier releases:
    a host never changes its cell. The last cell has the seventh host, and the one before it the eighth.
    """
    cells, wires, levels = config.cells, config.hosts.physical_networks, config.hosts.levels
    count, spread_over = config.hosts.count, config.hosts.count
    if count is None:
        count, spread_over = DEFAULT_COUNT, EARLIER_COUNT
    assert spread_over is not None
    places = [
        number * len(cells) // spread_over if number < spread_over else (spread_over - 1 - number) % len(cells)
        for number in range(count)
    ]
    return [
        HostPlan(
            f"host{number + 1}",
            CellId(cells[places[number]].name),
            wires[number % len(wires)],
            levels[number % len(levels)],
            (
                *cards(number, wires[number % len(wires)], config.hosts.virtual_functions),
                *passthrough_interfaces(number, wires[number % len(wires)], config.hosts.whole_interfaces),
            )
            if config.agent.driver == "simulated"
            else (),
            config.agent.driver == "libvirt",
        )
        for number in range(count)
    ]


def cards(host: int, wires: tuple[str, ...], functions: int) -> tuple[PhysicalFunction, ...]:
    """One SR-IOV interface on each wire of a simulated host."""
    if not functions:
        return ()
    return tuple(
        PhysicalFunction(
            interface=f"ens{place + 1}",
            address=f"0000:{0x80 + place:02x}:00.0",
            physical_network=wire,
            functions=tuple(f"0000:{0x80 + place:02x}:{1 + n // 8:02x}.{n % 8}" for n in range(functions)),
            vendor_id="8086",
            product_id="1889",
            mac=f"02:00:{host >> 8 & 255:02x}:{host & 255:02x}:{place:02x}:00",
        )
        for place, wire in enumerate(wires)
    )


def passthrough_interfaces(host: int, wires: tuple[str, ...], count: int) -> tuple[PhysicalFunction, ...]:
    """Interfaces on each physical network that are passed through to guests whole."""
    return tuple(
        PhysicalFunction(
            interface=f"enp{place + 1}s{number}",
            address=f"0000:{0xC0 + place:02x}:{number:02x}.0",
            physical_network=wire,
            vendor_id="8086",
            product_id="1572",
            mac=f"02:01:{host >> 8 & 255:02x}:{host & 255:02x}:{place:02x}:{number:02x}",
        )
        for place, wire in enumerate(wires)
        for number in range(count)
    )


def interfaces_by_network(plan: HostPlan) -> dict[str, tuple[str, ...]]:
    """Return the names of the interfaces on each physical network."""
    by_network: dict[str, tuple[str, ...]] = {}
    for one in plan.physical_functions:
        by_network[one.physical_network] = (*by_network.get(one.physical_network, ()), one.interface)
    return by_network


def plumbing_of(host: str, level: int, plumber: HostPortClient | None) -> Plumbing | None:
    """Return the host's access to ports: none from level 3 on. Raises Invalid when a host of level 1 or 2 has no network client."""
    if level >= PORTS_ARRIVE_BOUND:
        return None
    if plumber is None:
        raise Invalid(
            f"{host}: an agent of level {level} makes or binds ports itself, so it needs [service_user] password"
        )
    return Plumbing(host, level, plumber)


def make_driver(config: Config, plan: HostPlan, clock: Clock, images: ImageStore | None) -> LibvirtDriver:
    """Build the driver of a host with real guests."""
    return LibvirtDriver(
        config.data / "hosts" / plan.host,
        config.libvirt,
        clock,
        hostname=plan.host,
        images=images,
        physical_networks=plan.physical_networks,
        metadata_secret=shared_secret(config) if config.libvirt.metadata_url else "",
    )


class LocalHosts:
    """All hosts of this process."""

    def __init__(
        self,
        config: Config,
        bus: Bus,
        clock: Clock,
        plans: list[HostPlan],
        plumber: HostPortClient | None = None,
        images: ImageStore | None = None,
        tickets: TicketBox | None = None,
    ) -> None:
        """`plumber`: the network service, for hosts of level 1 and 2; hosts of level 3 do not use it.

        `images`: the image service, for the data of disks; None: disks have invented data, and no snapshot can be uploaded. `tickets`: takes what orders bring for it.
        """
        self._config, self._bus, self._clock, self._plumber = config, bus, clock, plumber
        self._tickets = tickets
        self._journal = JournalFile(config.data / "hosts" / "agents.db")
        self.agents: dict[str, Agent] = {}
        self.drivers: dict[str, SimulatedDriver] = {}
        """Fault settings of simulated hosts."""
        self._real: dict[str, LibvirtDriver] = {}
        for plan in plans:
            if plan.real:
                self._real[plan.host] = make_driver(config, plan, clock, images)
                self.agents[plan.host] = self._agent(plan)
                continue
            dials = FaultSettings(
                vcpus=config.hosts.vcpus,
                ram_mib=config.hosts.ram_mib,
                disk_gib=config.hosts.disk_gib,
                physical_networks=plan.physical_networks,
                physical_functions=plan.physical_functions,
            )
            driver = SimulatedDriver(config.data / "hosts" / plan.host, clock, dials, hostname=plan.host, images=images)
            self.drivers[plan.host] = driver
            self.agents[plan.host] = self._agent(plan)

    def _agent(self, plan: HostPlan) -> Agent:
        journal = AgentJournal(self._journal, plan.host)
        beat_s = self._config.hosts.beat_s
        plumbing = plumbing_of(plan.host, plan.level, self._plumber)
        driver: Driver = self._real[plan.host] if plan.real else self.drivers[plan.host]
        silence_s = self._config.compute.host_silence_s
        return Agent(
            plan.host,
            plan.cell,
            self._bus,
            driver,
            journal,
            self._clock,
            AgentOptions(plumbing=plumbing, beat_s=beat_s, silence_s=silence_s, tickets=self._tickets),
        )

    async def restart(self, plan: HostPlan) -> None:
        """Start a host's agent again: with the same guests and journal, and a new incarnation."""
        self.agents[plan.host] = self._agent(plan)
        await self.agents[plan.host].start()

    async def start(self) -> None:
        """Start all agents and return at once; an agent's `home` is set when its cell has accepted it."""
        for agent in self.agents.values():
            await agent.start()

    async def stop(self) -> None:
        for agent in self.agents.values():
            await agent.stop()
        self._journal.close()
