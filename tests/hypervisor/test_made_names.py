"""Each name of flavors and images that a host promises, in a real guest."""

from xml.etree import ElementTree as ET

import msgspec
import pytest
from tests.helpers import made_names
from tests.helpers.libvirt_host import UEFI_DISK, a_spec

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState, VifAddress, VifData
from moorage.model.ids import NetworkId, PortId, ServerId, SubnetId

pytestmark = pytest.mark.hypervisor

ONE = ServerId("aaaaaaaa-0000-4000-8000-000000000001")
LIMITED = {"quota:cpu_shares", "quota:cpu_period", "quota:cpu_quota"}
"""Need control groups, which test_processor_limits.py has made for its host."""


def a_vif() -> VifData:
    network = NetworkId("bbbbbbbb-0000-4000-8000-000000000000")
    address = VifAddress("10.77.6.10", SubnetId("s"), "10.77.6.0/24", "10.77.6.1")
    return VifData(PortId("0000000a-0000"), network, "fa:16:3e:77:06:0a", "bridge", mtu=1450, addresses=(address,))


@pytest.mark.parametrize(("kind", "name"), [each for each in made_names.EACH if each[1] not in LIMITED])
async def test_the_running_guest_has_what_was_asked(driver: LibvirtDriver, kind: str, name: str) -> None:
    """What libvirt says of the guest that runs: it drops some of what it is told without a word."""
    shown, specs, properties = made_names.asking(kind, name)
    spec = a_spec(ONE, vcpus=4, vifs=(a_vif(),), extra_specs=specs)
    if properties.get("hw_firmware_type") == "uefi":
        spec = a_spec(ONE, vcpus=4, vifs=(a_vif(),), extra_specs=specs, image=UEFI_DISK, kernel="", ramdisk="")
    await driver.start_guest(msgspec.structs.replace(spec, image_properties={**spec.image_properties, **properties}))
    domain = await driver._ask(ONE, lambda found: str(found.XMLDesc()))
    assert ET.fromstring(domain).find(shown.path) is not None, domain


@pytest.mark.parametrize(
    "properties",
    [
        {"hw_sound_model": "virtio", "hw_not_known": "1", "hw_cpu_policy": "dedicated"},
        {"hw_viommu_model": "intel", "hw_redirected_usb_ports": "1", "hw_maxphysaddr_mode": "passthrough"},
        {"hw_maxphysaddr_mode": "emulate"},
    ],
)
async def test_a_guest_of_an_earlier_release_runs_without_what_is_refused_today(
    driver: LibvirtDriver, properties: dict[str, str]
) -> None:
    """It is made here, as by an evacuation, and switched on again."""
    spec = a_spec(ONE, vifs=(a_vif(),))
    spec = msgspec.structs.replace(spec, image_properties={**spec.image_properties, **properties})
    with pytest.raises(HostFailed) as refused:
        await driver.start_guest(spec)
    assert refused.value.code == "not_supported"
    assert await driver.start_guest(msgspec.structs.replace(spec, existed=True)) is PowerState.RUNNING
    assert await driver.reboot(ONE, hard=True) is PowerState.RUNNING
