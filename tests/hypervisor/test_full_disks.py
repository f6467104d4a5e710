"""Guests whose disks have no space, on a small file system that grows."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.helpers.libvirt_host import a_spec, a_volume, says, types
from tests.helpers.real_guests import ONE, call

from moorage.drivers.guest_life import SpaceWatcher
from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.drivers.libvirt.records import GuestRecord
from moorage.model.guest import PowerState, VolumeDisk
from moorage_testing.waiting import PATIENCE_S

pytestmark = pytest.mark.hypervisor
FILL = "dd if=/dev/zero of=/dev/vdb bs=1M count=24 conv=fsync 2>/dev/null && echo fil$((0+1))ed &"


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Path]:
    """A file system of 8 MiB, which only this test's namespace has."""
    place = tmp_path / "small"
    place.mkdir()
    call("mount", "-t", "tmpfs", "-o", "size=8m,mode=0777", "tmpfs", str(place))
    yield place
    call("umount", "--lazy", str(place))


@pytest.fixture
async def volume(small: Path) -> VolumeDisk:
    return a_volume(small, "vol-1", 32)


def grow(small: Path) -> None:
    call("mount", "-o", "remount,size=256m", str(small))


async def stopped(driver: LibvirtDriver, volume: VolumeDisk) -> None:
    """Until it has no space."""
    await driver.start_guest(a_spec(ONE, volumes=(volume,)))
    await says(driver, ONE, "GUEST: ready")
    await types(driver, ONE, FILL + " echo beg$((0+1))n", "beg1n")
    assert await driver._when(ONE, {PowerState.PAUSED}, PATIENCE_S)


def record(driver: LibvirtDriver) -> GuestRecord:
    return driver._records.of(ONE)


async def test_it_stands_still_until_there_is_space(
    driver: LibvirtDriver, small: Path, volume: VolumeDisk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "moorage")
    await stopped(driver, volume)
    for _ in range(2):
        await driver._resume_stopped()
    assert await driver.guests() == {ONE: PowerState.PAUSED}
    assert isinstance(driver, SpaceWatcher)
    assert driver.waiting_for_space == (ONE,)
    said = [each for each in caplog.messages if "stands still" in each]
    assert len(said) == 1, "it is said once"
    assert ONE in said[0]
    assert f"{volume.connection['device_path']}, with 0 MiB free" in said[0]

    grow(small)
    assert await driver._when(ONE, {PowerState.RUNNING}, PATIENCE_S), "nobody has to know that it stands"
    await says(driver, ONE, "fil1ed")
    assert f"{ONE} goes on: there is space for what it writes" in caplog.messages
    await driver._resume_stopped()
    assert not driver.waiting_for_space


async def test_its_owner_pauses_it_meanwhile(driver: LibvirtDriver, small: Path, volume: VolumeDisk) -> None:
    await stopped(driver, volume)
    assert await driver.pause(ONE) is PowerState.PAUSED
    grow(small)
    await driver._resume_stopped()
    assert await driver.guests() == {ONE: PowerState.PAUSED}
    assert await driver.unpause(ONE) is PowerState.RUNNING
    await says(driver, ONE, "fil1ed")
    assert not record(driver).paused


async def test_it_is_suspended_meanwhile(driver: LibvirtDriver, small: Path, volume: VolumeDisk) -> None:
    """It was saved while it stood still; whoever resumes it wants it to run."""
    await stopped(driver, volume)
    await driver._end_resuming()
    assert await driver.suspend(ONE) is PowerState.SUSPENDED
    grow(small)
    assert await driver.resume(ONE) is PowerState.RUNNING
    await says(driver, ONE, "fil1ed")


async def test_it_is_rebooted_meanwhile(driver: LibvirtDriver, small: Path, volume: VolumeDisk) -> None:
    """Whether it is asked to shut down or not: it answers nothing."""
    await stopped(driver, volume)
    assert await driver.reboot(ONE, hard=False) is PowerState.RUNNING
    await says(driver, ONE, "GUEST: boot number 2")
    await driver._resume_stopped()
    assert not driver.waiting_for_space
