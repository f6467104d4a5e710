"""A guest's firmware and machine: BIOS, or UEFI with variables in a file beside the guest's disks, and Secure Boot.

libvirt selects the firmware's files by their descriptions (`/usr/share/qemu/firmware`) each time that the guest is switched on, and makes the
file of variables from the firmware's template when it is missing.
"""

from pathlib import Path
from xml.etree import ElementTree as ET

from moorage.drivers.libvirt.disks import NVRAM
from moorage.drivers.libvirt.host_facts import MachineFacts
from moorage.drivers.libvirt.refusals import not_here
from moorage.model import guest_hardware
from moorage.model.guest import GuestSpec

Q35 = "q35"
PCIE_PORTS = 16
"""Of a Q35 machine: each device has one, also one that is plugged in later."""


def has_uefi(spec: GuestSpec) -> bool:
    return spec.image_properties.get("hw_firmware_type") == "uefi"


def machine_type(spec: GuestSpec, machine: MachineFacts) -> str:
    """Return the machine that the image names, or the one that Secure Boot needs; empty: QEMU's usual one.

    Raises HostFailed for one that this host's QEMU does not have.
    """
    named = spec.image_properties.get("hw_machine_type", "")
    if named and machine.machine_types and named not in machine.machine_types:
        raise not_here(f"Machine type '{named}' is not compatible with the host's QEMU")
    needed = guest_hardware.secure_boot(spec.extra_specs, spec.image_properties) == "required" and has_uefi(spec)
    return named or (Q35 if needed and machine.arch == "x86_64" else "")


def add_firmware(system: ET.Element, spec: GuestSpec, machine: MachineFacts, place: Path) -> None:
    """Raises HostFailed when this host lacks what the guest's firmware must be."""
    wish = guest_hardware.secure_boot(spec.extra_specs, spec.image_properties)
    if not has_uefi(spec):
        if wish == "required":
            raise not_here("Secure Boot is not supported by host", "the guest boots by BIOS")
        return
    if not machine.uefi:
        raise not_here("UEFI is not supported", "libvirt finds no UEFI firmware: package ovmf")
    kind = machine_type(spec, machine)
    can = machine.secure_boot and (machine.arch != "x86_64" or Q35 in kind)
    if wish == "required" and not can:
        why = f"machine {kind}, firmware with Secure Boot: {machine.secure_boot}"
        raise not_here("Secure Boot is not supported by host", why)
    secure = "yes" if can and wish in {"required", "optional"} else "no"
    system.set("firmware", "efi")
    features = ET.SubElement(system, "firmware")
    for name in ("enrolled-keys", "secure-boot"):
        ET.SubElement(features, "feature", enabled=secure, name=name)
    ET.SubElement(system, "nvram").text = str(place / NVRAM)


def add_power(domain: ET.Element) -> None:
    """Firmware with Secure Boot keeps its state for a suspension to memory in a mode that an emulated processor does not come back from."""
    if domain.find("os/firmware/feature[@enabled='yes']") is not None:
        ET.SubElement(ET.SubElement(domain, "pm"), "suspend-to-mem", enabled="no")


def controllers(spec: GuestSpec, machine: MachineFacts) -> list[ET.Element]:
    """A Q35 machine has free ports from the start, since none can be added while the guest runs."""
    if Q35 not in machine_type(spec, machine):
        return []
    ports = [ET.Element("controller", type="pci", model="pcie-root-port") for _ in range(PCIE_PORTS)]
    return [ET.Element("controller", type="pci", index="0", model="pcie-root"), *ports]
