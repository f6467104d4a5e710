"""Parts of the libvirt driver that need no hypervisor; what it does with guests is in tests/hypervisor."""

import asyncio
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from moorage.drivers.libvirt.domain_xml import NAMESPACE, Around, domain_xml, seat_volumes
from moorage.drivers.libvirt.host_facts import MachineFacts, chosen_virt_type
from moorage.drivers.libvirt.images import ImageCache
from moorage.drivers.libvirt.quotas import disk_limits
from moorage.drivers.libvirt.records import GuestDirectory, GuestRecord
from moorage.drivers.libvirt.settings import Libvirt
from moorage.drivers.libvirt.wires import bridge_of, tap_of
from moorage.main.config import AgentConfig, Config
from moorage.main.hosts import this_machine
from moorage.main.up import configured, parser, with_real_guests
from moorage.model.errors import HostFailed, Invalid
from moorage.model.guest import EphemeralDisk, GuestSpec, VifData, VolumeDisk
from moorage.model.ids import ImageId, NetworkId, PortId, ServerId
from moorage.model.image import ImageFile
from moorage.model.rescue import RescueSpec
from moorage_embedded.network.binding import bound

ONE = ServerId("11111111-0000-4000-8000-000000000000")
MACHINE = MachineFacts("x86_64", "/usr/bin/qemu", "qemu", (), {}, 7_002_000)
LOCAL = {"driver_volume_type": "local", "device_path": "/vol", "format": "raw"}


# ------------------------------------------------------------------------------------------------- the machine


@pytest.mark.parametrize(
    ("made", "cpuinfo", "said"),
    [
        ((), "flags: vmx", "qemu"),
        (("dev/kvm",), "flags: fpu", "qemu"),
        (("dev/kvm", "sys/module/kvm_pvm/x"), "flags: fpu", "qemu"),
        (("dev/kvm",), "flags: fpu vmx", "kvm"),
        (("dev/kvm",), "flags: svm fpu", "kvm"),
        (("dev/kvm", "sys/module/kvm_intel/x"), "", "kvm"),
    ],
)
def test_kvm_is_used_when_available(tmp_path: Path, made: tuple[str, ...], cpuinfo: str, said: str) -> None:
    for each in (*made, "proc/cpuinfo"):
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / each).write_text(cpuinfo)
    assert chosen_virt_type(Libvirt(), tmp_path) == said
    assert chosen_virt_type(Libvirt(virt_type="kvm"), tmp_path) == "kvm"


# --------------------------------------------------------------------------------------------------- the domain


def described(record: GuestRecord, place: Path = Path("/nowhere")) -> ET.Element:
    plugs = [ET.Element("interface", type="ethernet") for _ in record.spec.vifs]
    return ET.fromstring(domain_xml(record, Around(MACHINE, Libvirt(), "us", place, "none", plugs)))


def record(**changes: Any) -> GuestRecord:
    spec = GuestSpec(ONE, "a <b> & c", 2, 512, 10)
    return GuestRecord(msgspec.structs.replace(spec, **changes), serial_port=10_001)


def first_to_boot(domain: ET.Element) -> str:
    return next(
        disk.find("source").get("file") or ""  # type: ignore[union-attr]
        for disk in domain.iterfind("devices/disk")
        if (boot := disk.find("boot")) is not None and boot.get("order") == "1"
    )


def test_a_domain_is_marked_and_names_every_disk_format(tmp_path: Path) -> None:
    (tmp_path / "disk.config").touch()
    made = described(record(ephemeral_gib=1, swap_mib=64), tmp_path)
    mark = made.find(f"metadata/{{{NAMESPACE}}}guest")
    assert mark is not None
    assert mark.attrib == {"owner": "us", "name": "a <b> & c"}
    assert made.findtext("uuid") == ONE
    assert made.findtext("sysinfo/system/entry[@name='product']") == "OpenStack Nova", "cloud-init looks for it"
    assert made.findtext("sysinfo/system/entry[@name='uuid']") == ONE
    assert made.find("os/smbios[@mode='sysinfo']") is not None
    kinds = [disk.find("driver").get("type") for disk in made.iterfind("devices/disk")]  # type: ignore[union-attr]
    assert kinds == ["qcow2", "qcow2", "qcow2", "raw"]
    assert made.get("type") == "qemu"
    assert made.findtext("cpu/model") == "qemu64"


def test_each_ephemeral_disk_is_a_disk_of_its_own_before_swap_and_volumes() -> None:
    several = record(
        ephemeral_gib=3,
        swap_mib=64,
        ephemerals=(EphemeralDisk(2, "xfs"), EphemeralDisk(1)),
        volumes=(VolumeDisk("v", LOCAL),),
    )
    seat_volumes(several)
    made = described(several)
    files = {
        disk.find("target").get("dev"): disk.find("source").get("file")  # type: ignore[union-attr]
        for disk in made.iterfind("devices/disk[@type='file']")
    }
    assert (files["vdb"], files["vdc"]) == ("/nowhere/disk.eph0", "/nowhere/disk.eph1")
    assert (files["vdd"], several.targets) == ("/nowhere/disk.swap", {"v": "vde"})
    with pytest.raises(HostFailed, match="too many local disks"):
        described(record(ephemeral_gib=4, ephemerals=(EphemeralDisk(1),) * 4))


def test_the_rescue_disk_is_first_or_disks_keep_their_places() -> None:
    rescued = record()
    rescued.rescue = RescueSpec("image")
    moved = described(rescued)
    assert first_to_boot(moved) == "/nowhere/disk.rescue"
    assert [each.get("dev") for each in moved.iterfind("devices/disk/target")] == ["vda", "vdb"]
    rescued.rescue = RescueSpec("image", device="cdrom", bus="sata")
    stays = described(rescued)
    assert first_to_boot(stays) == "/nowhere/disk.rescue"
    assert [each.get("dev") for each in stays.iterfind("devices/disk/target")] == ["vda", "sda"]


@pytest.mark.parametrize(
    "properties",
    [{"hw_firmware_type": "uefi"}, {"hw_disk_bus": "carrier-pigeon"}, {"hw_vif_model": "carrier-pigeon"}],
)
def test_unsupported_requests_are_refused_with_the_reason(properties: dict[str, str]) -> None:
    vif = VifData(PortId("p"), NetworkId("n"), "fa:16:3e:00:00:01")
    with pytest.raises(HostFailed) as cannot:
        described(record(image_properties=properties, vifs=(vif,)))
    assert cannot.value.code == "not_supported"


@pytest.mark.parametrize(
    ("specs", "why"),
    [
        ({"quota:disk_read_bytes_sec": "much"}, "whole number"),
        ({"quota:disk_total_iops_sec": "9", "quota:disk_write_iops_sec": "9"}, "excludes"),
    ],
)
def test_limits_of_disks_that_cannot_be(specs: dict[str, str], why: str) -> None:
    with pytest.raises(HostFailed, match=why):
        disk_limits(specs)


def test_limits_of_disks() -> None:
    assert disk_limits({"hw:cpu_policy": "shared"}) is None
    made = disk_limits({"quota:disk_read_iops_sec": "10", "quota:disk_total_bytes_sec": "1048576"})
    assert made is not None
    assert {each.tag: each.text for each in made} == {"total_bytes_sec": "1048576", "read_iops_sec": "10"}


@pytest.mark.parametrize(
    "connection",
    [{"driver_volume_type": "rbd"}, LOCAL | {"device_path": "relative"}, LOCAL | {"format": "vmdk"}, {}],
)
def test_volumes_of_unsupported_protocols_are_refused(connection: dict[str, Any]) -> None:
    far = record(volumes=(VolumeDisk("v", connection),))
    far.targets = {"v": "vdb"}
    with pytest.raises(HostFailed) as cannot:
        described(far)
    assert cannot.value.code == "volume_unreachable"
    near = record(volumes=(VolumeDisk("v", {"driver_volume_type": "local", "data": LOCAL}),))
    near.targets = {"v": "vdb"}
    assert described(near).findtext("devices/disk/serial") == "v"


def test_a_volume_of_several_servers_is_shareable() -> None:
    """Else QEMU locks it for the first guest of a host."""
    for connection in (LOCAL, {"driver_volume_type": "local", "data": LOCAL}):
        both, one = VolumeDisk("v", {**connection, "multiattach": True}), VolumeDisk("w", connection)
        made = record(volumes=(both, one))
        made.targets = {"v": "vdb", "w": "vdc"}
        disks = [each for each in described(made).iterfind("devices/disk") if each.find("serial") is not None]
        assert [(each.findtext("serial"), each.find("shareable") is not None) for each in disks] == [
            ("v", True), ("w", False),
        ]  # fmt: skip
    chain = record(volumes=(VolumeDisk("v", {**LOCAL, "format": "qcow2", "multiattach": True}),))
    chain.targets = {"v": "vdb"}
    with pytest.raises(HostFailed, match="cannot share volumes of this format"):
        described(chain)


# ---------------------------------------------------------------------------------------------------- the wires


def test_names_of_devices_are_made_of_ids() -> None:
    vif = VifData(PortId("0123456789-abcdef"), NetworkId("fedcba9876-543210"), "fa:16:3e:00:00:01", "bridge")
    assert tap_of(vif) == "tap0123456789-"
    assert bridge_of(vif, {}) == "mrgfedcba9876-"
    wired = msgspec.structs.replace(vif, physical_network="physnet1")
    assert bridge_of(wired, {"physnet1": "br-ex"}) == "br-ex"
    assert bridge_of(wired, {}) == "mrgfedcba9876-"
    named = msgspec.structs.replace(vif, vif_details={"bridge_name": "br-flat"})
    assert bridge_of(named, {}) == "br-flat"
    for bad in (
        msgspec.structs.replace(vif, vif_details={"bridge_name": "; rm -rf /"}),
        msgspec.structs.replace(vif, vif_details={"bridge_name": "longer than a name may be"}),
    ):
        with pytest.raises(HostFailed):
            bridge_of(bad, {})
    tagged = msgspec.structs.replace(wired, segmentation_id=101)
    assert bridge_of(tagged, {"physnet1": "br-ex"}) == "mrvfedcba9876-"


def test_the_embedded_network_service_binds_bridges_without_filters() -> None:
    segment = {"id": "s", "network_type": "vxlan", "physical_network": None, "segmentation_id": 1}
    agent = {"alive": True, "agent_type": "Linux bridge agent", "configurations": {"bridge_mappings": {}}}
    said = bound({"_segments": [segment]}, agent, "normal", None)
    assert (said["vif_type"], said["vif_details"]["port_filter"]) == ("bridge", False)
    assert bound({"_segments": [segment]}, agent, "direct", None)["vif_type"] == "binding_failed"


# --------------------------------------------------------------------------------------------------- its files


def test_guests_without_a_record_are_removed_and_unreadable_ones_kept(tmp_path: Path) -> None:
    (tmp_path / "guests" / ONE).mkdir(parents=True)
    bad = ServerId("22222222-0000-4000-8000-000000000000")
    (tmp_path / "guests" / bad / "d1").mkdir(parents=True)
    (tmp_path / "guests" / bad / "guest.json").write_text("{")
    records = GuestDirectory(tmp_path)
    records.open()
    assert records.every() == {}
    assert not (tmp_path / "guests" / ONE).exists()
    assert records.set_aside == (bad,)
    assert (tmp_path / "guests" / bad / "d1").exists()
    with pytest.raises(Invalid, match="another agent runs"):
        GuestDirectory(tmp_path).open()
    records.close()


@pytest.mark.parametrize("name", ["../../etc", "", ".", "11111111-0000-4000-8000-00000000000", "{" + ONE + "}"])
def test_only_a_server_is_a_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(HostFailed):
        GuestDirectory(tmp_path).directory(ServerId(name))


class OneImage:
    def __init__(self, file: ImageFile) -> None:
        self.file, self.fetched = file, 0

    async def fetch(self, image: ImageId) -> ImageFile:
        self.fetched += 1
        return self.file

    async def send(self, image: ImageId, data: ImageFile) -> None:
        raise AssertionError


async def test_an_image_with_another_format_than_declared_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"QFI\xfb and what may follow")
    with pytest.raises(HostFailed, match="not of its disk_format"):
        await ImageCache(tmp_path, OneImage(ImageFile(file, "raw", "bare")), 0.0).disk(ImageId("i"))
    file.write_bytes(b"no qcow2")
    with pytest.raises(HostFailed, match="not of its disk_format"):
        await ImageCache(tmp_path, OneImage(ImageFile(file, "qcow2", "bare")), 0.0).disk(ImageId("i"))


async def test_an_image_is_downloaded_once_and_removed_when_unused(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"raw")
    images = OneImage(ImageFile(file, "raw", "bare"))
    cache = ImageCache(tmp_path, images, 0.0)
    names = set(await asyncio.gather(*(cache.disk(ImageId("../odd")) for _ in range(3))))
    assert images.fetched == len(names) == 1
    base = names.pop()
    cache.prune({base})
    assert cache.path(base).parent == tmp_path / "images"
    assert cache.path(base).exists()
    ImageCache(tmp_path, images, 3600.0).prune(())
    assert cache.path(base).exists()
    cache.prune(())
    assert not cache.path(base).exists()
    assert file.exists()


# ---------------------------------------------------------------------------------------------- its configuration


def test_moorage_up_uses_one_machine_as_host() -> None:
    config = with_real_guests(Config(agent=AgentConfig(host="here", driver="libvirt")))
    plan = this_machine(config)
    assert (plan.host, plan.cell, plan.real) == ("here", "cell1", True)
    assert config.libvirt.dhcp
    assert config.metadata.force_config_drive, "nobody answers at the metadata service's address"
    asked = configured(parser().parse_args(["--driver", "libvirt", "--metadata-port", "18775"]))
    assert asked.libvirt.metadata_url == "http://127.0.0.1:18775"
    assert not asked.metadata.force_config_drive, "only who asks for a config drive has one"
    alone = configured(parser().parse_args(["--driver", "libvirt", "--metadata-port", "0"]))
    assert (alone.libvirt.metadata_url, alone.metadata.force_config_drive) == ("", True)
    with pytest.raises(Invalid, match="no cell"):
        this_machine(Config(agent=AgentConfig(cell="nowhere", driver="libvirt")))
