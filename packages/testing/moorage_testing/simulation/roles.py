"""The processes of a simulated cloud, joined as `moorage.main` joins the real ones."""

from typing import Any

import httpx
import msgspec
from typing_extensions import override

from moorage.agent.agent import Agent, AgentOptions
from moorage.agent.journal import AgentJournal
from moorage.clients.asgi_transport import Base
from moorage.conductor.reconcile_loop import ReconcileLoop
from moorage.drivers.fault_injection import FaultSettings, VerbDial
from moorage.drivers.simulated import SimulatedDriver
from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.drivers.simulated_transfer import SimulatedTransfer
from moorage.main.api_app import make_compute_app
from moorage.main.composition import RegionProcess, open_region, start_conducting
from moorage.main.config import Config
from moorage.main.embedded import Embedded, open_embedded
from moorage.main.hosts import HostPlan, plumbing_of
from moorage.main.placement_app import make_placement
from moorage.main.reconcilers import add_rounds
from moorage.main.server_volumes import VERSION
from moorage.main.service_clients import Clients, make_clients, service_password
from moorage.model.clock import Clock
from moorage.model.errors import Unavailable
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId
from moorage.model.image import ImageStore
from moorage.sql import Database
from moorage_testing.simulation.clock import MachineProcess
from moorage_testing.simulation.cloud import Role, SimulatedCloud
from moorage_testing.simulation.memory import DiskJournal, MachineDisk

PICTURE_EVERY_S = 2.0
"""Seldom, so that pictures are old and idle seconds cost little."""
ASKED_EVERY_S = 3.0
"""How often a conductor checks for drains and audits, which simulations have none of: idle seconds cost less."""


class EmbeddedServicesRole(Role):
    """Identity, image and network in one process, as in `moorage embedded`; compute gets events about ports over HTTP."""

    embedded: Embedded | None = None

    @override
    async def open(self, process: MachineProcess) -> None:
        async def database(name: str) -> Database:
            return self.cloud.database(name)

        self.embedded = await open_embedded(
            self.cloud.config, notify_compute=self._notify, databases=database, server_volumes=self._held
        )
        for name, app in self.embedded.apps.items():
            self.cloud.doors[name].open(process, app)

    @override
    async def close(self) -> None:
        if self.embedded is not None:
            await self.embedded.stop()

    async def _notify(self, events: list[dict[str, Any]]) -> None:
        if self.cloud.known is None:
            return
        url = f"{self.cloud.config.api.compute.url}/v2.1"
        headers = {"X-Auth-Token": self.cloud.known.service_token, "Content-Type": "application/json"}
        body = msgspec.json.encode({"events": events})
        status, _, said = await self.cloud.doors["compute"].ask(
            Base(url, {}), "POST", "/os-server-external-events", "", headers, body, 1_000_000
        )
        if status >= 500 or status == 401:
            raise Unavailable(f"compute was not told: {status}", private=said.decode(errors="replace")[:200])

    async def _held(self, server: str, volume: str) -> str | None:
        """As `ServerVolumesOverHttp` asks."""
        url = f"{self.cloud.config.api.compute.url}/v2.1"
        headers = {"X-Auth-Token": self.cloud.known.service_token, "OpenStack-API-Version": f"compute {VERSION}"}
        path = f"/servers/{server}/os-volume_attachments/{volume}"
        try:
            status, _, said = await self.cloud.doors["compute"].ask(
                Base(url, {}), "GET", path, "", headers, b"", 1_000_000
            )
        except httpx.TransportError as broken:
            raise Unavailable(f"compute does not say whether server {server} uses the volume") from broken
        if status == 404:
            return None
        if status != 200:
            raise Unavailable(f"compute does not say whether server {server} uses the volume: {status}")
        held = msgspec.json.decode(said)["volumeAttachment"]["attachment_id"]
        return None if held is None else str(held)


class RegionRole(Role):
    """What the API and conductors have in common."""

    region: RegionProcess | None = None

    async def open_region(self, process: MachineProcess) -> RegionProcess:
        cloud = self.cloud
        self.region = await open_region(
            cloud.config,
            embedded=cloud.service_transports(),
            clock=cloud.clock(process),
            bus=cloud.bus(process),
            databases=await cloud.databases(),
            picture_every_s=PICTURE_EVERY_S,
        )
        return self.region


class ApiRole(RegionRole):
    """`moorage api`."""

    @override
    async def open(self, process: MachineProcess) -> None:
        region = await self.open_region(process)
        self.cloud.doors["placement"].open(process, make_placement(region))
        self.cloud.doors["compute"].open(process, make_compute_app(region))

    @override
    async def close(self) -> None:
        if self.region is not None:
            await self.region.stop()


class ConductorRole(RegionRole):
    """`moorage conductor`."""

    rounds: ReconcileLoop | None = None

    @override
    async def open(self, process: MachineProcess) -> None:
        region = await self.open_region(process)
        await start_conducting(region, alone=False)
        self.rounds = ReconcileLoop(region.clock, region.leads)
        add_rounds(self.rounds, region, ASKED_EVERY_S)

    @override
    async def close(self) -> None:
        if self.rounds is not None:
            await self.rounds.stop()
        if self.region is not None:
            await self.region.stop()


class WatchedDriver(SimulatedDriver):
    """The simulated hypervisor; the cloud sees what its guests do."""

    def __init__(
        self,
        cloud: SimulatedCloud,
        host: str,
        machine: str,
        clock: Clock,
        dials: FaultSettings,
        images: ImageStore | None,
    ) -> None:
        super().__init__(cloud.room / "hosts" / machine, clock, dials, hostname=host, images=images)
        self._cloud = cloud
        self._host = machine

    @override
    def _keep(self, guest: SimulatedGuest) -> PowerState:
        power = super()._keep(guest)
        self._cloud.guest_is(self._host, guest.spec.server, guest.power)
        self._cloud.storage.writes(self._host, guest.spec.server, guest.power, guest.spec.volumes)
        self._cloud.copies.guest(self._host, guest)
        return power

    @override
    def _remove(self, server: ServerId) -> None:
        super()._remove(server)
        self._cloud.guest_is(self._host, server, None)
        self._cloud.storage.writes(self._host, server, None, ())
        self._cloud.copies.gone(self._host, server)

    @override
    def _switch(self, guest: SimulatedGuest, power: PowerState, transfer: SimulatedTransfer) -> None:
        """It runs there from this instant on, whether or not the other driver looks."""
        super()._switch(guest, power, transfer)
        there, server = transfer.to.name, guest.spec.server
        self._cloud.guest_is(there, server, power)
        self._cloud.storage.writes(there, server, power, guest.spec.volumes)
        self._cloud.copies.guest(there, msgspec.structs.replace(guest, power=power))

    def lose_power(self) -> None:
        """All of its guests are off, also when this driver's process is dead or had not begun."""
        self._load()
        self.crash_host()

    def guest(self, server: ServerId) -> SimulatedGuest | None:
        """As the host has it."""
        return self._guests.get(server)

    def keeps_copy(self, server: ServerId) -> bool:
        """Whether a copy of its disk lies here that waits to be sent."""
        return self._disks.has_copy(server)


USUAL = {
    "start_guest": VerbDial(delay_s=0.05, jitter_s=1.5),
    "destroy_guest": VerbDial(delay_s=0.02, jitter_s=0.5),
    "*": VerbDial(jitter_s=0.3),
}
"""What every hypervisor takes for its work."""


class AgentRole(Role):
    """`moorage agent` of one host."""

    def __init__(self, cloud: SimulatedCloud, plan: HostPlan, *, machine: str = "") -> None:
        """`machine`: another than the host's own, which by mistake has its name."""
        super().__init__(cloud, machine or plan.host)
        self.plan = plan
        cloud.disks.setdefault(self.name, MachineDisk())
        self.level = plan.level
        self.dials = FaultSettings(
            vcpus=cloud.config.hosts.vcpus,
            ram_mib=cloud.config.hosts.ram_mib,
            disk_gib=cloud.config.hosts.disk_gib,
            physical_networks=plan.physical_networks,
            physical_functions=plan.physical_functions,
            verbs=USUAL,
        )
        self.driver: WatchedDriver | None = None
        self.agent: Agent | None = None
        self._clients: Clients | None = None

    @override
    async def open(self, process: MachineProcess) -> None:
        cloud, host = self.cloud, self.plan.host
        clock = cloud.clock(process)
        self._clients = make_clients(self._config(), cloud.service_transports())
        plumbing = plumbing_of(host, self.level, self._clients.network)
        self.driver = WatchedDriver(cloud, host, self.name, clock, self.dials, self._clients.image_data)
        journal = AgentJournal(DiskJournal(cloud.disks[self.name]), host)
        self.agent = Agent(
            host,
            self.plan.cell,
            cloud.bus(process),
            self.driver,
            journal,
            clock,
            AgentOptions(
                plumbing=plumbing,
                beat_s=cloud.config.hosts.beat_s,
                silence_s=cloud.config.compute.host_silence_s,
            ),
        )
        await self.agent.start()

    def _config(self) -> Config:
        """The same, with a directory of the machine's own for what it reads of images."""
        config = self.cloud.config
        user = msgspec.structs.replace(config.service_user, password=service_password(config))
        room = self.cloud.room / "hosts" / self.name
        return msgspec.structs.replace(config, data_dir=str(room), service_user=user)

    @override
    async def close(self) -> None:
        if self.agent is not None:
            await self.agent.stop()
        if self._clients is not None:
            await self._clients.close()

    @property
    @override
    def is_well(self) -> bool:
        return self.dials.verbs == USUAL

    def turn(self, dials: FaultSettings) -> None:
        """What goes wrong on this host from now on."""
        self.dials = dials
        if self.driver is not None:
            self.driver.turn(dials)


def people(cloud: SimulatedCloud) -> None:
    """Every role of the usual cloud: services, an API, two conductors, and its hosts' agents."""
    roles: list[Role] = [EmbeddedServicesRole(cloud, "neighbours"), ApiRole(cloud, "api")]
    roles += [ConductorRole(cloud, f"conductor{number}") for number in (1, 2)]
    roles += [AgentRole(cloud, plan) for plan in cloud.plans]
    cloud.roles = {role.name: role for role in roles}
