"""A conductor of one cell in a small region, with the messages of one host."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from moorage.bus import subjects
from moorage.bus.host_messages import (
    AgentReturned,
    Heartbeat,
    HostReport,
    ServerTurn,
)
from moorage.bus.memory import MemoryBus
from moorage.bus.messages import Message, encode, read
from moorage.conductor.cell_conductor import SILENT_S, CellConductor
from moorage.conductor.digest_comparison import COMPARE_AGAIN_S, COMPARE_EVERY_S
from moorage.model.clock import SystemClock
from moorage.model.errors import Unavailable
from moorage.model.guest import PowerState, ResourceInventory, digest
from moorage.model.ids import CellId, OperationId, ServerId
from moorage.operations.registry import SAGAS
from moorage.operations.steps import servers as records
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.sql import Tx
from moorage.store.region import operations
from moorage.store.region import servers as region_servers
from moorage_testing.region_fixture import SERVER, SmallRegion, a_boot, a_server
from moorage_testing.waiting import until

BOOT = OperationId("boot")
ONE, OTHER = "agent-1", "agent-2"


class Clock(SystemClock):
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.passed_s = 1_000.0

    def monotonic(self) -> float:
        return self.passed_s

    def now(self) -> float:
        return 1_700_000_000.0 + self.passed_s


class CellUnderTest:
    """A server that was booted, the conductor of its cell, and what its host is told."""

    def __init__(self, small: SmallRegion, cell: CellId, host: str) -> None:
        self.small, self.cell, self.host = small, cell, host
        self.clock, self.bus = Clock(), MemoryBus()
        self.told: list[Message] = []
        self.replaces: tuple[str, ...] | None = None
        """What reports say of the agents before."""
        self.conductor = self.another()

    def another(self) -> CellConductor:
        small = self.small
        return CellConductor(self.cell, small.cells[self.cell], small.region, small.engine, self.bus, self.clock)

    async def on_message(self, _: str, payload: bytes) -> None:
        message = read(payload)
        assert message is not None
        self.told.append(message)

    async def say(self, message: Message, conductor: CellConductor | None = None) -> None:
        await (conductor or self.conductor)._on_message("a subject", encode(message))
        await until(lambda: self.bus.quiet)

    def heard(self, kind: type[Any]) -> list[Any]:
        found = [each for each in self.told if isinstance(each, kind)]
        self.told = [each for each in self.told if not isinstance(each, kind)]
        return found

    def report(self, guests: dict[ServerId, PowerState], agent: str = ONE, host: str = "") -> HostReport:
        inventory = {"VCPU": ResourceInventory(8)}
        return HostReport(
            host or self.host, self.cell, "x", agent, inventory=inventory, guests=guests, replaces=self.replaces
        )

    def beat(self, number: int, guests: dict[ServerId, PowerState], agent: str = ONE, **more: Any) -> Heartbeat:
        return Heartbeat(self.host, self.cell, agent, number, len(guests), digest(guests), **more)

    async def compare(self) -> None:
        """Two looks, as they come round."""
        self.clock.passed_s += COMPARE_EVERY_S
        await self.conductor.compare_some()
        self.clock.passed_s += COMPARE_AGAIN_S
        await self.conductor.compare_some()
        self.clock.passed_s += 60.0
        for known in self.conductor._known:
            await self.conductor._ask_if_due(known)
        await until(lambda: self.bus.quiet)

    def silence(self) -> None:
        """Longer than a host may be silent; the conductor looks all the time."""
        for _ in range(int(SILENT_S) + 2):
            self.clock.passed_s += 1.0
            self.conductor.mark_silent_hosts()

    async def held(self) -> None:
        """The boot is under way still."""
        row = {
            "id": BOOT,
            "saga": "boot/1",
            "server": SERVER,
            "project": "p",
            "user": "u",
            "owner": "c",
            "status": "open",
        }
        row |= {"epoch": 1, "head": 1, "seq": 1, "created_at": 1, "updated_at": 1, "asked": "{}", "journal": ""}
        hold = sa.update(region_servers.servers).values(operation=BOOT)

        def work(tx: Tx) -> None:
            tx.run(operations.operations.delete())
            tx.run(operations.operations.insert().values(row))
            tx.run(hold)

        await self.small.region.write(work)

    async def power(self) -> int:
        server = (await records.find(self.small.context, SERVER)).server
        assert server is not None
        return server.power_state

    def alive(self) -> bool:
        world = self.small.engine.world()
        return bool(world.alive[world.slots_by_name[self.host]])


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[CellUnderTest]:
    small = await SmallRegion.open(tmp_path)
    await small.fresh(a_server(), BOOT)
    boot = SAGAS["boot/1"]
    await execute(boot, BOOT, a_boot(BOOT), small.context, MemoryJournal(first_lines(boot), small.transact))
    found = await records.find(small.context, SERVER)
    assert found.server is not None
    assert found.cell is not None
    assert found.server.host is not None
    here = CellUnderTest(small, found.cell, found.server.host)
    await here.bus.subscribe(subjects.to_host(here.cell, here.host), here.on_message)
    await here.bus.subscribe(subjects.to_host(here.cell, "new1"), here.on_message)
    yield here
    await small.close()


ON = {SERVER: PowerState.RUNNING}


async def known(at: CellUnderTest) -> None:
    """The operation is over, and the host's report and first beat were taken."""
    await at.small.region.write(lambda tx: region_servers.release(tx, SERVER, BOOT, drop_order=True))
    await at.say(at.report(ON))
    await at.say(at.beat(0, ON, changed=ON))
    at.told.clear()


class Out:
    """A database that does not answer."""

    def __init__(self, under: Any) -> None:
        self.under = under

    def __getattr__(self, name: str) -> Any:
        return getattr(self.under, name)

    async def write(self, *_: Any) -> None:
        raise Unavailable("out")


async def said_of(at: CellUnderTest, host: str) -> ServerTurn | None:
    return {each.server: each for each in await at.conductor.servers_of(host, (SERVER,))}.get(SERVER)


# ---------------------------------------------------------------------------------------------- who speaks


async def question(
    at: CellUnderTest, agent: str, *, waits_s: float = 0.0, replaces: tuple[str, ...] | None = None
) -> list[Message]:
    at.told.clear()
    at.clock.passed_s += waits_s
    await at.say(AgentReturned(at.host, at.cell, f"{agent} asks", (), agent=agent, replaces=replaces))
    return at.told
