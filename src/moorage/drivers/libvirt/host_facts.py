"""Facts about this machine, with Placement's and Nova's names; and what is missing on it."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import os_traits

from moorage.drivers.capacity import RESERVED_RAM_MIB, VCPU_RATIO, inventory
from moorage.drivers.libvirt.disks import MAKES_XFS
from moorage.drivers.libvirt.library import library
from moorage.drivers.libvirt.qemu_access import qemu_user
from moorage.drivers.libvirt.settings import Libvirt
from moorage.drivers.libvirt.system_users import has_user
from moorage.model import guest_hardware
from moorage.model.errors import HostFailed
from moorage.model.guest import HostDescription, ResourceInventory
from moorage.model.local_disks import DISKS_TRAIT, XFS_TRAIT

MODPROBE_S = 30.0
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
ABLE = (
    DISKS_TRAIT,
    "COMPUTE_CONFIG_DRIVE_REGENERATION",
    "COMPUTE_DEVICE_TAGGING",
    "COMPUTE_FIRMWARE_BIOS",
    "COMPUTE_IMAGE_TYPE_QCOW2",
    "COMPUTE_IMAGE_TYPE_RAW",
    "COMPUTE_NET_ATTACH_INTERFACE",
    "COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG",
    "COMPUTE_NET_VIF_MODEL_E1000",
    "COMPUTE_NET_VIF_MODEL_RTL8139",
    "COMPUTE_NET_VIF_MODEL_VIRTIO",
    "COMPUTE_NET_VIRTIO_PACKED",
    "COMPUTE_NODE",
    "COMPUTE_RESCUE_BFV",
    "COMPUTE_SOUND_MODEL_AC97",
    "COMPUTE_SOUND_MODEL_ES1370",
    "COMPUTE_SOUND_MODEL_ICH6",
    "COMPUTE_SOUND_MODEL_ICH9",
    "COMPUTE_SOUND_MODEL_PCSPK",
    "COMPUTE_SOUND_MODEL_SB16",
    "COMPUTE_SOUND_MODEL_USB",
    "COMPUTE_USB_MODEL_NEC_XHCI",
    "COMPUTE_USB_MODEL_QEMU_XHCI",
    "COMPUTE_VOLUME_ATTACH",
    "COMPUTE_VOLUME_ATTACH_WITH_TAG",
    "COMPUTE_VOLUME_EXTEND",
)
"""What the driver can do with any guest."""
UEFI = "COMPUTE_FIRMWARE_UEFI"
WITH_ADDRESS_BITS, WITH_VIRTIO_IOMMU = 8_007_000, 8_003_000
"""libvirt's first versions that know them."""
IOMMUS = {"x86_64": ("INTEL", "AUTO"), "aarch64": ("SMMUV3", "AUTO")}
BUSES = ("ide", "sata", "scsi", "usb", "virtio")
PACKAGES = {
    "qemu-img": "qemu-utils",
    "ip": "iproute2",
    "mke2fs": "e2fsprogs",
    "mkswap": "util-linux",
    "dnsmasq": "dnsmasq-base",
    "nft": "nftables",
    "tc": "iproute2",
}
"""Program → the Debian package that has it."""


@dataclass(frozen=True)
class MachineFacts:
    """Facts that the daemon reports at its first call."""

    arch: str
    emulator: str
    virt_type: str
    traits: tuple[str, ...]
    cpu: dict[str, Any]
    version: int
    uefi: bool = False
    """Whether libvirt finds UEFI firmware for guests."""
    secure_boot: bool = False
    """Whether it finds such firmware with Secure Boot."""
    machine_types: frozenset[str] = frozenset()
    video_models: frozenset[str] = frozenset()
    """Of this QEMU; empty: not known."""
    qemu_user: tuple[int, int] | None = None
    """User and group of guests' processes; None: root."""


def lacking(settings: Libvirt) -> list[str]:
    """Return what is missing on this machine besides a daemon, with the names of Debian's packages."""
    absent = [f"{name} (package {PACKAGES[name]})" for name in _programs(settings) if shutil.which(name) is None]
    if not any(shutil.which(each) for each in ("qemu-system-x86_64", "qemu-system-aarch64", "qemu-kvm")):
        absent.append("QEMU (package qemu-system-x86)")
    if settings.port_filter and not bridges_are_filtered():
        absent.append("br_netfilter of the kernel (modprobe br_netfilter), or [libvirt] port_filter = false")
    absent += [f"the user {name} ([libvirt] {setting})" for setting, name in _users(settings) if not has_user(name)]
    if os.geteuid() != 0:
        absent.append("root's rights for us (network devices are made: run it as root)")
    return absent


def bridges_are_filtered() -> bool:
    """Whether the kernel can hand frames of bridges to nftables; a module that is not loaded is."""
    bridge_settings = Path("/proc/sys/net/bridge")
    if not bridge_settings.exists() and (modprobe := shutil.which("modprobe")) is not None:
        subprocess.run([modprobe, "br_netfilter"], check=False, capture_output=True, timeout=MODPROBE_S)
    return bridge_settings.exists()


def has_no_socket(settings: Libvirt, root: Path = Path("/")) -> bool:
    """Whether no daemon of this machine listens where libvirt's daemons do; another `uri` cannot be told without libvirt."""
    names = ("libvirt-sock", "virtqemud-sock")
    return settings.uri == "qemu:///system" and not any((root / "run/libvirt" / each).exists() for each in names)


def no_daemon(settings: Libvirt, why: str) -> str:
    return f"a libvirt daemon that answers at {settings.uri} ({why.strip()}; package libvirt-daemon-system)"


def _programs(settings: Libvirt) -> Iterator[str]:
    yield from ("qemu-img", "ip", "mke2fs", "mkswap")
    if settings.dhcp:
        yield "dnsmasq"
    if settings.vxlan_address or settings.port_filter or settings.routers or settings.dhcp:
        yield "nft"
    if settings.port_filter:
        yield "tc"


def _users(settings: Libvirt) -> Iterator[tuple[str, str]]:
    """Setting → whom a server of the host runs as."""
    if settings.dhcp:
        yield "dhcp_user", settings.dhcp_user
    if settings.metadata_url:
        yield "metadata_user", settings.metadata_user


def chosen_virt_type(settings: Libvirt, root: Path = Path("/")) -> str:
    """Choose KVM if it runs ordinary guests: `/dev/kvm` and libvirt's report are not enough, because some kernels emulate it badly."""
    if settings.virt_type != "auto":
        return settings.virt_type
    if not (root / "dev/kvm").exists():
        return "qemu"
    if os.uname().machine != "x86_64":
        return "kvm"
    modules = root / "sys/module"
    if (modules / "kvm_intel").exists() or (modules / "kvm_amd").exists():
        return "kvm"
    try:
        words = set((root / "proc/cpuinfo").read_text().split())
    except OSError:
        return "qemu"
    return "kvm" if words & {"vmx", "svm"} else "qemu"


def inspect_machine(connection: Any, settings: Libvirt) -> MachineFacts:
    """Ask the daemon. Raises HostFailed when it has no QEMU for this machine's guests."""
    virt_type, arch = chosen_virt_type(settings), os.uname().machine
    try:
        capabilities = ET.fromstring(connection.getDomainCapabilities(None, arch, None, virt_type))
    except library().libvirtError as failure:
        why = f"{virt_type} on {arch}: {failure}"
        raise HostFailed("the host's libvirt has no QEMU for its guests", private=why, code="guest_failed") from failure
    whole = ET.fromstring(connection.getCapabilities())
    uefi, secure_boot = _firmware(connection, capabilities, virt_type, arch)
    firmware = {UEFI: uefi, guest_hardware.SECURE_BOOT_TRAIT: secure_boot}
    return MachineFacts(
        arch,
        capabilities.findtext("path") or "",
        virt_type,
        tuple(
            sorted(
                {
                    *ABLE,
                    *_traits(connection, capabilities, virt_type, arch),
                    *_machine_traits(int(connection.getLibVersion()), virt_type, arch),
                    *(name for name, has in firmware.items() if has),
                    *((XFS_TRAIT,) if shutil.which(MAKES_XFS) else ()),
                }
            )
        ),
        _cpu_info(whole.find("host/cpu"), arch),
        int(connection.getVersion()),
        uefi=uefi,
        secure_boot=secure_boot,
        machine_types=frozenset(each.text or "" for each in whole.iterfind(f"guest/arch[@name='{arch}']//machine")),
        video_models=frozenset(each.text or "" for each in capabilities.iterfind("devices/video/enum/value")),
        qemu_user=qemu_user(whole, virt_type),
    )


def _firmware(connection: Any, domain_capabilities: ET.Element, virt_type: str, arch: str) -> tuple[bool, bool]:
    """Whether there is UEFI, and UEFI with Secure Boot, which on x86_64 only machines of the type Q35 have."""
    secured = domain_capabilities
    if arch == "x86_64":
        try:
            secured = ET.fromstring(connection.getDomainCapabilities(None, arch, "q35", virt_type))
        except library().libvirtError:
            secured = ET.Element("domainCapabilities")
    uefi = any(each.text == "efi" for each in domain_capabilities.iterfind("os/enum[@name='firmware']/value"))
    secure = any(each.text == "yes" for each in secured.iterfind("os/loader/enum[@name='secure']/value"))
    return uefi, uefi and secure


def _traits(connection: Any, capabilities: ET.Element, virt_type: str, arch: str) -> Iterator[str]:
    known = set(os_traits.get_traits())
    buses = {each.text for each in capabilities.iterfind("devices/disk/enum[@name='bus']/value")}
    yield from (f"COMPUTE_STORAGE_BUS_{each.upper()}" for each in BUSES if each in buses)
    models = (
        f"COMPUTE_GRAPHICS_MODEL_{(each.text or '').upper()}"
        for each in capabilities.iterfind("devices/video/enum/value")
    )
    yield from (each for each in models if each in known)
    if f"COMPUTE_ARCH_{arch.upper()}" in known:
        yield f"COMPUTE_ARCH_{arch.upper()}"
    for feature in _cpu_features(connection, capabilities, virt_type, arch):
        name = f"HW_CPU_X86_{feature.upper().replace('-', '_').replace('.', '_')}"
        if name in known:
            yield name


def _machine_traits(library_version: int, virt_type: str, arch: str) -> Iterator[str]:
    yield from (f"COMPUTE_VIOMMU_MODEL_{each}" for each in IOMMUS.get(arch, ()))
    if arch in IOMMUS and library_version >= WITH_VIRTIO_IOMMU:
        yield "COMPUTE_VIOMMU_MODEL_VIRTIO"
    if library_version >= WITH_ADDRESS_BITS:
        yield "COMPUTE_ADDRESS_SPACE_EMULATED"
        if virt_type == "kvm":
            yield "COMPUTE_ADDRESS_SPACE_PASSTHROUGH"


def _cpu_features(connection: Any, capabilities: ET.Element, virt_type: str, arch: str) -> set[str]:
    """Of the processors that guests see."""
    if arch != "x86_64":
        return set()
    model = capabilities.find("cpu/mode[@name='host-model']") if virt_type == "kvm" else None
    if model is None or model.get("supported") != "yes":
        cpu_xml = "<cpu mode='custom' match='exact'><model fallback='allow'>qemu64</model></cpu>"
    else:
        cpu = ET.Element("cpu")
        cpu.extend([each for each in model if each.tag in {"model", "vendor", "feature"}])
        cpu_xml = ET.tostring(cpu, encoding="unicode")
    flags = library().VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES
    try:
        whole = ET.fromstring(connection.baselineHypervisorCPU(None, arch, None, virt_type, [cpu_xml], flags))
    except library().libvirtError:
        return set()
    return {each.get("name", "") for each in whole.iterfind("feature") if each.get("policy") != "disable"}


def _cpu_info(cpu: ET.Element | None, arch: str) -> dict[str, Any]:
    if cpu is None:
        return {"arch": arch}
    topology = cpu.find("topology")
    shape = {} if topology is None else {name: int(topology.get(name, "1")) for name in ("sockets", "cores", "threads")}
    address = cpu.find("maxphysaddr")
    bits = {} if address is None else {"mode": address.get("mode", ""), "bits": int(address.get("bits", "0"))}
    return {
        **({"maxphysaddr": bits} if bits else {}),
        "arch": cpu.findtext("arch") or arch,
        "model": cpu.findtext("model") or "",
        "vendor": cpu.findtext("vendor") or "",
        "topology": shape,
        "features": sorted(each.get("name", "") for each in cpu.iterfind("feature")),
    }


def describe(
    machine: MachineFacts, settings: Libvirt, hostname: str, room: Path, wires: tuple[str, ...]
) -> HostDescription:
    """Build the description that the agent reports. Memory is read from the kernel, because libvirt's number is wrong on some machines."""
    vcpus, ram_mib = len(os.sched_getaffinity(0)), _memory_kib() // KIB
    disk_gib = shutil.disk_usage(room).total // GIB
    return HostDescription(
        inventory={
            "VCPU": _inventory(vcpus, settings.reserved_vcpus, settings.vcpu_ratio, (0, VCPU_RATIO)),
            "MEMORY_MB": _inventory(
                ram_mib, settings.reserved_ram_mib, settings.ram_ratio, (min(RESERVED_RAM_MIB, ram_mib - 1), 1.0)
            ),
            "DISK_GB": _inventory(disk_gib, settings.reserved_disk_gib, settings.disk_ratio),
        },
        traits=machine.traits,
        physical_networks=wires,
        hypervisor_type="QEMU",
        hypervisor_version=machine.version,
        hypervisor_hostname=hostname or socket.gethostname(),
        cpu_info=machine.cpu,
        address=settings.address,
        up_since=_up_since_us(),
    )


def _inventory(
    total: int, reserved: int | None, ratio: float | None, usual: tuple[int, float] = (0, 1.0)
) -> ResourceInventory:
    total = max(1, total)
    return inventory(total, None if reserved is None else min(reserved, total - 1), ratio, usual=usual)


def _memory_kib() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1])
    raise HostFailed("the machine does not say how much memory it has", code="guest_failed")


def machine_id() -> str:
    try:
        text = Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""
    return re.sub(r"(.{8})(.{4})(.{4})(.{4})(.{12})", r"\1-\2-\3-\4-\5", text)


def _up_since_us() -> int:
    up_s = float(Path("/proc/uptime").read_text().split()[0])
    return int((time.time() - up_s) * 1_000_000)
