"""A bus outage that is longer than the allowed silence of hosts: nothing fails, nothing is lost, and all work is done afterwards."""

import asyncio
from pathlib import Path

import pytest
from tests.cloud.conftest import Start
from tests.helpers.agent_host import CELL, HOST, SERVER, command_context, guest, place

from moorage.bus import host_silence, subjects
from moorage.bus.memory import MemoryBus, TransportFaults
from moorage.bus.silence import GAP_MAX_S, Listening
from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Compute, Hosts
from moorage.model.clock import SystemClock
from moorage.model.errors import BusOut
from moorage_testing.waiting import until

SILENT_S = 1.5
BEAT_S = 0.3


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_silence, "BUS_GRACE_S", 0.3)


async def test_boots_and_deletes_wait_for_the_bus_and_are_then_done(start: Start) -> None:
    hosts = Hosts(count=3, beat_s=BEAT_S)
    async with start(hosts=hosts, compute=Compute(host_silence_s=SILENT_S)) as running:
        admin, region = running.admin, running.cloud.region
        bus, caller = region.bus, region.context.hosts
        assert isinstance(bus, MemoryBus)
        old = (await admin.active("old"))["id"]
        running.set_faults_everywhere(start_guest=VerbDial(delay_s=1.0))
        under_way = await admin.boot("under-way")
        bus.dials.cut = True
        booted = await admin.boot("in-the-outage")
        await admin.delete(old)

        async def waiting(server: str) -> str:
            reply = await admin.compute("GET", "/ext/operations", server=server)
            return str(next((each["waiting"] for each in reply.json()["operations"] if each["waiting"]), ""))

        async with asyncio.timeout(180):
            for server in (booted, old):
                while not (await waiting(server)).startswith("waiting for the message bus since 20"):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        await asyncio.sleep(2 * SILENT_S)  # the outage is as long as that, whatever happens in it
        shown = [await admin.server(each) for each in (under_way, booted, old)]
        assert [each and each["status"] for each in shown] == ["BUILD", "BUILD", "ACTIVE"]
        assert caller.silent(plan.host for plan in running.cloud.plans) == []
        assert all(region.engine.world().alive)
        bus.dials.cut = False
        found = [await admin.settled(each) for each in (under_way, booted)]
        assert [each["status"] for each in found] == ["ACTIVE", "ACTIVE"]
        await admin.absent(old)


async def test_a_pending_call_ends_in_a_bus_outage_and_is_repeated_afterwards(tmp_path: Path) -> None:
    async with place(MemoryBus(), tmp_path) as at:
        await at.caller.start_guest(HOST, command_context(1), guest())
        at.bus.dials.cut = True  # type: ignore[attr-defined]
        at.caller._silence.silent_s = 0.5
        with pytest.raises(BusOut, match="waiting for the message bus since"):
            await at.caller.power_off(HOST, command_context(2, patience_s=30.0), SERVER)
        with pytest.raises(BusOut):
            await at.caller.power_off(HOST, command_context(2, patience_s=0.0, though_silent=True), SERVER)
        at.caller._silence.silent_s = 15.0
        at.bus.dials.cut = False  # type: ignore[attr-defined]
        await at.caller.power_off(HOST, command_context(2), SERVER)


class ManualClock(SystemClock):
    at = 0.0

    def monotonic(self) -> float:
        return self.at


def test_silence_counts_only_while_a_host_could_be_heard() -> None:
    clock, bus = ManualClock(), MemoryBus()
    listening = Listening(bus, clock)

    def passes(seconds: int) -> None:
        for _ in range(seconds):
            clock.at += 1.0
            listening.check()

    passes(20)
    assert listening.unheard_for_s(clock.at - 15.0) == 15.0
    bus.dials.cut = True
    passes(60)
    assert listening.unheard_for_s(0.0) == 0.0
    assert listening.out_for_s() == 59.0
    bus.dials.cut = False
    passes(5)
    assert listening.unheard_for_s(0.0) == 4.0  # a full window from when it was found back
    clock.at += GAP_MAX_S + 1.0  # this process stood still
    assert listening.unheard_for_s(0.0) == 0.0


def test_an_outage_between_two_checks_is_noticed() -> None:
    clock, bus = ManualClock(), MemoryBus(TransportFaults())
    listening = Listening(bus, clock)
    clock.at += 3.0
    assert listening.unheard_for_s(0.0) == 3.0
    bus.dials.cut = True
    assert not bus.healthy
    bus.dials.cut = False
    assert listening.unheard_for_s(0.0) == 0.0


async def test_messages_lost_in_an_outage_are_sent_again_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is under way is sent again at once, not when its pause is over."""
    monkeypatch.setattr(host_silence, "BUS_GRACE_S", 600.0)
    async with place(MemoryBus(), tmp_path, resend_s=600.0) as at:
        await at.host.agent.home.wait()
        at.bus.dials.cut = True  # type: ignore[attr-defined]
        starting = asyncio.create_task(at.caller.start_guest(HOST, command_context(1, patience_s=180.0), guest()))
        await until(lambda: at.bus.published[subjects.to_host(CELL, HOST.host)])
        at.bus.dials.cut = False  # type: ignore[attr-defined]
        await starting
