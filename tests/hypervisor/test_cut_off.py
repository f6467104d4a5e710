"""Real guests whose disks were being copied when everybody died: what they wrote last is what they have."""

import os
from functools import partial
from pathlib import Path

import pytest
from tests.helpers.libvirt_host import a_spec, says
from tests.helpers.real_guests import ONE, types

from moorage.drivers.libvirt import disks
from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.drivers.libvirt.snapshots import _write_above
from moorage.model.guest import PowerState

pytestmark = pytest.mark.hypervisor


async def write_above(driver: LibvirtDriver) -> Path:
    place = driver._records.place(driver._records.of(ONE))
    above = place / disks.OVERLAY
    await driver._ask(ONE, partial(_write_above, disk=str(place / disks.ROOT), above=str(above)))
    return above


async def test_what_a_guest_wrote_last_is_what_it_has(driver: LibvirtDriver, tmp_path: Path) -> None:
    """Killed between the switch back to the disk and the removal of the overlay; and before the switch."""
    await driver.start_guest(a_spec(ONE))
    await says(driver, ONE, "GUEST: ready")
    above = await write_above(driver)
    await types(driver, "echo -n old | dd of=/dev/vda bs=512 seek=100 conv=fsync; echo don$((40+1))", "don41")
    os.link(above, tmp_path / "above")
    await driver._settle_overlay(driver._records.of(ONE))
    await types(driver, "echo -n new | dd of=/dev/vda bs=512 seek=100 conv=fsync; echo don$((40+2))", "don42")
    os.link(tmp_path / "above", above)
    assert await driver.power_off(ONE, 0) is PowerState.SHUTDOWN
    await driver.power_on(ONE)
    assert not above.exists()
    await says(driver, ONE, "GUEST: ready", times=2)
    read = "dd if=/dev/vda bs=512 skip=100 count=1 2>/dev/null | head -c 3; echo ' re'$((0+{}))ad"
    await types(driver, read.format(1), "new re1ad")

    above = await write_above(driver)
    await types(driver, "echo -n two | dd of=/dev/vda bs=512 seek=100 conv=fsync; echo don$((40+3))", "don43")
    await driver.power_off(ONE, 0)
    assert above.exists()
    await driver.power_on(ONE)
    assert not above.exists()
    await says(driver, ONE, "GUEST: ready", times=3)
    await types(driver, read.format(2), "two re2ad")
