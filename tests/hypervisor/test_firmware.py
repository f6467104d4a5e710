"""Guests that boot by UEFI, with Secure Boot and without, and where the variables of their firmware go."""

from pathlib import Path

import pytest
from tests.helpers.libvirt_host import KEEP, READ, UEFI_DISK, a_driver, a_spec, says, types

from moorage.drivers.libvirt import disks
from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.ids import ServerId
from moorage.model.instance_metadata import InstanceMetadata
from moorage.model.rescue import RescueSpec
from moorage_testing.hypervisor.leftovers import leftovers

pytestmark = pytest.mark.hypervisor

ONE = ServerId("aaaaaaaa-0000-4000-8000-000000000001")
UEFI = {"hw_firmware_type": "uefi"}
RAM_MIB = 256


def uefi(**properties: str) -> GuestSpec:
    return GuestSpec(ONE, "web", 1, RAM_MIB, 1, image=UEFI_DISK, image_properties=UEFI | properties)


async def test_its_variables_go_where_it_goes(driver: LibvirtDriver, tmp_path: Path) -> None:
    """They are kept by a reboot and a rescue, carried by a resize and to another host, and gone with the guest, or with a rebuild."""
    traits = (await driver.describe()).traits
    assert {"COMPUTE_FIRMWARE_UEFI", "COMPUTE_SECURITY_UEFI_SECURE_BOOT"} <= set(traits)
    await driver.start_guest(uefi())
    assert "GUEST: firmware uefi, secure boot 0" in await says(driver, ONE, "GUEST: ready")
    await types(driver, ONE, KEEP, "ke1pt")
    await types(driver, ONE, READ, "here re1ad")
    variables = tmp_path / "host/guests" / ONE / "d1" / disks.NVRAM
    assert variables.exists()

    assert await driver.rescue_guest(ONE, RescueSpec(UEFI_DISK)) is PowerState.RUNNING
    await says(driver, ONE, "GUEST: ready", 2)
    await types(driver, ONE, READ, "here re1ad")
    await driver.unrescue_guest(ONE, power_on=False)

    await driver.send_guest(ONE, await driver.move_target(), "resize", 0)
    await driver.take_guest(uefi(), "resize")
    other = a_driver(tmp_path / "other")
    await other.start()
    try:
        await driver.send_guest(ONE, await other.move_target(), "move", 0)
        await driver.destroy_guest(ONE)
        assert not variables.exists()
        await other.take_guest(uefi(), "move")
        await other.power_on(ONE)
        await says(other, ONE, "GUEST: ready", 3)
        await types(other, ONE, READ, "here re1ad")
        await other.rebuild_guest(uefi(), preserve_ephemeral=False)
        await says(other, ONE, "GUEST: ready")
        await types(other, ONE, READ, "No such file")
        await other.destroy_guest(ONE)
        assert leftovers(tmp_path / "other") == []
    finally:
        await other.close()


async def test_secure_boot(driver: LibvirtDriver) -> None:
    """Firmware, shim, GRUB, kernel and modules are signed, so it boots, and says that it did so securely; on a machine that has it."""
    drive = InstanceMetadata(ONE, name="web", hostname="web.local")
    await driver.start_guest(a_spec(ONE, ram_mib=RAM_MIB, image=UEFI_DISK, kernel=None, ramdisk=None,
        image_properties=UEFI | {"os_secure_boot": "required", "hw_cdrom_bus": "scsi"}, drive=drive))  # fmt: skip
    said = await says(driver, ONE, "GUEST: ready")
    assert "GUEST: firmware uefi, secure boot 1" in said
    assert "GUEST: config-drive /dev/sr0" in said
