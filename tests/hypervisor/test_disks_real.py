"""Further disks of a guest, and limits of what it may write to each."""

import pytest
from tests.helpers.libvirt_host import a_spec, says
from tests.helpers.real_guests import ONE, call, types

from moorage.drivers.libvirt.driver import LibvirtDriver

pytestmark = pytest.mark.hypervisor


async def test_its_other_disks_and_their_limits(driver: LibvirtDriver) -> None:
    """An ephemeral disk with a file system, a swap disk with its header, and a flavor that limits what each may write."""
    limits = {"quota:disk_write_iops_sec": "300"}
    await driver.start_guest(a_spec(ONE, ephemeral_gib=1, swap_mib=64, extra_specs=limits))
    for disk in ("vda", "vdb", "vdc"):
        said = call("virsh", "-q", "blkdeviotune", f"guest-{ONE}", disk)
        assert "write_iops_sec : 300" in " ".join(said.split()), said
    await says(driver, ONE, "GUEST: ready")
    line = (
        "mkdir /run/e; mount -t ext4 /dev/vdb /run/e && swapon /dev/vdc && grep -c vdc /proc/swaps; echo con$((40+2))"
    )
    await types(driver, line, "con42")
    await says(driver, ONE, "\n1\r\ncon42")
