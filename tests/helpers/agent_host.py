"""A host for tests: an agent over a simulated driver, a cell that answers it, and a conductor's caller."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from moorage.agent.agent import Agent
from moorage.agent.journal import AgentJournal, JournalFile
from moorage.agent.options import AgentOptions
from moorage.bus import subjects
from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.bus.agent_rpc import AgentClient
from moorage.bus.command_messages import Result
from moorage.bus.host_messages import AgentReturned, Heartbeat, HostReport, ServersOfHost, ServerTurn
from moorage.bus.messages import Message, encode, read
from moorage.bus.transport import Bus
from moorage.drivers.fault_injection import FaultSettings
from moorage.drivers.simulated import SimulatedDriver
from moorage.model.clock import SystemClock
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import GuestSpec, VifAddress, VifData
from moorage.model.ids import CellId, ConductorId, NetworkId, OperationId, PortId, ServerId

CELL = CellId("cell1")
HOST = HostAddress(CELL, "n1.example.org")
SERVER = ServerId("7f4b2c1e-0000-4000-8000-000000000001")


def guest(server: ServerId = SERVER, *, vcpus: int = 1) -> GuestSpec:
    vif = VifData(
        PortId("p1"), NetworkId("net"), "fa:16:3e:00:00:01", vif_type="ovs", addresses=(VifAddress("10.0.0.5"),)
    )
    return GuestSpec(server, "web", vcpus, 512, 1, hostname="web", vifs=(vif,))


def command_context(
    seq: int = 1,
    attempt: int = 0,
    *,
    step: str = "start_guest",
    patience_s: float = 60.0,
    undo: bool = False,
    though_silent: bool = False,
) -> CommandContext:
    turn = FencingToken(seq, attempt)
    return CommandContext(OperationId("o"), turn.undo() if undo else turn, step, patience_s, though_silent)


class Cell:
    """Answers agents that return, and remembers all it hears."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.knows: dict[ServerId, ServerTurn] = {}
        self.answers = True
        self.heard: list[Message] = []
        self.left: list[Heartbeat] = []

    async def start(self) -> None:
        for pattern in (
            subjects.hosts_of(CELL, subjects.RETURNED),
            subjects.hosts_of(CELL, subjects.REPORT),
            subjects.hosts_of(CELL, subjects.HEARTBEAT),
            subjects.results_in_cell(CELL),
        ):
            await self.bus.subscribe(pattern, self.on_message)

    async def on_message(self, _: str, payload: bytes) -> None:
        message = read(payload)
        assert message is not None
        if isinstance(message, Heartbeat) and message.leaving:
            self.left.append(message)
            return
        self.heard.append(message)
        if isinstance(message, AgentReturned) and self.answers:
            told = ServersOfHost(message.boot, tuple(self.knows.values()), knows_senders=True)
            await self.bus.publish(subjects.to_host(CELL, message.host), encode(told))

    def reports(self) -> list[HostReport]:
        return [each for each in self.heard if isinstance(each, HostReport)]

    def beats(self) -> list[Heartbeat]:
        return [each for each in self.heard if isinstance(each, Heartbeat)]

    def results(self) -> list[Result]:
        return [each for each in self.heard if isinstance(each, Result)]


class MachineClock(SystemClock):
    """A machine's own: its hands may be wrong, and it may have been suspended."""

    def __init__(self) -> None:
        self.wrong_s = 0.0
        self.suspended_s = 0.0

    def now(self) -> float:
        return super().now() + self.wrong_s

    def monotonic(self) -> float:
        return super().monotonic() + self.suspended_s


class Host:
    """One agent that can be killed and started again; its guests and its journal stay in the directory."""

    def __init__(self, bus: Bus, directory: Path, dials: FaultSettings | None = None, beat_s: float = 0.05) -> None:
        self.bus, self.directory, self.dials, self.beat_s = bus, directory, dials, beat_s
        self.clock = MachineClock()
        self.begin()

    def begin(self) -> None:
        clock = self.clock
        self.driver = SimulatedDriver(self.directory, clock, self.dials, hostname=HOST.host)
        self.file = JournalFile(self.directory / "journal.db")
        self.journal = AgentJournal(self.file, HOST.host)
        self.agent = Agent(
            HOST.host, CELL, self.bus, self.driver, self.journal, clock, AgentOptions(beat_s=self.beat_s)
        )

    async def start(self) -> None:
        await self.agent.start()

    async def stop(self) -> None:
        await self.agent.stop()
        self.file.close()

    async def restart(self) -> None:
        await self.stop()
        self.begin()
        await self.start()


class Place:
    def __init__(self, bus: Bus, cell: Cell, host: Host, caller: AgentClient) -> None:
        self.bus, self.cell, self.host, self.caller = bus, cell, host, caller


_conductors = itertools.count()


@asynccontextmanager
async def place(
    bus: Bus,
    directory: Path,
    dials: FaultSettings | None = None,
    *,
    silent_s: float = 15.0,
    taken_after_s: float = 30.0,
    resend_s: float = 0.05,
) -> AsyncIterator[Place]:
    cell = Cell(bus)
    await cell.start()
    caller = AgentClient(
        bus,
        ConductorId(f"k{next(_conductors)}"),
        SystemClock(),
        resend_s=resend_s,
        silent_s=silent_s,
        taken_after_s=taken_after_s,
    )
    await caller.start()
    host = Host(bus, directory, dials)
    await host.start()
    try:
        yield Place(bus, cell, host, caller)
    finally:
        await caller.stop()
        await host.stop()
        await bus.close()
