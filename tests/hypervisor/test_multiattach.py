"""A volume that two guests of one host have at once, as its type allows (`multiattach`)."""

from pathlib import Path

import msgspec
import pytest
from tests.helpers.libvirt_host import a_spec, a_volume, says, types
from tests.helpers.real_guests import ONE, TWO

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState, VolumeDisk

pytestmark = pytest.mark.hypervisor


def shared(tmp_path: Path) -> VolumeDisk:
    volume = a_volume(tmp_path, "both")
    return msgspec.structs.replace(volume, connection={**volume.connection, "multiattach": True})


async def test_two_guests_of_one_host_share_a_volume(driver: LibvirtDriver, tmp_path: Path) -> None:
    """One has it from its start, the other gets it while it runs; both keep it when their domains are described anew."""
    volume = shared(tmp_path)
    await driver.start_guest(a_spec(ONE, volumes=(volume,)))
    await driver.start_guest(a_spec(TWO))
    await says(driver, ONE, "GUEST: ready")
    await says(driver, TWO, "GUEST: ready")
    assert await driver.attach_volume(TWO, volume) is PowerState.RUNNING
    await says(driver, TWO, "GUEST: disk vdb 40960")
    await types(driver, ONE, "echo shared >/dev/vdb; sync; echo wro$((1+1))", "wro2")
    await types(driver, TWO, "head -c 7 /dev/vdb; echo re$((0+1))ad", "shared")

    assert await driver.reboot(TWO, hard=True) is PowerState.RUNNING
    await says(driver, TWO, "GUEST: ready", 2)
    assert await driver.suspend(ONE) is PowerState.SUSPENDED
    assert await driver.resume(ONE) is PowerState.RUNNING
    await types(driver, TWO, "head -c 7 /dev/vdb; echo re$((0+1))ad", "shared")


async def test_a_volume_that_is_not_for_several_stays_with_one(driver: LibvirtDriver, tmp_path: Path) -> None:
    """QEMU's lock is what keeps two guests from destroying its data."""
    volume = a_volume(tmp_path, "one")
    await driver.start_guest(a_spec(ONE, volumes=(volume,)))
    await driver.start_guest(a_spec(TWO))
    with pytest.raises(HostFailed):
        await driver.attach_volume(TWO, volume)
