"""Builds the parts of a process that serves the API or executes operations, from its configuration."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from moorage.bus.agent_rpc import AgentClient, AudibleHosts
from moorage.bus.memory import MemoryBus
from moorage.bus.transport import Bus
from moorage.conductor.bulkheads import Places
from moorage.conductor.cell_conductor import CellConductor, CellConductorOptions
from moorage.conductor.dispatcher import BusDispatcher
from moorage.conductor.external_events import Events
from moorage.conductor.options import ConductorOptions
from moorage.conductor.port_descriptions import PortDescriber
from moorage.conductor.reconcilers.segments import Segments
from moorage.conductor.waking import Waker
from moorage.conductor.worker import Conductor
from moorage.drivers.redfish_fence import RedfishFence
from moorage.drivers.simulated_fence import SimulatedFence
from moorage.main.cell_intake import CellIntake
from moorage.main.config import Config
from moorage.main.databases import Databases, open_databases, open_for_lease
from moorage.main.decision_files import open_recorder
from moorage.main.flat_networks import open_flat
from moorage.main.limits import open_limits
from moorage.main.message_bus import open_bus
from moorage.main.notifications import NotificationParts, open_notifications
from moorage.main.region_key import open_seals
from moorage.main.service_clients import Clients, make_clients, ticket_secret
from moorage.main.store_watch import StoreWatch
from moorage.main.vendor_data import static_vendor_data
from moorage.model.clock import Clock, SystemClock
from moorage.model.errors import Invalid
from moorage.model.fence_proof import FencePlugin
from moorage.model.ids import CellId, ConductorId
from moorage.model.service_health import CircuitSeen
from moorage.operations.cell_databases import Cells, circuits_of
from moorage.operations.class_counts import ClassCounts
from moorage.operations.context import SagaContext, SagaSettings
from moorage.operations.encryption import Encryption
from moorage.operations.gate_watch import GateWatch
from moorage.operations.gates import ConductorCredentials, Credentials
from moorage.operations.process_heartbeat import Presence
from moorage.operations.unified_limits import UnifiedLimitsCache
from moorage.placement.engine import CATCH_UP_EVERY_S, Engine
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.sql import Database, Meter
from moorage.store.region import aggregates

HOSTS_HEARD_WITHIN_S = 3.0

logger = logging.getLogger(__name__)


@dataclass
class RegionProcess:
    """Everything that one process holds of a region; started and stopped in order."""

    config: Config
    databases: Databases
    bus: Bus
    clients: Clients
    engine: Engine
    dispatcher: BusDispatcher
    context: SagaContext
    seals: Encryption
    clock: Clock
    meter: Meter
    gates: GateWatch
    stores: StoreWatch
    intake: CellIntake
    notifications: NotificationParts | None = None
    """Where notifications go; None: notifications are off."""
    segments: Segments | None = None
    """Writes networks' segments into Placement; None: the network service does so itself, or there are no segments."""
    lease_on: Database | None = None
    """Where the conductor's lease is renewed; its own connection to the region's database, or that database."""
    conductor: Conductor | None = None
    waker: Waker | None = None
    """Of a process that conducts."""
    cells: list[CellConductor] = field(default_factory=list)
    describers: list[PortDescriber] = field(default_factory=list)
    events: Events | None = None
    presence: Presence | None = None
    limits: UnifiedLimitsCache | None = None
    """The limits of the identity service; None: our own hold."""

    async def appear(self, role: str) -> None:
        """Record that this process serves now, with its role and release."""
        self.presence = Presence(self.databases.region, self.clock, str(self.context.hosts.me), role)
        await self.presence.start()

    def leads(self) -> bool:
        """Tell whether this process is the conductor that runs the reconcilers of which one process is enough."""
        return self.conductor is not None and self.conductor.leads

    async def stop(self) -> None:
        """Stop everything in the opposite order of starting. Operations that are being executed stop where they are."""
        if self.presence is not None:
            await self.presence.stop()
        if self.events is not None:
            await self.events.stop()
        if self.waker is not None:
            await self.waker.stop()
        if self.conductor is not None:
            await self.conductor.stop()
        await self.intake.stop()
        for describer in self.describers:
            await describer.stop()
        for cell in self.cells:
            await cell.stop()
        if self.notifications is not None:
            await self.notifications.close()
        await self.gates.stop()
        await self.context.hosts.stop()
        await self.engine.close()
        await self.clients.close()
        await self.bus.close()
        await self.stores.stop()
        if self.lease_on is not None and self.lease_on is not self.databases.region:
            await self.lease_on.close()
        await self.databases.close()


def audible_hosts(config: Config) -> AudibleHosts:
    """Return the hosts whose messages this process accepts: if it has credentials, only those of its own cells."""
    cells = tuple(CellId(each.name) for each in config.cells) if config.bus.has_credentials else ()
    return AudibleHosts(cells, earlier=config.bus.earlier)


async def open_region(
    config: Config,
    *,
    embedded: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    meter: Meter | None = None,
    bus: Bus | None = None,
    databases: Databases | None = None,
    picture_every_s: float = CATCH_UP_EVERY_S,
) -> RegionProcess:
    """Open databases, bus, clients and the provider cache; no operation is executed yet.

    Parts that are given as arguments are used and not opened here.
    """
    clock, meter = clock or SystemClock(), meter or Meter()
    databases = databases or await open_databases(config, meter)
    stores = StoreWatch(databases.region, databases.cells, clock)
    await stores.start()
    intake = CellIntake(databases, stores, clock)
    seals = await open_seals(config, databases.region)
    bus = bus or await open_bus(config)
    clients = make_clients(config, embedded)
    engine = Engine(
        databases.region,
        partial(rank, profile=Profile().weighing(config.scheduler.multipliers)),
        aggregates=aggregates.for_placement,
        every_s=picture_every_s,
        recorder=open_recorder(config),
    )
    await engine.start()
    me = ConductorId(f"conductor-{uuid.uuid4().hex[:12]}")
    hosts = AgentClient(bus, me, clock, silent_s=config.compute.host_silence_s, audible=audible_hosts(config))
    hosts.sign_with(ticket_secret(config))
    await hosts.start()
    dispatcher = BusDispatcher(databases.region, bus)
    flat = config.network.backend == "flat"
    if flat:
        clients = replace(clients, network=open_flat(config, databases.region, engine))
    segments = None if flat or config.network.reports else Segments(clients.network, engine)
    notifications = open_notifications(config, bus)
    limits = await open_limits(config, clients)
    context = SagaContext(
        region=databases.region,
        cells=Cells(databases.cells),
        placement=engine,
        network=clients.network,
        images=clients.images,
        volumes=clients.volumes,
        hosts=hosts,
        dispatcher=dispatcher,
        draw_segments=None if segments is None else segments.drawn,
        redraw_segments=None if segments is None else segments.redraw,
        settings=SagaSettings(
            max_attempts=config.compute.max_attempts,
            auto_refusal=config.compute.auto_refusal,
            host_deadline_s=config.compute.host_deadline_s,
            host_silence_s=config.compute.host_silence_s,
            reclaim_instance_interval_s=config.compute.reclaim_instance_interval,
            rescue_image=config.compute.rescue_image,
            default_availability_zone=config.compute.default_availability_zone,
            vif_plugging_timeout_s=config.compute.vif_plugging_timeout,
            vif_plugging_is_fatal=config.compute.vif_plugging_is_fatal,
            image_deadline_s=config.compute.image_deadline_s,
            allow_resize_to_same_host=config.compute.allow_resize_to_same_host,
            allow_move_across_segments=config.compute.allow_move_across_segments,
            resize_confirm_window_s=config.compute.resize_confirm_window,
            shelved_offload_time_s=config.compute.shelved_offload_time,
            non_inheritable_image_properties=config.compute.non_inheritable_image_properties,
            cross_az_attach=config.volume.cross_az_attach,
            volume_zones={CellId(each.name): each.volume_zones for each in config.cells if each.volume_zones},
            cell_links=frozenset(frozenset(map(CellId, pair)) for pair in config.compute.cell_links),
            volume_wait_s=config.volume.wait_s,
            weights=config.scheduler.multipliers,
            waiting=config.waiting.limits,
            level_pin=None if config.upgrade_levels.compute == "auto" else config.upgrade_levels.compute,
            max_concurrent_live_migrations=config.compute.max_concurrent_live_migrations,
            live_migration_timeout_s=config.compute.live_migration_timeout_s,
            live_migration_permit_post_copy=config.compute.live_migration_permit_post_copy,
            quota=config.quota.defaults,
            force_config_drive=config.metadata.force_config_drive,
            dhcp_domain=config.metadata.dhcp_domain,
            static_vendor_data=static_vendor_data(config),
        ),
        vendor_data=clients.vendor_data,
        seals=seals,
        fence=_fence(config),
        notification_writer=None if notifications is None else notifications.notification_writer,
        unified_limits=None if limits is None else limits.of,
        count_classes=ClassCounts(databases.region, {str(cell): each for cell, each in databases.cells.items()}).ready,
    )
    pin = config.upgrade_levels.compute

    def circuits() -> tuple[CircuitSeen, ...]:
        return (*clients.open_circuits(), *circuits_of(databases.cells))

    gates = GateWatch(context, clock, pin=None if pin == "auto" else pin, circuits=circuits)
    await gates.start()
    if not flat:  # without ports, hosts of old levels behave like new ones
        context = replace(context, gates=gates.gates)
    intake.start()
    return RegionProcess(
        config,
        databases,
        bus,
        clients,
        engine,
        dispatcher,
        context,
        seals,
        clock,
        meter,
        gates,
        stores,
        intake,
        notifications,
        segments,
        limits=limits,
    )


def _fence(config: Config) -> FencePlugin | None:
    """Raises Invalid when its library is not installed."""
    match config.compute.fence_plugin:
        case "simulated":
            return SimulatedFence(config.data / "hosts")
        case "redfish":
            machines = {each.host: each for each in config.fence.machines}
            settings = config.fence
            return RedfishFence(
                machines, power_off=settings.power_off, timeout_s=settings.timeout_s, off_within_s=settings.off_within_s
            )
        case "":
            return None


async def start_conducting(
    region: RegionProcess, *, alone: bool, hosts: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Make this process a conductor, for the region and for every cell it is configured with.

    Operations begin only after hosts have reported, so that adopted operations find hosts for their servers.  `hosts` starts the
    hosts of this process; without it, this waits for a short time until all known hosts have reported.
    Raises Invalid when it has no working credentials for the network service and this deployment requires them (S0.10).
    """
    region.stores.keeps_marks = True
    config = region.config
    me = region.context.hosts.me
    check_credentials(await region.gates.try_mine(me), config)
    await region.intake.serve(partial(conduct, region, alone=alone))
    await (hosts or partial(wait_for_hosts, region))()
    region.lease_on = await open_for_lease(config, region.databases.region, region.meter)
    await region.stores.also(region.lease_on)
    slept = asyncio.Event()
    region.conductor = Conductor(
        region.context.hosts.me,
        replace(region.context, slept=slept.set),
        region.bus,
        region.clock,
        ConductorOptions(
            alone=alone,
            lease_s=config.compute.lease_s,
            beat_s=config.compute.lease_beat_s,
            places=Places(
                boots=config.compute.boots_at_once,
                deletes=config.compute.deletes_at_once,
                live_migrations=config.compute.live_migrations_at_once,
                actions=config.compute.actions_at_once,
                project_part=config.compute.project_part_max,
                cell_part=config.compute.cell_part_max,
            ),
            renamed=region.gates.become,
            lease_on=region.lease_on,
        ),
    )
    await region.conductor.start()
    await region.gates.become(me)
    region.dispatcher.local = region.conductor
    region.waker = Waker(region.conductor, region.context, region.bus, region.clock, slept)
    await region.waker.start()
    region.events = Events(region.context, region.bus, region.clock)
    await region.events.start()


async def conduct(region: RegionProcess, cell: CellId, *, alone: bool) -> None:
    """Make this process a conductor of the cell. Raises Unavailable when its database is out; then nothing was started."""
    conductor = CellConductor(
        cell,
        region.databases.cells[cell],
        region.databases.region,
        region.engine,
        region.bus,
        region.clock,
        CellConductorOptions(
            zone=region.config.compute.default_availability_zone,
            silent_s=region.config.compute.host_silence_s,
            alone=alone and isinstance(region.bus, MemoryBus),
            cells=region.databases.cells,
            earlier=region.config.bus.earlier,
            approves_itself=region.config.approves_hosts_itself,
        ),
    )
    try:
        await conductor.start()
    except BaseException:
        await conductor.stop()
        raise
    region.cells.append(conductor)
    describer = PortDescriber(cell, conductor.known, region.clients.network, region.bus, region.clock)
    describer.start()
    region.describers.append(describer)


def cells_out(region: RegionProcess) -> list[str]:
    """Return a line for each cell whose database is out, with the cause, for the person who started the process."""
    lines: list[str] = []
    for cell in region.context.cells.out():
        why = "; ".join(each.why for each in circuits_of({cell: region.databases.cells[cell]}))
        lines.append(f"cell {cell} is out, and its hosts take nothing until it answers: {why}")
    return lines


async def wait_for_hosts(region: RegionProcess, patience_s: float = HOSTS_HEARD_WITHIN_S) -> None:
    """Wait until every host that the cells know has reported, at most `patience_s`: some hosts may be gone for ever."""
    try:
        async with asyncio.timeout(patience_s):
            while any(cell.unheard() for cell in region.cells):
                await region.clock.sleep(0.02)
    except TimeoutError:
        names = sorted(name for cell in region.cells for name in cell.unheard())
        logger.warning(
            "%d hosts sent no heartbeat yet; those that were up when a conductor last ran count as up for %.0f s more: %s",
            len(names),
            region.config.compute.host_silence_s,
            ", ".join(names[:10]),
        )


def check_credentials(mine: ConductorCredentials, config: Config) -> None:
    """Check the conductor's credentials for the network service. Raises Invalid when it must not start with them (S0.10)."""
    if mine.state is Credentials.REFUSED and config.upgrade.conductor_credentials == "required":
        raise Invalid(
            f"this conductor's credentials for the network service do not work ({mine.why}), and this release requires them: "
            f'set [service_user] user, password and project (now "{config.service_user.user}" in '
            f'"{config.service_user.project}"), or [upgrade] conductor_credentials = "wanted" while hosts of level 1 and 2 '
            "still see to ports"
        )
