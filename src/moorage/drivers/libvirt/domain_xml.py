"""libvirt's description of a guest, which is made from its record each time that the guest is switched on."""

import string
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from moorage import __version__
from moorage.drivers.libvirt import machine_features
from moorage.drivers.libvirt.disks import (
    CONSOLE,
    DRIVE,
    KERNEL,
    RAMDISK,
    RESCUE,
    RESCUE_DRIVE,
    RESCUE_KERNEL,
    RESCUE_RAMDISK,
    ROOT,
    SWAP,
    ephemerals,
)
from moorage.drivers.libvirt.firmware import Q35, add_firmware, add_power, controllers, machine_type
from moorage.drivers.libvirt.guest_devices import (
    cdrom_bus,
    has_boot_menu,
    more_serial_ports,
    scsi_controller,
)
from moorage.drivers.libvirt.guest_devices import (
    devices as small_devices,
)
from moorage.drivers.libvirt.host_facts import MachineFacts
from moorage.drivers.libvirt.quotas import cpu_limits, disk_limits
from moorage.drivers.libvirt.records import GuestRecord
from moorage.drivers.libvirt.refusals import cannot, not_here
from moorage.drivers.libvirt.settings import Libvirt
from moorage.model import guest_hardware
from moorage.model.errors import HostFailed, Invalid
from moorage.model.guest import GuestSpec, VifData, VolumeDisk
from moorage.model.ids import ServerId

NAMESPACE = "https://moorage.org/xmlns/libvirt/1"
PRODUCT = "OpenStack Nova"
PREFIXES = {"virtio": "vd", "scsi": "sd", "sata": "sd", "usb": "sd", "ide": "hd"}
VIF_MODELS = frozenset({"virtio", "e1000", "e1000e", "rtl8139"})
COMMAND_LINE = "root=/dev/vda console=tty0 console=ttyS0"
COMMAND_LINE_EMULATED = f"{COMMAND_LINE} no_timer_check"
"""On a busy machine emulated timers are late, and the kernel would treat this as a fault."""

ET.register_namespace("moorage", NAMESPACE)


def domain_name(server: ServerId) -> str:
    """Return the domain's name, as the Compute API shows it (`OS-EXT-SRV-ATTR:instance_name`)."""
    return f"guest-{server}"


@dataclass(frozen=True)
class Around:
    """Everything besides its record on which a guest's description depends."""

    machine: MachineFacts
    settings: Libvirt
    owner: str
    place: Path
    """The directory of its disks."""
    cache: str
    """QEMU's cache mode of disks that are files."""
    plugs: Sequence[ET.Element]
    """The connections of its interfaces, in their order."""


def domain_xml(record: GuestRecord, around: Around) -> str:
    """Build the description. Raises HostFailed when flavor or image ask for something that cannot be made here."""
    try:
        return ET.tostring(_domain(record, around), encoding="unicode")
    except Invalid as contradiction:  # of a server that was accepted by a release that did not look
        raise not_here(contradiction.public) from contradiction


def _domain(record: GuestRecord, around: Around) -> ET.Element:
    spec, machine = record.spec, around.machine
    domain = ET.Element("domain", type=machine.virt_type)
    _add(domain, "name", domain_name(spec.server))
    _add(domain, "uuid", spec.server)
    marked = _add(domain, "metadata")
    ET.SubElement(marked, f"{{{NAMESPACE}}}guest", owner=around.owner, name=spec.name)
    _add(domain, "memory", str(spec.ram_mib), unit="MiB")
    _add(domain, "vcpu", str(spec.vcpus))
    tuned = cpu_limits(spec.extra_specs)
    if tuned is not None:
        domain.append(tuned)
    _add_boot(domain, record, around)
    if machine.arch == "x86_64":
        _add_identity(domain, spec.server)
    features = _add(domain, "features")
    _add(features, "acpi")
    if machine.arch == "x86_64":
        _add(features, "apic")
    machine_features.add_features(features, spec, machine)
    _add_cpu(domain, spec, around)
    windows = spec.image_properties.get("os_type", "").lower() == "windows"
    machine_features.add_timers(_add(domain, "clock", offset="localtime" if windows else "utc"), spec, machine)
    add_power(domain)
    for event, does in (("on_poweroff", "destroy"), ("on_reboot", "restart"), ("on_crash", "destroy")):
        _add(domain, event, does)
    devices = _add(domain, "devices")
    if machine.emulator:
        _add(devices, "emulator", machine.emulator)
    devices.extend(controllers(spec, machine))
    disks = list(_disks(record, around))  # a list: a refusal from inside a generator is lost in there
    limits = disk_limits(spec.extra_specs)
    for each in disks:
        if limits is not None and each.find("serial") is None and each.get("device") == "disk":
            each.append(limits)
    devices.extend([machine_features.pack(each, spec) for each in disks])
    if any(each.get("bus") == "scsi" for each in devices.iterfind("disk/target")):
        devices.append(scsi_controller(spec))
    devices.extend([interface(spec, vif, plug) for vif, plug in zip(spec.vifs, around.plugs, strict=True)])
    _add_consoles(devices, record, around)
    devices.extend(list(small_devices(spec, machine)))
    devices.extend(list(machine_features.devices(spec, machine, machine_type(spec, machine))))
    return domain


def _add(parent: ET.Element, tag: str, text: str | None = None, **attributes: str) -> ET.Element:
    made = ET.SubElement(parent, tag, attributes)
    made.text = text
    return made


def _add_boot(domain: ET.Element, record: GuestRecord, around: Around) -> None:
    spec, properties = record.spec, record.spec.image_properties
    system = _add(domain, "os")
    kind = _add(system, "type", "hvm", arch=around.machine.arch)
    if wanted := machine_type(spec, around.machine):
        kind.set("machine", wanted)
    add_firmware(system, spec, around.machine, around.place)
    if has_boot_menu(spec):
        _add(system, "bootmenu", enable="yes")
    rescued = record.rescue is not None
    has_kernel = record.rescue_kernel if rescued else record.kernel
    has_ramdisk = record.rescue_ramdisk if rescued else record.ramdisk
    if has_kernel:
        _add(system, "kernel", str(around.place / (RESCUE_KERNEL if rescued else KERNEL)))
        if has_ramdisk:
            _add(system, "initrd", str(around.place / (RESCUE_RAMDISK if rescued else RAMDISK)))
        usual = COMMAND_LINE_EMULATED if around.machine.virt_type == "qemu" else COMMAND_LINE
        _add(system, "cmdline", properties.get("os_command_line") or usual)


def _add_identity(domain: ET.Element, server: str) -> None:
    """What a guest's firmware tables say: cloud-init asks the metadata service on such machines, and on no others."""
    fields = {"manufacturer": "OpenStack Foundation", "product": PRODUCT, "version": __version__, "serial": server}
    system = _add(_add(domain, "sysinfo", type="smbios"), "system")
    for name, value in {**fields, "uuid": server, "family": "Virtual Machine"}.items():
        _add(system, "entry", value, name=name)
    found = domain.find("os")
    assert found is not None
    _add(found, "smbios", mode="sysinfo")


def _add_cpu(domain: ET.Element, spec: GuestSpec, around: Around) -> None:
    shape = guest_hardware.cpu_topology(spec.vcpus, spec.extra_specs, spec.image_properties)
    mode, model = around.settings.cpu_mode, around.settings.cpu_model
    emulated = around.machine.virt_type == "qemu"
    if mode == "auto" and emulated and around.machine.arch != "x86_64":
        cpu = ET.Element("cpu")
    else:
        if mode == "auto":
            mode, model = ("custom", "qemu64") if emulated else ("host-model", "")
        cpu = ET.Element("cpu", mode=mode)
    if mode == "custom":
        cpu.set("match", "exact")
        _add(cpu, "model", model, fallback="allow")
    if shape is not None:
        ET.SubElement(cpu, "topology", {part: str(getattr(shape, part)) for part in guest_hardware.PARTS})
    machine_features.add_addresses(cpu, spec, around.machine)
    if cpu.attrib or len(cpu):
        domain.append(cpu)


# ------------------------------------------------------------------------------------------------------- disks


def root_is_local(spec: GuestSpec) -> bool:
    """Tell whether the root disk is a file of this host, not a volume."""
    return all(each.boot_index != 0 for each in spec.volumes)


def bus_of(spec: GuestSpec) -> str:
    bus = spec.image_properties.get("hw_disk_bus", "virtio")
    if bus not in PREFIXES:
        raise cannot(f"disks on the bus {bus}")
    return bus


class Seats:
    """Free device names on buses."""

    def __init__(self, taken: Sequence[str] = ()) -> None:
        self.taken = set(taken)

    def take(self, bus: str) -> str:
        """Take the next free device name on this bus. Raises HostFailed when there is none."""
        for letter in string.ascii_lowercase:
            name = f"{PREFIXES[bus]}{letter}"
            if name not in self.taken:
                self.taken.add(name)
                return name
        raise HostFailed("the guest has no room for another disk", private=bus, code="guest_failed")


def seat_volumes(record: GuestRecord, taken: Collection[str] = ()) -> None:
    """Give each volume a device name on its bus, which it keeps while it is attached; names of the guest's own disks stay reserved.

    `taken`: other names that are not free, such as that of a running guest's config drive.
    """
    spec = record.spec
    usual = bus_of(spec)
    kept = {each.volume: record.targets[each.volume] for each in spec.volumes if each.volume in record.targets}
    free = Seats(list(kept.values()))
    ordered = sorted(spec.volumes, key=lambda each: (each.boot_index is None, each.boot_index or 0))
    new = [each for each in ordered if each.volume not in kept]
    for volume in (each for each in new if each.boot_index == 0):
        kept[volume.volume] = free.take(volume.bus or usual)
    for _ in range(root_is_local(spec) + len(spec.ephemeral_disks) + bool(spec.swap_mib)):
        free.take(usual)
    free.taken.update(taken)
    for volume in new:
        if volume.volume not in kept:
            kept[volume.volume] = free.take(volume.bus or usual)
    record.targets = kept


def _disks(record: GuestRecord, around: Around) -> Iterator[ET.Element]:
    """The disks, root first; during a rescue the rescue disk is first, or, if it has a device or bus of its own, the others keep their names."""
    spec, place, rescue = record.spec, around.place, record.rescue
    bus, seats = bus_of(spec), Seats(list(record.targets.values()))
    stable = rescue is not None and bool(rescue.device or rescue.bus)
    first = 1
    if rescue is not None and not stable:
        yield _file_disk(place / RESCUE, seats.take(bus), bus, around.cache, order=first)
        first += 1
    if root_is_local(spec):
        order = None if rescue is not None else first
        yield _file_disk(place / ROOT, seats.take(bus), bus, around.cache, order=order)
    for volume in sorted(spec.volumes, key=lambda each: (each.boot_index is None, each.boot_index or 0)):
        boots = volume.boot_index == 0 and rescue is None
        yield volume_disk(volume, record.targets[volume.volume], bus, order=1 if boots else None)
    for name, _ in ephemerals(spec):
        yield _file_disk(place / name, seats.take(bus), bus, around.cache)
    if spec.swap_mib:
        yield _file_disk(place / SWAP, seats.take(bus), bus, around.cache)
    if rescue is not None and stable:
        kind, seat = rescue.device or "disk", rescue.bus or bus
        if kind not in {"disk", "cdrom"} or seat not in PREFIXES:
            raise cannot(f"rescue from a {kind} on the bus {seat}")
        yield _file_disk(place / RESCUE, seats.take(seat), seat, around.cache, device=kind, order=first)
    drive = place / (RESCUE_DRIVE if rescue is not None and (place / RESCUE_DRIVE).exists() else DRIVE)
    if drive.exists():
        seat = "sata" if Q35 in machine_type(spec, around.machine) else "ide"
        seat = cdrom_bus(spec, seat if around.machine.arch == "x86_64" else "scsi")
        yield _file_disk(drive, seats.take(seat), seat, around.cache, device="cdrom", kind="raw")


def _file_disk(
    file: Path,
    target: str,
    bus: str,
    cache: str,
    *,
    device: str = "disk",
    kind: str = "qcow2",
    order: int | None = None,
) -> ET.Element:
    disk = ET.Element("disk", type="file", device=device)
    driver = _add(disk, "driver", name="qemu", type=kind, cache=cache)
    _add(disk, "source", file=str(file))
    _add(disk, "target", dev=target, bus=bus)
    if device == "cdrom":
        _add(disk, "readonly")
    else:
        driver.set("discard", "unmap")
    if order is not None:
        _add(disk, "boot", order=str(order))
    return disk


def volume_disk(volume: VolumeDisk, target: str, usual_bus: str, *, order: int | None = None) -> ET.Element:
    """Build the disk of a volume. Raises HostFailed when this host cannot reach it."""
    kind = volume.connection.get("driver_volume_type")
    data = volume.connection.get("data", volume.connection)
    path, format = str(data.get("device_path") or ""), str(data.get("format") or "raw")
    if kind != "local" or not path.startswith("/"):
        raise HostFailed(
            "this host cannot reach volumes of this kind", private=f"{kind}: {path}", code="volume_unreachable"
        )
    if volume.is_encrypted:
        raise HostFailed("this host cannot decrypt volumes", private=volume.volume, code="volume_unreachable")
    if format not in {"raw", "qcow2"}:
        raise HostFailed("this host cannot use volumes of this format", private=format, code="volume_unreachable")
    shared, block = bool(volume.connection.get("multiattach")), Path(path).is_block_device()
    if shared and format != "raw":  # several writers of one qcow2 file destroy it, and libvirt refuses them
        raise HostFailed(
            "this host cannot share volumes of this format between guests", private=format, code="volume_unreachable"
        )
    disk = ET.Element("disk", type="block" if block else "file", device="disk")
    _add(disk, "driver", name="qemu", type=format, cache="none" if block else "writeback", discard="unmap")
    ET.SubElement(disk, "source", {"dev" if block else "file": path})
    _add(disk, "target", dev=target, bus=volume.bus or usual_bus)
    if data.get("access_mode") == "ro":
        _add(disk, "readonly")
    if shared:  # without it QEMU locks the volume for one guest
        _add(disk, "shareable")
    _add(disk, "serial", volume.volume)
    if order is not None:
        _add(disk, "boot", order=str(order))
    return disk


# ------------------------------------------------------------------------------------------ interfaces, consoles


def interface(spec: GuestSpec, vif: VifData, plug: ET.Element) -> ET.Element:
    """Build the interface of a VIF. `plug`: libvirt's `interface` with its connection (wires.py)."""
    model = spec.image_properties.get("hw_vif_model", "virtio")
    if model not in VIF_MODELS:
        raise cannot(f"network cards of the model {model}")
    card = ET.Element("interface", plug.attrib)
    _add(card, "mac", address=vif.mac)
    card.extend(list(plug))
    _add(card, "model", type=model)
    if (queues := queues_of(spec)) > 1:
        driver = card.find("driver")  # which a port in a switch in userspace has already
        (_add(card, "driver") if driver is None else driver).set("queues", str(queues))
    _add(card, "mtu", size=str(vif.mtu))
    return machine_features.pack(card, spec)


def queues_of(spec: GuestSpec) -> int:
    """Of each interface: one for each processor where flavor or image ask for that, and the model can. Raises HostFailed for a contradiction."""
    if spec.image_properties.get("hw_vif_model", "virtio") != "virtio":
        return 1
    try:
        return guest_hardware.vif_queues(spec.vcpus, spec.extra_specs, spec.image_properties)
    except Invalid as contradiction:
        raise not_here(contradiction.public) from contradiction


def _add_consoles(devices: ET.Element, record: GuestRecord, around: Around) -> None:
    address = around.settings.address
    serial = _add(devices, "serial", type="tcp")
    _add(serial, "source", mode="bind", host=address, service=str(record.serial_port))
    _add(serial, "protocol", type="raw")
    _add(serial, "target", port="0")  # libvirt numbers it after the others otherwise
    _add(serial, "log", file=str(around.place / CONSOLE), append="on")
    devices.extend(list(more_serial_ports(record.spec)))
    _add(
        _add(devices, "graphics", type="vnc", autoport="yes", listen=address), "listen", type="address", address=address
    )
