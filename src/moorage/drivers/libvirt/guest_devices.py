"""Small devices of a guest, by the names of Nova's extra specs and image properties."""

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from moorage.drivers.libvirt.host_facts import MachineFacts
from moorage.drivers.libvirt.refusals import cannot, not_here
from moorage.model import guest_hardware
from moorage.model.guest import GuestSpec

AGENT_CHANNEL = "org.qemu.guest_agent.0"
AGENT = "hw_qemu_guest_agent"
SCSI_MODELS = {
    "virtio-scsi": "virtio-scsi",
    "lsilogic": "lsilogic",
    "lsisas1068": "lsisas1068",
    "lsilogicsas": "lsisas1068",
    "lsisas1078": "lsisas1078",
}
"""Nova's name → libvirt's; others are of other hypervisors."""
VIDEO_MODELS = frozenset({"vga", "cirrus", "vmvga", "qxl", "virtio", "bochs", "none"})
CDROM_BUSES = frozenset({"ide", "sata", "scsi", "usb"})
SERIAL_PORTS_MAX = 4
"""Of a PC's ISA bus."""
KIB_PER_MIB = 1024


def has_agent(spec: GuestSpec) -> bool:
    """Whether the image says that QEMU's guest agent is in the guest."""
    return guest_hardware.is_true(spec.image_properties.get(AGENT))


def devices(spec: GuestSpec, machine: MachineFacts) -> Iterator[ET.Element]:
    """All that are neither disks, interfaces nor consoles. Raises HostFailed for what cannot be made here."""
    yield _video(spec, machine)
    yield from _random_numbers(spec)
    yield from _watchdog(spec)
    yield from _inputs(spec)
    if has_agent(spec):
        channel = ET.Element("channel", type="unix")
        ET.SubElement(channel, "target", type="virtio", name=AGENT_CHANNEL)
        yield channel
    balloon = ET.Element("memballoon", model="virtio")
    ET.SubElement(balloon, "stats", period="10")
    yield balloon


def _video(spec: GuestSpec, machine: MachineFacts) -> ET.Element:
    model = spec.image_properties.get("hw_video_model") or ("vga" if machine.arch == "x86_64" else "virtio")
    if model not in VIDEO_MODELS or (machine.video_models and model not in machine.video_models):
        raise not_here(f"Provided video model ({model}) is not supported.")
    wanted_mib, most_mib = int(spec.image_properties.get("hw_video_ram") or 0), _number(spec, "hw_video:ram_max_mb")
    if wanted_mib > most_mib:
        raise not_here(
            f"The requested amount of video memory {wanted_mib} is higher than the maximum allowed by flavor {most_mib}."
        )
    video = ET.Element("video")
    made = ET.SubElement(video, "model", type=model)
    if wanted_mib and model != "none":
        made.set("vram", str(wanted_mib * KIB_PER_MIB))
    return video


def _random_numbers(spec: GuestSpec) -> Iterator[ET.Element]:
    if not guest_hardware.is_true(spec.extra_specs.get("hw_rng:allowed", "true")):
        return
    rng = ET.Element("rng", model="virtio")
    if count := _number(spec, "hw_rng:rate_bytes"):
        rate = ET.SubElement(rng, "rate", bytes=str(count))
        if period_ms := _number(spec, "hw_rng:rate_period"):
            rate.set("period", str(period_ms))
    ET.SubElement(rng, "backend", model="random").text = "/dev/urandom"
    yield rng


def _watchdog(spec: GuestSpec) -> Iterator[ET.Element]:
    action = spec.image_properties.get("hw_watchdog_action") or spec.extra_specs.get("hw:watchdog_action") or "disabled"
    if action not in guest_hardware.CHOICES["hw_watchdog_action"]:
        raise not_here(f"Provided watchdog action ({action}) is not supported.")
    if action != "disabled":
        yield ET.Element("watchdog", model="i6300esb", action=action)


def _inputs(spec: GuestSpec) -> Iterator[ET.Element]:
    bus = spec.image_properties.get("hw_input_bus")
    if bus:
        yield ET.Element("input", type="tablet", bus=bus)
        yield ET.Element("input", type="keyboard", bus=bus)
    elif spec.image_properties.get("hw_pointer_model"):
        yield ET.Element("input", type="tablet", bus="usb")


def scsi_controller(spec: GuestSpec) -> ET.Element:
    named = spec.image_properties.get("hw_scsi_model", "virtio-scsi")
    model = SCSI_MODELS.get(named.lower())
    if model is None:
        raise cannot(f"a SCSI controller of the model {named}")
    return ET.Element("controller", type="scsi", index="0", model=model)


def cdrom_bus(spec: GuestSpec, usual: str) -> str:
    bus = spec.image_properties.get("hw_cdrom_bus") or usual
    if bus not in CDROM_BUSES:
        raise cannot(f"CD-ROMs on the bus {bus}")
    return bus


def more_serial_ports(spec: GuestSpec) -> Iterator[ET.Element]:
    """Besides the first, which is the console; they end in terminals of the host."""
    count = guest_hardware.serial_ports(spec.extra_specs, spec.image_properties)
    if count > SERIAL_PORTS_MAX:
        raise cannot(f"more than {SERIAL_PORTS_MAX} serial ports")
    for port in range(1, count):
        serial = ET.Element("serial", type="pty")
        ET.SubElement(serial, "target", port=str(port))
        yield serial


def has_boot_menu(spec: GuestSpec) -> bool:
    return guest_hardware.is_true(spec.image_properties.get("hw_boot_menu", spec.extra_specs.get("hw:boot_menu")))


def _number(spec: GuestSpec, name: str) -> int:
    value = spec.extra_specs.get(name) or "0"
    if not (value.isascii() and value.isdigit()):
        raise not_here(f"the flavor cannot be used on this host: {name} must be a whole number, and is {value!r}")
    return int(value)
