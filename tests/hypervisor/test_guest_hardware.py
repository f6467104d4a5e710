"""Processors and small devices that flavors and images ask for, in a real guest."""

from pathlib import Path

import pytest
from tests.helpers.libvirt_host import COMMAND_LINE, a_spec, says, types

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.model.errors import HostFailed
from moorage.model.guest import VifAddress, VifData
from moorage.model.ids import NetworkId, PortId, ServerId, SubnetId
from moorage.model.instance_metadata import InstanceMetadata

pytestmark = pytest.mark.hypervisor

ONE = ServerId("aaaaaaaa-0000-4000-8000-000000000001")
NETWORK = NetworkId("bbbbbbbb-0000-4000-8000-000000000000")
EVERYTHING = {
    "os_command_line": COMMAND_LINE,
    "hw_cdrom_bus": "scsi",
    "hw_disk_bus": "scsi",
    "hw_scsi_model": "virtio-scsi",
    "hw_input_bus": "virtio",
    "hw_boot_menu": "yes",
    "hw_serial_port_count": "2",
    "hw_video_model": "virtio",
    "hw_video_ram": "16",
    "hw_watchdog_action": "poweroff",
}
LIMITS = {
    "hw_rng:rate_bytes": "1000000",
    "hw_rng:rate_period": "1000",
    "hw_video:ram_max_mb": "64",
}
TWO = {"os_command_line": COMMAND_LINE, "hw_vif_multiqueue_enabled": "yes"}


def a_vif() -> VifData:
    address = VifAddress("10.77.6.10", SubnetId("s"), "10.77.6.0/24", "10.77.6.1")
    return VifData(PortId("0000000a-0000"), NETWORK, "fa:16:3e:77:06:0a", "bridge", mtu=1450, addresses=(address,))


async def test_it_has_what_was_asked_for(driver: LibvirtDriver) -> None:
    drive = InstanceMetadata(ONE, name="web", hostname="web.local")
    spec = a_spec(ONE, image_properties=EVERYTHING, extra_specs=LIMITS, vifs=(a_vif(),), drive=drive)
    await driver.start_guest(spec)
    said = await says(driver, ONE, "GUEST: ready web")
    assert "GUEST: boot number 1" in said, "its disk is found on the SCSI bus"
    assert "GUEST: config-drive /dev/sr0" in said
    await types(driver, ONE, "cat /sys/class/tty/ttyS1/port; echo do$((0+3))ne", "0x2F8\r\ndo3ne")
    await types(driver, ONE, "cat /sys/bus/pci/devices/*/device; echo do$((0+4))ne", "0x25ab")


async def test_processors_and_queues(driver: LibvirtDriver) -> None:
    """Two processors in one socket, and as many queues of each interface, also of one that comes while the guest runs."""
    spec = a_spec(ONE, vcpus=2, image_properties=TWO, extra_specs={"hw:cpu_sockets": "1"}, vifs=(a_vif(),))
    await driver.start_guest(spec)
    assert "GUEST: kernel" in await says(driver, ONE, "GUEST: ready")
    await says(driver, ONE, "GUEST: dhcp eth0 10.77.6.10/24")
    topology = "/sys/devices/system/cpu/cpu1/topology"
    await types(
        driver, ONE, f"cat {topology}/physical_package_id {topology}/core_id; echo do$((0+1))ne", "0\r\n1\r\ndo1ne"
    )
    await types(driver, ONE, "ls -d /sys/class/net/eth0/queues/rx-*; echo do$((0+2))ne", "rx-1\r\ndo2ne")
    await driver.attach_interface(ONE, a_second())
    await says(driver, ONE, "GUEST: dhcp eth1 10.77.6.11/24")


def a_second() -> VifData:
    address = VifAddress("10.77.6.11", SubnetId("s"), "10.77.6.0/24", "10.77.6.1")
    return VifData(PortId("0000000b-0000"), NETWORK, "fa:16:3e:77:06:0b", "bridge", mtu=1450, addresses=(address,))


async def test_queues_come_and_go_with_the_next_start(driver: LibvirtDriver) -> None:
    """A tap that was made for one queue is made again."""
    one, many = ({"os_command_line": COMMAND_LINE, "hw_vif_multiqueue_enabled": each} for each in ("no", "yes"))
    spec = a_spec(ONE, vcpus=2, vifs=(a_vif(),))
    for properties in (one, many, one):
        changed = a_spec(ONE, vcpus=2, vifs=spec.vifs, image_properties=properties)
        await driver.start_guest(changed)
        await driver.power_off(ONE, 0)
        assert has_many_queues() is (properties is many)


def has_many_queues() -> bool:
    return bool(int(Path(f"/sys/class/net/tap{a_vif().port[:11]}/tun_flags").read_text(), 16) & 0x100)


async def test_a_machine_type_that_is_not_here(driver: LibvirtDriver) -> None:
    with pytest.raises(HostFailed, match="Machine type 'toaster'"):
        await driver.start_guest(a_spec(ONE, image_properties={"hw_machine_type": "toaster"}))
