"""A cell's conductor: takes the reports of its hosts, answers those that come home, and writes what they observe.

It writes observed columns only; intent is the sagas' (RULES §3).  Heartbeats are kept in memory and reach the database for
many hosts at once, every other second.
"""

import asyncio
import logging
import math
from collections.abc import Mapping

from moorage.bus import subjects
from moorage.bus.carrier import Bus, Subscription
from moorage.bus.listening import Listening
from moorage.bus.messages import (
    AgentReturned,
    Heartbeat,
    HostReport,
    ReportWanted,
    ServersOfHost,
    ServerTurn,
    encode,
    read,
)
from moorage.conductor import forced_down
from moorage.model.clock import Clock
from moorage.model.errors import Problem
from moorage.model.guest import PhysicalFunction
from moorage.model.host import Host
from moorage.model.ids import CellId, ServerId
from moorage.model.network_providers import SRIOV, physnet_trait, sriov_provider
from moorage.model.request_groups import SRIOV_NET_VF, WHOLE_INTERFACE, VirtualFunction
from moorage.model.resources import Inventory
from moorage.model.server import Server, VmState
from moorage.model.turn import UNDO, Turn
from moorage.placement.engine import Engine
from moorage.placement.inventory import DeviceReport
from moorage.placement.inventory import HostReport as InventoryReport
from moorage.sql import Database, Tx, label
from moorage.store.cell import hosts as cell_hosts
from moorage.store.cell import servers as cell_servers
from moorage.store.region import servers as region_servers

logger = logging.getLogger(__name__)

FLUSH_S = 30.0
SILENT_S = 30.0
WATCH_S = 2.0
LAST_ATTEMPT = 1 << 20
RUNNING_STATES = frozenset({VmState.ACTIVE, VmState.BUILDING, VmState.PAUSED, VmState.RESCUED})


class CellConductor:
    """One per cell, in whichever process is configured for it; several may run, they write the same."""

    def __init__(
        self,
        cell: CellId,
        database: Database,
        region: Database,
        engine: Engine,
        bus: Bus,
        clock: Clock,
        *,
        zone: str = "nova",
        silent_s: float = SILENT_S,
    ) -> None:
        self.cell = cell
        self._database = database
        self._region = region
        self._engine = engine
        self._bus = bus
        self._clock = clock
        self._zone = zone
        self._silent_s = silent_s
        self._subscriptions: list[Subscription] = []
        self._life: asyncio.Task[None] | None = None
        self._heard: dict[str, float] = {}
        self._boots: dict[str, str] = {}
        self._beats: dict[str, int] = {}
        self._to_flush: set[str] = set()
        self._forced_down: set[str] = set()
        self._silent: set[str] = set()
        self._listening = Listening(bus, clock)

    async def start(self) -> None:
        self._listening = Listening(self._bus, self._clock)
        began = self._clock.monotonic()
        for known in await self._database.read(cell_hosts.listed):
            if known.forced_down:
                self._forced_down.add(known.host)
            self._heard.setdefault(known.host, began)
        self._subscriptions = [
            await self._bus.subscribe(subjects.report(self.cell), self._hear),
            await self._bus.subscribe(subjects.returned(self.cell), self._hear),
            await self._bus.subscribe(subjects.heartbeat(self.cell), self._hear),
        ]
        self._life = asyncio.create_task(self._watching(), name=f"cell-{self.cell}")

    async def stop(self) -> None:
        for subscription in self._subscriptions:
            await subscription.close()
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)

    # ------------------------------------------------------------------------------------------------- hearing

    async def _hear(self, subject: str, payload: bytes) -> None:
        message = read(payload)
        try:
            with label("hosts"):
                match message:
                    case HostReport():
                        await self.take_report(message)
                    case AgentReturned():
                        await self.welcome(message)
                    case Heartbeat():
                        await self.take_beat(message)
                    case _:
                        logger.warning("cell %s was told something it does not know, on %s", self.cell, subject)
        except Problem as problem:
            logger.warning("cell %s could not take a message from its host: %s %s", self.cell, problem, problem.private)

    async def take_report(self, told: HostReport) -> None:
        """Inventory to placement, the host's own record to the cell, power states to its servers."""
        self._hear_of(told.host, told.boot)
        provider = await self._engine.report_host(
            InventoryReport(
                host=told.host,
                node=told.hypervisor_hostname or told.host,
                cell=self.cell,
                inventories={
                    name: Inventory(
                        total=each.total,
                        reserved=each.reserved,
                        ratio=each.allocation_ratio,
                        min_unit=each.min_unit,
                        max_unit=each.max_unit,
                        step=each.step_size,
                    )
                    for name, each in told.inventory.items()
                },
                traits=told.traits,
                zone=self._zone,
                physnets=told.physical_networks,
                level=told.level,
            )
        )
        if told.physical_functions:
            await self._engine.report_devices([_device(told, each) for each in told.physical_functions])
        now = int(self._clock.now() * 1_000_000)
        host = Host(
            number=0,
            id=provider,
            service="",
            host=told.host,
            node=told.hypervisor_hostname or told.host,
            cell=self.cell,
            zone=self._zone,
            level=told.level,
            version=told.version,
            hypervisor_type=told.hypervisor_type,
            hypervisor_version=told.hypervisor_version,
            cpu_info=told.cpu_info,
            address=told.address,
            inventory=told.inventory,
            traits=told.traits,
            physical_networks=told.physical_networks,
        )

        def work(tx: Tx) -> Host:
            known = cell_hosts.report(tx, host, now)
            cell_servers.observe(tx, told.host, {each: int(state) for each, state in told.guests.items()})
            return known

        await self._database.write(work)
        await self._correct(told)

    async def _correct(self, told: HostReport) -> None:
        """Guests that do not belong there: the host was silent while their servers were deleted or went elsewhere."""
        await self._send_wrong(told.host, tuple(told.guests))

    async def _send_wrong(self, host: str, asked: tuple[ServerId, ...], *, turns_only: bool = False) -> None:
        told = await self.servers_of(host, asked, turns_only=turns_only)
        wrong = tuple(each for each in told if not each.here)
        if wrong:
            await self._bus.publish(subjects.to_host(self.cell, host), encode(ServersOfHost("", wrong)))

    async def take_beat(self, beat: Heartbeat) -> None:
        """A sign of life, and the power states that changed since the last one."""
        followed = beat.host in self._boots and beat.beat == self._beats.get(beat.host, -1) + 1
        self._beats[beat.host] = beat.beat
        self._hear_of(beat.host, beat.boot)
        if beat.changed:
            states = {server: int(state) for server, state in beat.changed.items()}
            await self._database.write(lambda tx: cell_servers.observe(tx, beat.host, states))
        if not followed and beat.beat > 0:  # one was lost, or we are new: what changed in between is in the report
            await self._bus.publish(subjects.to_host(self.cell, beat.host), encode(ReportWanted(beat.host)))

    def _hear_of(self, host: str, boot: str) -> None:
        self._heard[host] = self._clock.monotonic()
        self._boots[host] = boot
        self._to_flush.add(host)
        if host in self._silent:
            self._silent.discard(host)
            logger.info("host %s is heard again", host)
        self._engine.set_alive(host, host not in self._forced_down)

    async def welcome(self, returned: AgentReturned) -> None:
        """Tell a host that came home which servers are its own; it destroys the others (RULES §10)."""
        self._hear_of(returned.host, returned.boot)
        if returned.home:
            await self._send_wrong(returned.host, returned.guests, turns_only=True)
            return
        answer = ServersOfHost(returned.boot, await self.servers_of(returned.host, returned.guests))
        await self._bus.publish(subjects.to_host(self.cell, returned.host), encode(answer))

    async def servers_of(
        self, host: str, asked: tuple[ServerId, ...], *, turns_only: bool = False
    ) -> tuple[ServerTurn, ...]:
        """What the cell and the region know of each server the host spoke of.

        A server whose operation is still being told is left to that operation: its turns decide.  Nothing is said of one
        that the region has in this cell and the cell does not know, or that neither knows: a store that was restored
        from a backup knows less than its hosts, and absence is not a word (RULES §22).  `turns_only`: the host has no
        guests of them, only turns to forget.
        """
        mine = {server.id: server for server in await self._database.read(lambda tx: cell_servers.on_host(tx, host))}
        others = [each for each in asked if each not in mine]

        def elsewhere(tx: Tx) -> Mapping[ServerId, region_servers.Whereabouts | None]:
            return {each: region_servers.find(tx, each) for each in others}

        def recorded(tx: Tx) -> dict[ServerId, bool]:
            rows = {each: cell_servers.get(tx, each) for each in others}
            return {each: row.deleted for each, row in rows.items() if row is not None}

        known = await self._region.read(elsewhere)
        there = await self._database.read(recorded)
        gone = {each for each, deleted in there.items() if deleted}
        told = [self._here(server) for server in mine.values()]
        for each in others:
            where = known[each]
            if where is None and turns_only:
                told.append(ServerTurn(each, here=False, gone=True))
            elif where is None or (where.recorded_in == self.cell and each not in there):
                logger.warning(
                    "host %s has a guest of server %s, whose record is missing: it is left alone", host, each
                )
            elif where.operation is not None:
                continue
            elif where.deleted or each in gone or (where.order is None and not where.cell):
                told.append(ServerTurn(each, here=False, gone=True))
            else:
                told.append(ServerTurn(each, Turn(where.op_seq, LAST_ATTEMPT, UNDO), here=False))
        return tuple(told)

    @staticmethod
    def _here(server: Server) -> ServerTurn:
        return ServerTurn(server.id, None, here=True, running=server.vm_state in RUNNING_STATES)

    # ------------------------------------------------------------------------------------------------- watching

    async def _watching(self) -> None:
        flushed = self._clock.monotonic()
        while True:
            await self._clock.sleep(WATCH_S)
            try:
                self.look_for_silence()
                if self._clock.monotonic() - flushed >= FLUSH_S or self._to_flush:
                    flushed = self._clock.monotonic()
                    await self.flush()
                    self._listening.look(gap_max_s=math.inf)  # a slow database is no standstill of ours
            except Exception as failure:  # noqa: BLE001  whatever it is: who stopped watching would take the dead for living
                logger.warning("cell %s: %r", self.cell, failure)

    def look_for_silence(self) -> None:
        """Hosts not heard of for too long, though they could have been, are down until they are heard again."""
        for host, at in self._heard.items():
            if host not in self._silent and (unheard_s := self._listening.unheard_for_s(at)) > self._silent_s:
                self._silent.add(host)
                self._engine.set_alive(host, False)
                logger.warning("host %s has been silent for %.0f s", host, unheard_s)

    async def flush(self) -> None:
        """Write when hosts were last heard, all at once; read what operators said of them."""
        names, self._to_flush = self._to_flush, set()
        now = int(self._clock.now() * 1_000_000)

        def work(tx: Tx) -> set[str]:
            cell_hosts.heard(tx, names, now)
            return cell_hosts.forced_down(tx)

        with label("hosts"):
            forced = await self._database.write(work)
        for host in forced ^ self._forced_down:
            self._engine.set_alive(host, host not in forced and host not in self._silent)
        self._forced_down = forced
        await forced_down.mirror(self.cell, forced, self._database, self._region, self._engine)


def _device(told: HostReport, physical: PhysicalFunction) -> DeviceReport:
    """An SR-IOV interface as a provider: how many virtual functions it has, and which; without any it is given whole."""
    node = told.hypervisor_hostname or told.host
    functions = tuple(
        VirtualFunction(
            address=address,
            number=number,
            vendor_id=physical.vendor_id,
            product_id=physical.product_id,
            physical_network=physical.physical_network,
            pf_mac=physical.mac,
            card_serial_number=physical.card_serial_number,
        )
        for number, address in enumerate(physical.functions or (physical.address,))
    )
    return DeviceReport(
        hypervisor=node,
        id=sriov_provider(node, physical.address),
        name=f"{node}:{SRIOV}:{physical.interface}",
        inventories={SRIOV_NET_VF: Inventory(len(functions))},
        traits=(physnet_trait(physical.physical_network), *(() if physical.functions else (WHOLE_INTERFACE,))),
        functions=functions,
    )
