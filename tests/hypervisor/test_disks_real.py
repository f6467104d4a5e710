"""Further disks of a guest, and limits of what it may write to each."""

import shutil
from pathlib import Path

import pytest
from tests.helpers.libvirt_host import a_spec, says
from tests.helpers.real_guests import ONE, call, types

from moorage.drivers.libvirt import disks
from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.model.errors import HostFailed
from moorage.model.guest import EphemeralDisk, PowerState

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


async def test_several_ephemeral_disks(driver: LibvirtDriver, tmp_path: Path) -> None:
    """Each with its file system and label; a rebuild keeps both, a resize keeps both sizes, and none may shrink."""
    both = (EphemeralDisk(1, "ext3"), EphemeralDisk(1))
    spec = a_spec(ONE, ephemeral_gib=2, swap_mib=64, ephemerals=both)
    await driver.start_guest(spec)
    await says(driver, ONE, "GUEST: ready")
    line = (
        "mkdir /run/e /run/f; mount -t ext4 /dev/vdb /run/e && mount -t ext4 /dev/vdc /run/f && "
        "echo here > /run/e/kept && swapon /dev/vdd; sync; umount /run/e /run/f; echo con$((40+2))"
    )
    await types(driver, line, "con42")
    place = tmp_path / "host/guests" / ONE
    for at, (name, kind) in enumerate(zip(disks.EPHEMERALS, ("needs_recovery|has_journal", "extent"), strict=False)):
        raw = tmp_path / name
        call("qemu-img", "convert", "-U", "-O", "raw", str(place / "d1" / name), str(raw))
        said = call("dumpe2fs", "-h", str(raw))
        assert f"Filesystem volume name:   ephemeral{at}" in said
        assert any(each in said for each in kind.split("|")), said
    assert await driver.rebuild_guest(spec, preserve_ephemeral=True) is PowerState.RUNNING
    await says(driver, ONE, "GUEST: ready")
    await types(driver, "mkdir /run/e; mount -t ext4 /dev/vdb /run/e; cat /run/e/kept; echo con$((41+2))", "con43")
    assert "here" in await driver.console_output(ONE, None)
    larger = a_spec(ONE, root_gib=2, ephemeral_gib=2, swap_mib=64, ephemerals=both)
    assert await driver.take_guest(larger, "resize") is PowerState.SHUTDOWN
    with pytest.raises(HostFailed, match="resize disk down"):
        await driver.take_guest(a_spec(ONE, root_gib=2, ephemeral_gib=1), "again")


async def test_a_disk_with_xfs(driver: LibvirtDriver, tmp_path: Path) -> None:
    """Where the host has the program; elsewhere its trait is missing, and a guest that comes nevertheless is refused."""
    spec = a_spec(ONE, ephemeral_gib=1, ephemerals=(EphemeralDisk(1, "xfs"),))
    if shutil.which(disks.MAKES_XFS) is None:
        with pytest.raises(HostFailed, match="a program is missing on this host"):
            await driver.start_guest(spec)
        return
    await driver.start_guest(spec)
    raw = tmp_path / "raw"
    call(
        "qemu-img",
        "convert",
        "-U",
        "-O",
        "raw",
        str(tmp_path / "host/guests" / ONE / "d1" / disks.EPHEMERALS[0]),
        str(raw),
    )
    assert raw.read_bytes()[:4] == b"XFSB"
