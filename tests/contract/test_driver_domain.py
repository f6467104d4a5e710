"""The domain that libvirt is told of, for what flavors and images ask."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from tests.helpers import made_names

from moorage.drivers.libvirt.domain_xml import Around, domain_xml
from moorage.drivers.libvirt.host_facts import MachineFacts
from moorage.drivers.libvirt.machine_features import refuse_unmade
from moorage.drivers.libvirt.records import GuestRecord
from moorage.drivers.libvirt.settings import Libvirt
from moorage.drivers.libvirt.transfers import at_destination
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, VifData
from moorage.model.ids import NetworkId, PortId, ServerId
from moorage.model.rescue import RescueSpec

ONE = ServerId("11111111-0000-4000-8000-000000000000")
BARE = MachineFacts("x86_64", "/usr/bin/qemu", "qemu", (), {}, 7_002_000)
ABLE = MachineFacts(
    "x86_64", "/usr/bin/qemu", "qemu", (), {}, 7_002_000, uefi=True, secure_boot=True,
    machine_types=frozenset({"pc", "q35", "pc-q35-7.2"}), video_models=frozenset({"vga", "virtio", "none"}),
)  # fmt: skip
UEFI = {"hw_firmware_type": "uefi"}


def made(machine: MachineFacts = ABLE, place: Path = Path("/nowhere"), **changes: Any) -> ET.Element:
    spec = msgspec.structs.replace(GuestSpec(ONE, "web", 4, 512, 10), **changes)
    record = GuestRecord(spec, serial_port=10_001)
    return ET.fromstring(domain_xml(record, Around(machine, Libvirt(), "us", place, "none", [])))


def of_image(machine: MachineFacts = ABLE, **properties: str) -> ET.Element:
    return made(machine, image_properties=properties)


def of_flavor(machine: MachineFacts = ABLE, **specs: str) -> ET.Element:
    return made(machine, extra_specs={name.replace("__", ":"): value for name, value in specs.items()})


def attributes(domain: ET.Element, path: str) -> list[dict[str, str]]:
    return [each.attrib for each in domain.iterfind(path)]


# -------------------------------------------------------------------------------------------------- firmware


def test_uefi_has_its_variables_beside_the_disks() -> None:
    system = made(image_properties=UEFI).find("os")
    assert system is not None
    assert system.get("firmware") == "efi"
    assert system.findtext("nvram") == "/nowhere/nvram.fd"
    assert {each["enabled"] for each in attributes(system, "firmware/feature")} == {"no"}
    assert attributes(system, "type") == [{"arch": "x86_64"}]
    assert made().find("os/nvram") is None


@pytest.mark.parametrize(
    ("specs", "properties", "secure", "kind"),
    [
        ({}, {"os_secure_boot": "required"}, "yes", "q35"),
        ({"os:secure_boot": "required"}, {"hw_machine_type": "pc-q35-7.2"}, "yes", "pc-q35-7.2"),
        ({}, {"os_secure_boot": "optional", "hw_machine_type": "q35"}, "yes", "q35"),
        ({}, {"os_secure_boot": "optional"}, "no", None),
        ({}, {"os_secure_boot": "disabled", "hw_machine_type": "q35"}, "no", "q35"),
    ],
)
def test_secure_boot(specs: dict[str, str], properties: dict[str, str], secure: str, kind: str | None) -> None:
    domain = made(extra_specs=specs, image_properties=UEFI | properties)
    assert attributes(domain, "os/firmware/feature") == [
        {"enabled": secure, "name": "enrolled-keys"}, {"enabled": secure, "name": "secure-boot"},
    ]  # fmt: skip
    assert attributes(domain, "os/type")[0].get("machine") == kind
    assert attributes(domain, "pm/suspend-to-mem") == ([{"enabled": "no"}] if secure == "yes" else [])
    assert len(domain.findall("devices/controller[@model='pcie-root-port']")) == (16 if kind else 0)


def test_a_cdrom_of_a_q35_machine_is_on_sata_also_if_nobody_named_the_machine(tmp_path: Path) -> None:
    (tmp_path / "disk.config").touch()
    domain = made(place=tmp_path, image_properties=UEFI | {"os_secure_boot": "required"})
    assert attributes(domain, "devices/disk[@device='cdrom']/target") == [{"dev": "sda", "bus": "sata"}]
    domain = made(place=tmp_path, image_properties={"hw_cdrom_bus": "scsi"})
    assert attributes(domain, "devices/disk[@device='cdrom']/target") == [{"dev": "sda", "bus": "scsi"}]
    assert attributes(domain, "devices/controller") == [{"type": "scsi", "index": "0", "model": "virtio-scsi"}]


@pytest.mark.parametrize(
    ("machine", "properties", "why"),
    [
        (BARE, UEFI, "UEFI is not supported"),
        (ABLE, {"os_secure_boot": "required"}, "Secure Boot is not supported by host"),
        (ABLE, UEFI | {"os_secure_boot": "required", "hw_machine_type": "pc"}, "Secure Boot is not supported by host"),
        (ABLE, {"hw_machine_type": "toaster"}, "Machine type 'toaster' is not compatible"),
        (ABLE, {"hw_video_model": "qxl"}, r"video model \(qxl\) is not supported"),
        (ABLE, {"hw_video_model": "gop"}, r"video model \(gop\) is not supported"),
        (ABLE, {"hw_video_ram": "16"}, "video memory 16 is higher than the maximum allowed by flavor 0"),
        (ABLE, {"hw_disk_bus": "scsi", "hw_scsi_model": "buslogic"}, "buslogic"),
        (ABLE, {"hw_disk_bus": "fdc"}, "the bus fdc"),
        (ABLE, {"hw_vif_model": "virtio", "hw_serial_port_count": "5"}, "more than 4 serial ports"),
        (ABLE, {"hw_cpu_cores": "4", "hw_cpu_max_cores": "2"}, "exceeds the limits"),
        (ABLE, {"hw_cpu_threads": "4", "hw_cpu_max_threads": "2"}, "exceeds the limits"),
    ],
)
def test_what_a_host_cannot_make_is_said(machine: MachineFacts, properties: dict[str, str], why: str) -> None:
    with pytest.raises(HostFailed, match=why) as refused:
        made(machine, image_properties=properties)
    assert refused.value.code == "not_supported"


def test_a_cdrom_on_a_bus_that_has_none(tmp_path: Path) -> None:
    (tmp_path / "disk.config").touch()
    with pytest.raises(HostFailed, match="CD-ROMs on the bus virtio"):
        made(place=tmp_path, image_properties={"hw_cdrom_bus": "virtio"})


def test_a_rescue_keeps_the_firmware_and_its_variables() -> None:
    record = GuestRecord(GuestSpec(ONE, "web", 1, 512, 10, image_properties=UEFI), rescue=RescueSpec("image"))
    domain = ET.fromstring(domain_xml(record, Around(ABLE, Libvirt(), "us", Path("/nowhere"), "none", [])))
    assert domain.findtext("os/nvram") == "/nowhere/nvram.fd"


def test_a_running_guest_finds_its_variables_at_its_destination() -> None:
    def placed(place: str, **properties: str) -> str:
        return ET.tostring(made(place=Path(place), image_properties=properties), encoding="unicode")

    moved = ET.fromstring(at_destination(placed("/source", **UEFI), placed("/destination", **UEFI)))
    assert moved.findtext("os/nvram") == "/destination/nvram.fd"
    with pytest.raises(ValueError, match="firmware"):
        at_destination(placed("/source", **UEFI), placed("/destination"))


# ------------------------------------------------------------------------------------------------- processors


def test_limits_and_arrangement_of_processors() -> None:
    plain = made()
    assert plain.find("cputune") is None
    assert plain.find("cpu/topology") is None
    limited = of_flavor(quota__cpu_shares="512", quota__cpu_period="20000", quota__cpu_quota="-1", hw__cpu_sockets="2")
    assert {each.tag: each.text for each in limited.iterfind("cputune/*")} == {
        "shares": "512", "period": "20000", "quota": "-1",
    }  # fmt: skip
    assert attributes(limited, "cpu/topology") == [{"sockets": "2", "cores": "2", "threads": "1"}]
    assert limited.findtext("cpu/model") == "qemu64"


def test_shares_alone_are_with_a_quota_that_is_none() -> None:
    """libvirt drops shares silently where it cannot have them, and refuses a quota."""
    assert of_flavor(quota__cpu_shares="512").findtext("cputune/quota") == "-1"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("shares", "half", "quota:cpu_shares must be a whole number"),
        ("shares", "-5", "quota:cpu_shares must be a whole number"),
        ("quota", "999", "quota:cpu_quota must be from 1000 to 17592186044415 µs, and is 999"),
        ("period", "1000001", "quota:cpu_period must be from 1000 to 1000000 µs"),
    ],
)
def test_limits_of_processors_that_cannot_be(name: str, value: str, why: str) -> None:
    with pytest.raises(HostFailed, match=why) as refused:
        of_flavor(**{f"quota__cpu_{name}": value})
    assert refused.value.code == "not_supported"


# ---------------------------------------------------------------------------------------------- small devices


def test_the_agent_has_its_channel_only_where_the_image_has_the_agent() -> None:
    assert made().find("devices/channel") is None
    assert of_image(hw_qemu_guest_agent="no").find("devices/channel") is None
    assert attributes(of_image(hw_qemu_guest_agent="yes"), "devices/channel/target") == [
        {"type": "virtio", "name": "org.qemu.guest_agent.0"}
    ]


def test_random_numbers() -> None:
    assert attributes(made(), "devices/rng/rate") == []
    assert attributes(of_flavor(hw_rng__rate_bytes="99"), "devices/rng/rate") == [{"bytes": "99"}]
    rated = of_flavor(hw_rng__rate_bytes="99", hw_rng__rate_period="7")
    assert attributes(rated, "devices/rng/rate") == [{"bytes": "99", "period": "7"}]
    assert of_flavor(hw_rng__allowed="False").find("devices/rng") is None
    with pytest.raises(HostFailed, match="rate_bytes must be a whole number"):
        of_flavor(hw_rng__rate_bytes="fast")


def test_a_watchdog_does_what_the_image_says_before_what_the_flavor_says() -> None:
    both = made(extra_specs={"hw:watchdog_action": "reset"}, image_properties={"hw_watchdog_action": "pause"})
    assert attributes(both, "devices/watchdog") == [{"model": "i6300esb", "action": "pause"}]
    assert attributes(of_flavor(hw__watchdog_action="reset"), "devices/watchdog")[0]["action"] == "reset"
    off = made(extra_specs={"hw:watchdog_action": "reset"}, image_properties={"hw_watchdog_action": "disabled"})
    assert off.find("devices/watchdog") is None
    assert made().find("devices/watchdog") is None
    with pytest.raises(HostFailed, match="watchdog action"):
        of_flavor(hw__watchdog_action="bark")


def test_video() -> None:
    assert attributes(made(), "devices/video/model") == [{"type": "vga"}]
    roomy = made(
        extra_specs={"hw_video:ram_max_mb": "64"}, image_properties={"hw_video_model": "virtio", "hw_video_ram": "16"}
    )
    assert attributes(roomy, "devices/video/model") == [{"type": "virtio", "vram": "16384"}]
    assert attributes(of_image(hw_video_model="none"), "devices/video/model") == [{"type": "none"}]


def test_what_a_pointer_and_a_keyboard_are_on() -> None:
    assert made().find("devices/input") is None
    assert attributes(of_image(hw_pointer_model="usbtablet"), "devices/input") == [{"type": "tablet", "bus": "usb"}]
    on_virtio = attributes(of_image(hw_input_bus="virtio", hw_pointer_model="usbtablet"), "devices/input")
    assert on_virtio == [{"type": "tablet", "bus": "virtio"}, {"type": "keyboard", "bus": "virtio"}]


def test_a_boot_menu_serial_ports_and_scsi() -> None:
    assert made().find("os/bootmenu") is None
    assert attributes(of_flavor(hw__boot_menu="yes"), "os/bootmenu") == [{"enable": "yes"}]
    both = made(extra_specs={"hw:boot_menu": "yes"}, image_properties={"hw_boot_menu": "no"})
    assert both.find("os/bootmenu") is None
    ports = of_image(hw_serial_port_count="3").findall("devices/serial")
    assert [each.get("type") for each in ports] == ["tcp", "pty", "pty"]
    assert [target.get("port") for each in ports for target in each.iterfind("target")] == ["0", "1", "2"]
    scsi = of_image(hw_disk_bus="scsi", hw_scsi_model="lsisas1068")
    assert attributes(scsi, "devices/controller") == [{"type": "scsi", "index": "0", "model": "lsisas1068"}]


def test_queues_of_interfaces() -> None:
    vif = VifData(PortId("p"), NetworkId("n"), "fa:16:3e:00:00:01")
    wish = {"hw_vif_multiqueue_enabled": "yes"}

    def queues(**changes: Any) -> list[dict[str, str]]:
        spec = msgspec.structs.replace(GuestSpec(ONE, "web", 4, 512, 10, vifs=(vif,), image_properties=wish), **changes)
        plug = ET.Element("interface", type="ethernet")
        around = Around(ABLE, Libvirt(), "us", Path("/nowhere"), "none", [plug])
        return attributes(ET.fromstring(domain_xml(GuestRecord(spec), around)), "devices/interface/driver")

    assert queues() == [{"queues": "4"}]
    assert queues(vcpus=1) == []
    assert queues(image_properties={}) == []
    assert queues(image_properties=wish | {"hw_vif_model": "e1000"}) == []
    assert queues(image_properties={}, extra_specs={"hw:vif_multiqueue_enabled": "true"}) == [{"queues": "4"}]
    with pytest.raises(HostFailed, match="conflicts"):
        queues(extra_specs={"hw:vif_multiqueue_enabled": "no"})


# -------------------------------------------------------------------------------------------- the machine's features

KVM = replace(ABLE, virt_type="kvm")


def test_timers_and_enlightenments_are_novas() -> None:
    plain, windows = made(KVM), of_image(KVM, os_type="windows")
    timers = [
        {"name": "pit", "tickpolicy": "delay"},
        {"name": "rtc", "tickpolicy": "catchup"},
        {"name": "hpet", "present": "no"},
    ]
    assert attributes(plain, "clock/timer") == timers
    assert attributes(windows, "clock/timer") == [*timers, {"name": "hypervclock", "present": "yes"}]
    assert plain.find("features/hyperv") is None
    hyperv = windows.find("features/hyperv")
    assert hyperv is not None
    assert {each.tag for each in hyperv} >= {"relaxed", "vapic", "spinlocks", "synic", "ipi"}
    assert attributes(of_image(KVM, hw_time_hpet="true"), "clock/timer")[2]["present"] == "yes"
    assert of_image(os_type="windows").find("features/hyperv") is None  # emulated processors have none
    assert made().find("features/vmcoreinfo") is not None


def test_features_are_as_flavor_and_image_ask() -> None:
    assert attributes(of_flavor(hw__hide_hypervisor_id="true"), "features/kvm/hidden") == [{"state": "on"}]
    assert attributes(of_image(img_hide_hypervisor_id="yes"), "features/kvm/hidden") == [{"state": "on"}]
    assert attributes(of_flavor(hw__pmu="false"), "features/pmu") == [{"state": "off"}]
    assert made().find("features/pmu") is None
    assert attributes(of_flavor(hw__sound_model="ich9"), "devices/sound") == [{"model": "ich9"}]
    assert attributes(of_image(hw_usb_model="qemu-xhci"), "devices/controller[@type='usb']")[0]["model"] == "qemu-xhci"
    assert attributes(of_flavor(hw__maxphysaddr_mode="emulate", hw__maxphysaddr_bits="42"), "cpu/maxphysaddr") == [
        {"mode": "emulate", "bits": "42"}
    ]
    packed = of_flavor(hw__virtio_packed_ring="true")
    assert {each.get("packed") for each in attributes(packed, "devices/disk/driver")} == {"on"}
    on_q35 = of_image(hw_viommu_model="intel", hw_machine_type="q35")
    assert attributes(on_q35, "devices/iommu") == [{"model": "intel"}]


@pytest.mark.parametrize(
    ("specs", "properties", "why"),
    [
        ({}, {"hw_viommu_model": "intel"}, "q35 is needed"),
        ({"hw:sound_model": "virtio"}, {}, "cannot make"),
        ({"hw:redirected_usb_ports": "2"}, {}, "cannot make"),
        ({"hw:maxphysaddr_mode": "passthrough"}, {}, "emulated"),
        ({"hw:maxphysaddr_mode": "emulate"}, {}, "hw:maxphysaddr_bits"),
        ({"hw:pmu": "true"}, {"hw_pmu": "false"}, "conflicts"),
        ({"hw:sound_model": "ich9"}, {"hw_sound_model": "ac97"}, "conflicts"),
    ],
)
def test_features_are_refused_of_new_guests_alone(specs: dict[str, str], properties: dict[str, str], why: str) -> None:
    """A guest that an earlier release made has none of it, and is switched on, moved and evacuated without it."""
    spec = GuestSpec(ONE, "web", 4, 512, 10, extra_specs=specs, image_properties=properties)
    with pytest.raises(HostFailed, match=why) as refused:
        refuse_unmade(spec, ABLE)
    assert refused.value.code == "not_supported"
    without = made()
    for each in (
        "devices/sound",
        "devices/iommu",
        "devices/controller[@type='usb']",
        "cpu/maxphysaddr",
        "features/pmu",
    ):
        found = made(extra_specs=specs, image_properties=properties).findall(each)
        assert [*map(ET.tostring, found)] == [*map(ET.tostring, without.findall(each))]


@pytest.mark.parametrize(
    "specs",
    [
        {"hw:mem_encryption": "true"}, {"hw:ephemeral_encryption": "true"}, {"hw:cpu_policy": "dedicated"}, {"hw:numa_nodes": "2"},
        {"hw:mem_page_size": "large"}, {"hw:pmem": "6GB"}, {"resources:PCPU": "4"}, {"quota:vif_inbound_average": "10"},
    ],
)  # fmt: skip
def test_a_new_guest_is_refused_for_what_it_would_not_have(specs: dict[str, str]) -> None:
    """Also where a site has told Placement that this host has it."""
    spec = GuestSpec(ONE, "web", 4, 512, 10, extra_specs=specs)
    with pytest.raises(HostFailed, match=next(iter(specs))) as refused:
        refuse_unmade(spec, ABLE)
    assert refused.value.code == "not_supported"
    refuse_unmade(GuestSpec(ONE, "web", 4, 512, 10, extra_specs={"hw:cpu_cores": "2"}), ABLE)


def test_another_architecture_is_refused() -> None:
    spec = GuestSpec(ONE, "web", 4, 512, 10, image_properties={"hw_emulation_architecture": "aarch64"})
    with pytest.raises(HostFailed, match="aarch64"):
        refuse_unmade(spec, ABLE)


@pytest.mark.parametrize(("kind", "name"), made_names.EACH)
def test_the_domain_shows_each_name_that_is_made(kind: str, name: str) -> None:
    """`request_names` promises them; tests/hypervisor/test_made_names.py looks at real guests in the same way."""
    shown, specs, properties = made_names.asking(kind, name)
    vif = VifData(PortId("p"), NetworkId("n"), "fa:16:3e:00:00:01")

    def domain(specs: dict[str, str], properties: dict[str, str]) -> ET.Element:
        spec = GuestSpec(ONE, "web", 4, 512, 10, vifs=(vif,), extra_specs=specs, image_properties=properties)
        around = Around(ABLE, Libvirt(), "us", Path("/nowhere"), "none", [ET.Element("interface", type="ethernet")])
        return ET.fromstring(domain_xml(GuestRecord(spec), around))

    assert domain(specs, properties).find(shown.path) is not None
    assert domain(*shown.beside).find(shown.path) is None
