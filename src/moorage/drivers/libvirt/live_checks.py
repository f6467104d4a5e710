"""Checks whether a guest that runs on one machine can run on another."""

from typing import Any
from xml.etree import ElementTree as ET

from moorage.drivers.libvirt.host_facts import MachineFacts
from moorage.drivers.libvirt.library import library
from moorage.model.errors import HostFailed
from moorage.model.live_migration import LiveSource


def source_cpu(domain: Any, *, machine: MachineFacts) -> dict[str, Any]:
    """Return the CPU that the guest sees, in libvirt's form, for the destination's check."""
    libvirt = library()
    flags = libvirt.VIR_DOMAIN_XML_MIGRATABLE | libvirt.VIR_DOMAIN_XML_UPDATE_CPU
    cpu = ET.fromstring(domain.XMLDesc(flags)).find("cpu")
    guest = "" if cpu is None else ET.tostring(cpu, encoding="unicode")
    return {"arch": machine.arch, "virt_type": machine.virt_type, "guest": guest}


def refuse_other_machines(connection: Any, *, machine: MachineFacts, source: LiveSource) -> None:
    """Check the source's CPU and hypervisor. Raises HostFailed (`live_refused`) when the guest cannot run here."""
    libvirt = library()
    if source.hypervisor_type != "QEMU":
        raise refused("The supplied hypervisor type of is invalid.", source.hypervisor_type)
    if source.hypervisor_version > machine.version:
        why = f"{source.hypervisor_version} > {machine.version}"
        raise refused("The instance requires a newer hypervisor version than has been provided.", why)
    source_machine = source.cpu_info.get("arch"), source.cpu_info.get("virt_type")
    if source_machine != (machine.arch, machine.virt_type):
        raise refused(CPU, f"{source_machine} {machine.arch} {machine.virt_type}")
    guest = str(source.cpu_info.get("guest") or "")
    if not guest or machine.virt_type == "qemu":  # emulated processors are the emulator's, and its version is compared
        return
    try:
        found = connection.compareHypervisorCPU(machine.emulator, machine.arch, None, machine.virt_type, guest, 0)
    except libvirt.libvirtError as failure:
        raise refused(CPU, str(failure)) from failure
    if found == libvirt.VIR_CPU_COMPARE_INCOMPATIBLE:
        raise refused(CPU, guest)


CPU = "Unacceptable CPU info: CPU doesn't have compatibility."


def refused(public: str, private: str) -> HostFailed:
    return HostFailed(public, private=private, code="live_refused")
