"""One simulated cloud: its machines, databases, bus and listeners, and the processes that run the product's own code on them."""

import asyncio
import math
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from moorage.main.config import Config
from moorage.main.databases import Databases, open_databases
from moorage.main.hosts import HostPlan, planned_hosts
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId
from moorage.sql import Database
from moorage_testing.simulation.armed_hosts import LostAnswers
from moorage_testing.simulation.bus import Hub, SimulatedBus
from moorage_testing.simulation.clock import MachineProcess, SimulatedMachine, VirtualClock
from moorage_testing.simulation.copies import Copies
from moorage_testing.simulation.database import SimulatedDatabase, SimulatedDatabaseServer
from moorage_testing.simulation.loop import SimulatedProcess, VirtualLoop, context_of
from moorage_testing.simulation.memory import MachineDisk
from moorage_testing.simulation.storage import Storage
from moorage_testing.simulation.trace import Trace
from moorage_testing.simulation.transports import RemoteTransport, ServiceEndpoint

SERVICES = ("identity", "image", "network", "volume", "compute", "placement")
_ASKED: sa.Executable = sa.select(sa.literal_column("1"))
EMBEDDED = ("identity", "image", "network", "volume")
WAKES_S = 0.5
"""After a freeze an agent notices within a tenth of a second that it stood still; a driver takes some time to stop."""
RESTART_S = 2.0
"""How long the supervisor of a process waits before it starts it again."""


class Violation(Exception):
    """Something that must hold does not: the run ends."""


class Role:
    """One process to be: started, killed and started again under one name."""

    def __init__(self, cloud: "SimulatedCloud", name: str) -> None:
        self.cloud = cloud
        self.name = name
        self.machine = cloud.machine(name)
        self.process: MachineProcess | None = None
        self.ready = False
        self.wanted = True
        self.woke_at = -math.inf
        self.barred = False
        """It must not be started now, whoever wants it."""
        self.powerless = False
        """Its machine is off."""

    @property
    def is_well(self) -> bool:
        """Nothing is wrong with what it works with."""
        return True

    async def open(self, process: MachineProcess) -> None:
        """Begin to serve; returns when it does."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop in order, as after a stop signal."""

    # ---- from outside ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A new process of this name."""
        self.wanted = True
        if self.process is not None or self.barred or self.powerless:
            return
        process = self.process = MachineProcess(self.name, self.machine)
        self.cloud.processes.append(process)
        self.cloud.loop.begin(process, self._live(process))

    async def _live(self, process: MachineProcess) -> None:
        try:
            await self.open(process)
        except Exception as failure:  # noqa: BLE001  as a supervisor does: whatever it is, it is started again
            self.cloud.trace.note("process", f"{self.name} could not start: {failure!r}")
            self._ended(process)
            if self.wanted:
                self.later(RESTART_S)
            return
        self.cloud.trace.note("process", f"{self.name} is ready")
        self.ready = True

    def later(self, delay_s: float) -> None:
        """Start it after a while, unless it runs by then."""
        self.cloud.call_later(delay_s, self.start)

    def kill(self) -> None:
        """It stops where it is."""
        if self.process is not None:
            self._ended(self.process)

    def _ended(self, process: MachineProcess) -> None:
        self.ready = False
        self.process = None
        self.cloud.loop.kill(process)
        self.cloud.hub.drop(process)
        for door in self.cloud.doors.values():
            if door.process is process:
                door.shut()

    async def stop(self) -> None:
        """It gets a stop signal, and stops; one that is not ready or does not end in time is killed."""
        process = self.process
        if process is None:
            return
        if self.ready and not process.frozen:
            ending = self.cloud.loop.begin(process, self.close())
            await asyncio.wait([ending], timeout=30.0)
        if self.process is process:
            self._ended(process)

    def freeze(self) -> None:
        if self.process is not None:
            self.cloud.loop.freeze(self.process)

    def thaw(self, process: SimulatedProcess | None, suspended_s: float = 0.0) -> None:
        """Go on, if it is still the process that was frozen."""
        if process is not None and process.frozen and not process.dead:
            self.cloud.loop.thaw(process, suspended_s=suspended_s)
            self.woke_at = self.cloud.loop.now


class SimulatedCloud:
    """Everything one simulation is made of."""

    def __init__(self, config: Config, seed: str, room: Path, loop: VirtualLoop) -> None:
        self.config = config
        self.room = room
        self.loop = loop
        self.trace = Trace(loop)
        self.hub = Hub(loop, self.dice(seed, "bus"), self.trace)
        self.machines: dict[str, SimulatedMachine] = {}
        self.processes: list[MachineProcess] = []
        self.stores = {
            name: SimulatedDatabaseServer(
                loop, name, self.machine(f"database-{name}"), self.dice(seed, name), self.trace
            )
            for name in ("region", *(cell.name for cell in config.cells), *EMBEDDED)
        }
        self.doors = {
            name: ServiceEndpoint(loop, name, self.dice(seed, f"door-{name}"), self.trace) for name in SERVICES
        }
        self.plans: list[HostPlan] = planned_hosts(config)
        self.disks = {plan.host: MachineDisk() for plan in self.plans}
        self.roles: dict[str, Role] = {}
        self.guests: dict[ServerId, dict[str, PowerState]] = {}
        """Server → host → what its guest there is doing."""
        self.storage = Storage(self)
        self.lost_answers = LostAnswers()
        self.copies = Copies(self)
        self.lost: set[ServerId] = set()
        """Servers whose machine was taken away."""
        self.evacuates = False
        """Servers are evacuated in this plan, so nobody says of a host that it is off when it is not."""
        self.half_done: set[str] = set()
        """Hosts whose hypervisors may have done what they say they did not."""
        self.violations: list[str] = []
        self.known: Any = None
        self.watch: Any = None
        """What the template left: ids and tokens."""
        self.restores: Any = None
        self.work: asyncio.Future[None] | None = None
        """A restore that is under way, or was."""
        self._world = MachineProcess("world", self.machine("world"))
        self._context = context_of(self._world)

    @staticmethod
    def dice(seed: str, name: str) -> random.Random:
        """A stream of its own for everything that draws: one event fewer elsewhere changes nothing here."""
        return random.Random(f"{seed} {name}")

    def draw_for(self, seed: str) -> None:
        """Every stream begins anew, with this seed."""
        self.hub.dice.seed(f"{seed} bus")
        for name, store in self.stores.items():
            store.dice.seed(f"{seed} {name}")
        for name, door in self.doors.items():
            door.dice.seed(f"{seed} door-{name}")

    def machine(self, name: str) -> SimulatedMachine:
        if name not in self.machines:
            self.machines[name] = SimulatedMachine(self.loop, name)
        return self.machines[name]

    def call_later(self, delay_s: float, callback: Any, *args: Any) -> None:
        """Outside of every process."""
        self.loop.call_later(delay_s, callback, *args, context=self._context)

    def violated(self, what: str) -> None:
        """Say so; the run ends."""
        self.trace.note("VIOLATION", what)
        self.violations.append(what)
        self.loop.ended = Violation(what)

    # ------------------------------------------------------------------------------------------------- what processes get

    def clock(self, process: MachineProcess) -> VirtualClock:
        return VirtualClock(process.machine)

    def bus(self, process: SimulatedProcess) -> SimulatedBus:
        return SimulatedBus(self.hub, process)

    def database(self, name: str) -> Database:
        return SimulatedDatabase(self.stores[name])

    async def databases(self) -> Databases:
        """As every process opens them: examined, brought forward, each cell behind its circuit, one that is out left out."""
        return await open_databases(self.config, opened=self.connected)

    async def connected(self, name: str) -> Database:
        """Raises Unavailable when it does not answer the running process."""
        database = self.database(name)
        await database.read(lambda tx: tx.row(_ASKED))
        return database

    def service_transports(self) -> Mapping[str, Any]:
        """Ways to the embedded services, for a client."""
        return {name: RemoteTransport(self.doors[name]) for name in EMBEDDED}

    # ------------------------------------------------------------------------------------------------- guests

    def guest_is(self, host: str, server: ServerId, power: PowerState | None) -> None:
        """Called by the hosts' drivers; None: the guest is gone."""
        if self.guests.get(server, {}).get(host) is power:
            return
        where = self.guests.setdefault(server, {})
        if power is None:
            where.pop(host, None)
            if not where:
                del self.guests[server]
            if self.restores is not None:
                self.restores.gone(host, server)
        else:
            where[host] = power
        self.trace.note("guest", f"{server[:8]} on {host}: {'gone' if power is None else power.name}")
        self._one_runs(server)

    def take_away(self, machine: str) -> None:
        """It is switched off for ever, with what ran there: nobody can say any more what became of those servers."""
        for server in [each for each, where in self.guests.items() if machine in where]:
            self.lost.add(server)
            self.guest_is(machine, server, None)
            self.storage.writes(machine, server, None, ())

    def sleeps(self, machine: str) -> bool:
        """It stands still, with all that runs on it."""
        return self.machine(machine).asleep

    def check_guests(self) -> None:
        """At most one running guest of a server: after a machine woke up."""
        for server in list(self.guests):
            self._one_runs(server)
        self.storage.check()

    def run_twice(self, server: ServerId) -> list[str]:
        """The hosts that run a server, when it is more than one that is awake."""
        running = [each for each, state in self.guests.get(server, {}).items() if state is PowerState.RUNNING]
        awake = sorted(each for each in running if not self.machine(each).asleep)
        return awake if len(awake) > 1 else []

    def acts(self, host: str) -> bool:
        """Whether its agent runs: one that does not can stop no guest."""
        role = self.roles.get(host)
        return role is not None and role.ready and role.process is not None and not role.process.frozen

    def reachable(self, host: str) -> bool:
        """Whether its agent runs and reaches the bus, and has not woken just now: what a hypervisor had begun goes on as it wakes."""
        if not self.acts(host):
            return False
        role = self.roles[host]
        return self.hub.reaches(role.process) and self.loop.now - role.woke_at >= WAKES_S

    def is_well(self, host: str) -> bool:
        """Whether its hypervisor is."""
        return self.roles[host].is_well

    def _one_runs(self, server: ServerId) -> None:
        """If one of them cannot be reached, `progress.watch_guests` waits until it can."""
        awake = self.run_twice(server)
        if awake and all(self.reachable(each) for each in awake):
            self.violated(f"two guests of {server} run: on {' and '.join(awake)}")

    # ------------------------------------------------------------------------------------------------- the end

    def leave(self) -> None:
        """Drop all references; nothing of it runs any more."""
        for process in self.processes:
            process.dead = True
        self.loop.close()
        for store in self.stores.values():
            store.close()
        shutil.rmtree(self.room, ignore_errors=True)
