"""What every driver promises; the simulated one is held to it always, another joins by one more fixture parameter."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.drivers.driver import ConsoleReader, Driver, InterfacePlugger, Pausable, Suspendable, VolumePlugger
from moorage.drivers.simulated import SimulatedDriver
from moorage.model.clock import SystemClock
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, PowerState, VifData, VolumeDisk
from moorage.model.ids import NetworkId, PortId, ServerId

ONE, TWO = ServerId("11111111-0000-4000-8000-000000000000"), ServerId("22222222-0000-4000-8000-000000000000")


def spec(server: ServerId = ONE, *, power_on: bool = True) -> GuestSpec:
    return GuestSpec(
        server, "web", 1, 512, 1, vifs=(VifData(PortId("p"), NetworkId("n"), "fa:16:3e:00:00:01"),), power_on=power_on
    )


@pytest.fixture(params=["simulated"])
async def driver(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Driver]:
    made = SimulatedDriver(tmp_path / "host", SystemClock())
    await made.start()
    yield made
    await made.close()


async def test_a_guest_starts_and_goes_and_both_are_safe_twice(driver: Driver) -> None:
    for _ in range(2):
        assert await driver.start_guest(spec()) is PowerState.RUNNING
        assert await driver.guests() == {ONE: PowerState.RUNNING}
    await driver.start_guest(spec(TWO))
    for _ in range(2):
        await driver.destroy_guest(ONE)
        assert await driver.guests() == {TWO: PowerState.RUNNING}


async def test_a_guest_may_be_made_and_left_off(driver: Driver) -> None:
    assert await driver.start_guest(spec(power_on=False)) is PowerState.SHUTDOWN
    assert await driver.power_on(ONE) is PowerState.RUNNING


async def test_power_and_each_is_safe_twice(driver: Driver) -> None:
    await driver.start_guest(spec())
    for _ in range(2):
        assert await driver.power_off(ONE, 0) is PowerState.SHUTDOWN
    with pytest.raises(HostFailed, match="not running"):
        await driver.reboot(ONE, hard=False)
    for _ in range(2):
        assert await driver.power_on(ONE) is PowerState.RUNNING
    assert await driver.reboot(ONE, hard=False) is PowerState.RUNNING
    assert await driver.guests() == {ONE: PowerState.RUNNING}


async def test_what_is_not_there_is_named(driver: Driver) -> None:
    for verb in (driver.power_on(ONE), driver.power_off(ONE, 0), driver.reboot(ONE, hard=True)):
        with pytest.raises(HostFailed) as absent:
            await verb
        assert absent.value.code == "guest_not_found"


async def test_the_host_describes_itself_in_placements_words(driver: Driver) -> None:
    told = await driver.describe()
    assert {"VCPU", "MEMORY_MB", "DISK_GB"} <= set(told.inventory)
    assert all(each.total > 0 and each.reserved < each.total for each in told.inventory.values())
    assert told.hypervisor_type
    assert told.physical_networks


async def test_optional_powers(driver: Driver) -> None:
    await driver.start_guest(spec())
    if isinstance(driver, Pausable):
        assert await driver.pause(ONE) is PowerState.PAUSED
        assert await driver.unpause(ONE) is PowerState.RUNNING
    if isinstance(driver, Suspendable):
        assert await driver.suspend(ONE) is PowerState.SUSPENDED
        assert await driver.resume(ONE) is PowerState.RUNNING
    if isinstance(driver, ConsoleReader):
        assert len((await driver.console_output(ONE, 1)).splitlines()) == 1
        assert await driver.console_output(ONE, 0) == ""
    if isinstance(driver, InterfacePlugger):
        for _ in range(2):
            await driver.attach_interface(ONE, VifData(PortId("p2"), NetworkId("n"), "fa:16:3e:00:00:02"))
        for _ in range(2):
            await driver.detach_interface(ONE, "p2")
    if isinstance(driver, VolumePlugger):
        for _ in range(2):
            await driver.attach_volume(ONE, VolumeDisk("v"))
        for _ in range(2):
            await driver.detach_volume(ONE, "v")
