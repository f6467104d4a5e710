"""The simulated host: guests outlive every process, and every fault can be set."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from moorage.drivers.fault_injection import FaultSettings, HostCapacity, VerbDial
from moorage.drivers.simulated import SimulatedDriver
from moorage.model.clock import SystemClock
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, PowerState, VifData, VolumeDisk
from moorage.model.ids import NetworkId, PortId, ServerId
from moorage_testing.waiting import until

ONE, TWO = ServerId("11111111-0000-4000-8000-000000000000"), ServerId("22222222-0000-4000-8000-000000000000")


def spec(server: ServerId = ONE, vcpus: int = 1) -> GuestSpec:
    return GuestSpec(server, "web", vcpus, 512, 1)


async def host(directory: Path, dials: FaultSettings | None = None) -> SimulatedDriver:
    driver = SimulatedDriver(directory, SystemClock(), dials)
    await driver.start()
    return driver


_DIES = """
import asyncio, os, signal, sys
from pathlib import Path
from moorage.drivers.simulated import SimulatedDriver
from moorage.model.clock import SystemClock
from moorage.model.guest import GuestSpec

async def main():
    driver = SimulatedDriver(Path(sys.argv[1]), SystemClock())
    await driver.start()
    await driver.start_guest(GuestSpec("11111111-0000-4000-8000-000000000000", "web", 1, 512))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_guests_outlive_all_processes(tmp_path: Path) -> None:
    died = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", _DIES, str(tmp_path)], check=False)
    assert died.returncode == -9
    assert await (await host(tmp_path)).guests() == {ONE: PowerState.RUNNING}


async def test_a_received_disk_is_kept_until_it_is_used_or_dropped(tmp_path: Path) -> None:
    first, second = await host(tmp_path / "first"), await host(tmp_path / "second")
    await first.start_guest(spec())
    target = await second.move_target()
    for taken in (True, False):
        await first.send_guest(ONE, target, "a-move", 0.0)
        assert (await second.guests(), await second.arrivals()) == ({}, {ONE})
        assert await (await host(tmp_path / "second")).arrivals() == {ONE}, "it outlives the agent"
        if taken:
            await second.take_guest(spec(), "a-move")
            assert await second.arrivals() == set()
        await second.destroy_guest(ONE)
        assert await second.arrivals() == set()
    assert await first.arrivals() == set()


async def test_a_torn_write_is_not_a_guest(tmp_path: Path) -> None:
    driver = await host(tmp_path)
    await driver.start_guest(spec())
    (tmp_path / "guests" / f"{TWO}.json.new").write_bytes(b'{"spec":')
    assert await (await host(tmp_path)).guests() == {ONE: PowerState.RUNNING}


async def test_a_file_that_was_made_and_never_written_is_not_a_guest(tmp_path: Path) -> None:
    driver = await host(tmp_path)
    await driver.start_guest(spec())
    (tmp_path / "guests" / f"{TWO}.json").touch()
    again = await host(tmp_path)
    assert await again.guests() == {ONE: PowerState.RUNNING}
    assert not (tmp_path / "guests" / f"{TWO}.json").exists()


async def test_plugged_devices_are_stored(tmp_path: Path) -> None:
    driver = await host(tmp_path)
    await driver.start_guest(spec())
    vif, disk = VifData(PortId("p"), NetworkId("n"), "fa:16:3e:00:00:01"), VolumeDisk("v")
    await driver.attach_interface(ONE, vif)
    await driver.attach_volume(ONE, disk)
    again = await host(tmp_path)
    assert again.spec_of(ONE).vifs == (vif,)
    assert again.spec_of(ONE).volumes == (disk,)


async def test_failing_before_and_after_the_effect(tmp_path: Path) -> None:
    driver = await host(tmp_path, FaultSettings(verbs={"start_guest": VerbDial(fail_times=1)}))
    with pytest.raises(HostFailed, match="told to fail"):
        await driver.start_guest(spec())
    assert await driver.guests() == {}
    driver.turn(FaultSettings(verbs={"start_guest": VerbDial(fail_times=1, fail_when="after", code="odd")}))
    with pytest.raises(HostFailed) as after:
        await driver.start_guest(spec())
    assert after.value.code == "odd"
    assert await driver.guests() == {ONE: PowerState.RUNNING}
    assert await driver.start_guest(spec()) is PowerState.RUNNING


async def test_hanging_before_and_after_the_effect(tmp_path: Path) -> None:
    for hang, left in (("before", {}), ("after", {ONE: PowerState.RUNNING})):
        driver = await host(tmp_path / hang)
        dial: Any = {"fail_times": 1, "hang": hang}
        driver.turn(FaultSettings(verbs={"*": VerbDial(**dial)}))
        starting = asyncio.create_task(driver.start_guest(spec()))
        await until(lambda driver=driver: driver.hanging("start_guest") == 1)  # type: ignore[misc]
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert await driver.guests() == left


async def test_random_faults_come_from_the_seed(tmp_path: Path) -> None:
    async def run(name: str, seed: int) -> list[bool]:
        driver = await host(tmp_path / name, FaultSettings(seed=seed, verbs={"power_on": VerbDial(fail_chance=0.5)}))
        await driver.start_guest(spec())
        went = []
        for _ in range(30):
            try:
                await driver.power_on(ONE)
                went.append(True)
            except HostFailed:
                went.append(False)
        return went

    first = await run("a", 1)
    assert {True, False} == set(first)
    assert first == await run("b", 1) != await run("c", 2)


async def test_delays_use_the_given_clock(tmp_path: Path) -> None:
    slept: list[float] = []

    class Clock(SystemClock):
        async def sleep(self, seconds: float) -> None:
            slept.append(seconds)

    driver = SimulatedDriver(tmp_path, Clock(), FaultSettings(verbs={"start_guest": VerbDial(delay_s=3, jitter_s=1)}))
    await driver.start()
    await driver.start_guest(spec())
    assert 3 <= slept[0] <= 4


async def test_a_host_can_report_a_wrong_size(tmp_path: Path) -> None:
    driver = await host(tmp_path, FaultSettings(vcpus=16, really=HostCapacity(vcpus=2)))
    assert (await driver.describe()).inventory["VCPU"].total == 16
    await driver.start_guest(spec(ONE, 2))
    with pytest.raises(HostFailed) as full:
        await driver.start_guest(spec(TWO, 1))
    assert full.value.code == "host_full"


async def test_faults_can_be_set_by_a_file_at_run_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    driver, file = await host(tmp_path, FaultSettings(vcpus=8)), tmp_path / "dials.json"
    await driver.start_guest(spec())

    def turn(text: str) -> None:
        coming = tmp_path / "coming"
        coming.write_text(text)
        os.replace(coming, file)

    turn(
        json.dumps(
            {"verbs": {"power_off": {"fail_times": 1}}, "console": "kernel panic\n", "physical_networks": ["physnet7"]}
        )
    )
    with pytest.raises(HostFailed):
        await driver.power_off(ONE, 0)
    assert (await driver.console_output(ONE, None)).endswith("kernel panic\n")
    told = await driver.describe()
    assert told.physical_networks == ("physnet7",)
    assert told.inventory["VCPU"].total == 8  # what the file does not say stays
    turn('{"crash": ["*"]}')
    assert await driver.guests() == {ONE: PowerState.CRASHED}
    turn('{"no_such_dial": 1, "vcpus": 99}')
    assert (await driver.describe()).inventory["VCPU"].total == 8
    assert "not a file of dials" in caplog.text
    file.unlink()
    assert await driver.power_on(ONE) is PowerState.RUNNING


async def test_a_host_whose_power_failed_has_its_guests_off(tmp_path: Path) -> None:
    driver = await host(tmp_path)
    await driver.start_guest(spec())
    driver.crash_host()
    assert await (await host(tmp_path)).guests() == {ONE: PowerState.SHUTDOWN}


async def test_an_id_is_not_a_path(tmp_path: Path) -> None:
    driver = await host(tmp_path / "h")
    for bad in ("../../x", "", ".hidden"):
        with pytest.raises(HostFailed):
            await driver.start_guest(spec(ServerId(bad)))
        with pytest.raises(HostFailed):
            await driver.destroy_guest(ServerId(bad))


async def test_a_guest_is_quiesced_no_longer_than_requested(tmp_path: Path) -> None:
    """Also if its agent was killed meanwhile: the time stands in the guest's file."""

    class Clock(SystemClock):
        past_s = 0.0

        def now(self) -> float:
            return 1_000.0 + self.past_s

    async def refused(doing: Awaitable[object]) -> str | None:
        with pytest.raises(HostFailed) as failed:
            await doing
        return failed.value.code

    clock = Clock()
    driver = SimulatedDriver(tmp_path, clock)
    await driver.start()
    await driver.start_guest(spec())
    for _ in range(2):
        await driver.freeze_guest(ONE, "one", 60.0)
    assert driver.is_frozen(ONE)
    assert await refused(driver.freeze_guest(ONE, "another", 60.0)) == "already_frozen"
    assert await refused(driver.thaw_guest(ONE, "another")) == "not_frozen"
    for _ in range(2):
        await driver.thaw_guest(ONE, "one")
    assert not driver.is_frozen(ONE)

    await driver.freeze_guest(ONE, "another", 60.0)
    again = SimulatedDriver(tmp_path, clock)
    await again.start()
    assert again.is_frozen(ONE)
    clock.past_s = 61.0
    assert not again.is_frozen(ONE)
    for _ in range(2):
        assert await refused(again.thaw_guest(ONE, "another")) == "not_frozen"
    await again.freeze_guest(ONE, "a third", 60.0)
    await again.reboot(ONE, hard=True)
    assert not again.is_frozen(ONE)
    await again.power_off(ONE, 0)
    assert await refused(again.freeze_guest(ONE, "a fourth", 60.0)) == "guest_not_running"
