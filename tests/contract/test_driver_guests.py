"""The contract of every driver. The simulated one is always tested, the real one by `make test-hypervisor`; another one needs one more fixture parameter."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from moorage.drivers.driver import ConsoleReader, Driver, InterfacePlugger, Pausable, Suspendable, VolumePlugger
from moorage.drivers.simulated import SimulatedDriver
from moorage.model.clock import SystemClock
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, PowerState, VifData, VolumeDisk
from moorage.model.ids import NetworkId, PortId, ServerId

ONE, TWO = ServerId("11111111-0000-4000-8000-000000000000"), ServerId("22222222-0000-4000-8000-000000000000")


@dataclass
class Ground:
    """A driver, and what its guests are made of."""

    driver: Driver
    like: GuestSpec
    """Of a guest that boots quickly."""
    volume: Callable[[str], VolumeDisk] = VolumeDisk
    boots: Callable[[], Awaitable[None]] | None = None
    """Waits until the first guest is ready for what is plugged in."""

    def spec(self, server: ServerId = ONE, *, power_on: bool = True) -> GuestSpec:
        return msgspec.structs.replace(self.like, server=server, power_on=power_on, vifs=(self.vif(server[:11]),))

    def vif(self, port: str) -> VifData:
        mac = "fa:16:3e:00:00:" + {"p2": "02", ONE[:11]: "01", TWO[:11]: "03"}[port]
        kind = "bridge" if self.boots else "unbound"
        return VifData(PortId(port), NetworkId("33333333-n"), mac, kind)


def simulated(tmp_path: Path) -> Ground:
    return Ground(SimulatedDriver(tmp_path / "host", SystemClock()), GuestSpec(ONE, "web", 1, 512, 1))


@pytest.fixture(params=["simulated", pytest.param("libvirt", marks=pytest.mark.hypervisor)])
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    if request.param == "simulated":
        made = simulated(tmp_path)
    else:
        from tests.helpers.libvirt_host import libvirt_ground

        made = Ground(*libvirt_ground(tmp_path, ONE))
    await made.driver.start()
    yield made
    for server in await made.driver.guests():
        await made.driver.destroy_guest(server)
    await made.driver.close()


@pytest.fixture
def driver(ground: Ground) -> Driver:
    return ground.driver


async def test_start_and_destroy_of_a_guest_can_be_repeated(driver: Driver, ground: Ground) -> None:
    for _ in range(2):
        assert await driver.start_guest(ground.spec()) is PowerState.RUNNING
        assert await driver.guests() == {ONE: PowerState.RUNNING}
    await driver.start_guest(ground.spec(TWO))
    for _ in range(2):
        await driver.destroy_guest(ONE)
        assert await driver.guests() == {TWO: PowerState.RUNNING}


async def test_a_guest_may_be_made_and_left_off(driver: Driver, ground: Ground) -> None:
    assert await driver.start_guest(ground.spec(power_on=False)) is PowerState.SHUTDOWN
    assert await driver.power_on(ONE) is PowerState.RUNNING


async def test_power_verbs_can_be_repeated(driver: Driver, ground: Ground) -> None:
    await driver.start_guest(ground.spec())
    for _ in range(2):
        assert await driver.power_off(ONE, 0) is PowerState.SHUTDOWN
    with pytest.raises(HostFailed, match="not running"):
        await driver.reboot(ONE, hard=False)
    for _ in range(2):
        assert await driver.power_on(ONE) is PowerState.RUNNING
    assert await driver.reboot(ONE, hard=False) is PowerState.RUNNING
    assert await driver.guests() == {ONE: PowerState.RUNNING}


async def test_an_absent_guest_is_an_error_with_its_id(driver: Driver) -> None:
    for verb in (driver.power_on(ONE), driver.power_off(ONE, 0), driver.reboot(ONE, hard=True)):
        with pytest.raises(HostFailed) as absent:
            await verb
        assert absent.value.code == "guest_not_found"


async def test_the_host_reports_placement_resource_classes(driver: Driver) -> None:
    told = await driver.describe()
    assert {"VCPU", "MEMORY_MB", "DISK_GB"} <= set(told.inventory)
    assert all(each.total > 0 and each.reserved < each.total for each in told.inventory.values())
    assert told.hypervisor_type
    assert told.physical_networks


async def test_optional_powers(driver: Driver, ground: Ground) -> None:
    await driver.start_guest(ground.spec())
    if ground.boots is not None:
        await ground.boots()
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
            await driver.attach_interface(ONE, ground.vif("p2"))
        for _ in range(2):
            await driver.detach_interface(ONE, "p2")
    if isinstance(driver, VolumePlugger):
        for _ in range(2):
            await driver.attach_volume(ONE, ground.volume("v"))
        for _ in range(2):
            await driver.detach_volume(ONE, "v")
