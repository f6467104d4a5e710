"""Features of a guest's machine by flavors and images, as Nova's libvirt driver makes them: timers, Hyper-V, counters, addresses, sound, USB, IOMMU."""

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from moorage.drivers.libvirt.firmware import Q35, machine_type
from moorage.drivers.libvirt.host_facts import MachineFacts
from moorage.drivers.libvirt.refusals import cannot, not_here
from moorage.model import guest_hardware, guest_requests, request_names
from moorage.model.device_requests import UNMADE_SOUND, MachineRequest, machine_request
from moorage.model.errors import Invalid
from moorage.model.guest import GuestSpec
from moorage.model.image_requirements import emulation_trait

SPINLOCK_RETRIES = "8191"
"""As Windows guests are certified with."""
HYPERV = ("relaxed", "vapic", "vpindex", "runtime", "synic", "reset", "frequencies", "tlbflush", "ipi")
VENDOR = "1234567890ab"
"""What a Windows guest is told in place of the hypervisor's name, if that is hidden."""
WITH_COREINFO = frozenset({"i686", "x86_64", "aarch64"})
LIMITS_OF_INTERFACES = "quota:vif_"
ADDRESS_BITS = "48"
X86 = "x86_64"


def request_of(spec: GuestSpec) -> MachineRequest:
    """What flavor and image ask of the machine. A contradiction asks for nothing: `refuse_features` refuses it of new guests."""
    try:
        return machine_request(spec.extra_specs, spec.image_properties)
    except Invalid:
        return MachineRequest()


def refuse_unmade(spec: GuestSpec, machine: MachineFacts) -> None:
    """Raises HostFailed for what a new guest would not have, and Invalid for a contradiction. The scheduler asks hosts for most of it;
    a site may have told Placement that this host has it, and a newer API may have accepted what this release does not know.
    """
    properties, specs = spec.image_properties, spec.extra_specs
    if unknown := request_names.unknown_names(specs):
        raise cannot(f"guests with {', '.join(unknown)}, which its release does not know")
    if wanted := guest_requests.unmade_names(specs, properties):
        raise cannot(f"guests with {', '.join(wanted)}")
    if guest_hardware.tpm(specs, properties) is not None:
        raise cannot("a TPM")
    if guest_hardware.is_true(properties.get("hw_firmware_stateless")):
        raise cannot("stateless firmware")
    if limits := sorted(name for name in specs if name.startswith(LIMITS_OF_INTERFACES)):
        raise cannot(f"limits of interfaces by a flavor ({', '.join(limits)}), but those of a port's QoS policy,")
    kinds = sorted({each.device_type or "disk" for each in spec.volumes} - {"disk"})
    if kinds:
        raise cannot(f"volumes as {', '.join(kinds)}")
    hypervisor = properties.get("img_hv_type") or properties.get("hypervisor_type") or ""
    if hypervisor.lower() == "kvm" and machine.virt_type != "kvm":
        raise not_here("the image is for the hypervisor kvm, and guests of this host are emulated")
    arch = emulation_trait(properties).removeprefix("COMPUTE_ARCH_").lower()
    if arch and arch not in (machine.arch, "i686" if machine.arch == "x86_64" else machine.arch):
        raise cannot(f"guests of the architecture {arch} on {machine.arch}")
    refuse_features(spec, machine)


def refuse_features(spec: GuestSpec, machine: MachineFacts) -> None:
    """Raises HostFailed for features of the machine that cannot be made here, and for a contradiction.

    What is switched on later is not held against it: a guest of an earlier release runs without the feature, and goes on without it.
    """
    try:
        wanted = machine_request(spec.extra_specs, spec.image_properties)
    except Invalid as contradiction:
        raise not_here(contradiction.public) from contradiction
    if wanted.hpet and machine.arch != X86:
        raise cannot(f"an HPET for guests of {machine.arch}")
    if wanted.sound in UNMADE_SOUND:
        raise cannot(f"sound devices of the model {wanted.sound}")
    if wanted.usb_ports:
        raise cannot("redirected USB ports, which need SPICE")
    if why := _why_no_width(wanted.address_mode, machine) or _why_no_iommu(
        wanted.viommu, machine, machine_type(spec, machine)
    ):
        raise not_here(why)


def refuse_new_features(before: GuestSpec, spec: GuestSpec, machine: MachineFacts | None) -> None:
    """Raises HostFailed, as `refuse_features` does, for what another flavor or image asks of a guest that exists."""
    if (spec.extra_specs, spec.image_properties) != (before.extra_specs, before.image_properties):
        assert machine is not None
        refuse_features(spec, machine)


def add_features(features: ET.Element, spec: GuestSpec, machine: MachineFacts) -> None:
    """Hyper-V's features are KVM's: an emulated processor has none."""
    wanted = request_of(spec)
    if _is_windows(spec) and machine.virt_type == "kvm":
        hyperv = ET.SubElement(features, "hyperv")
        for name in HYPERV:
            ET.SubElement(hyperv, name, state="on")
        ET.SubElement(hyperv, "spinlocks", state="on", retries=SPINLOCK_RETRIES)
        if wanted.hidden:
            ET.SubElement(hyperv, "vendor_id", state="on", value=VENDOR)
    if wanted.hidden:
        ET.SubElement(ET.SubElement(features, "kvm"), "hidden", state="on")
    if wanted.pmu is not None:
        ET.SubElement(features, "pmu", state="on" if wanted.pmu else "off")
    if machine.arch in WITH_COREINFO:
        ET.SubElement(features, "vmcoreinfo", state="on")
    if wanted.viommu and machine.virt_type == "kvm" and machine.arch == "x86_64":
        ET.SubElement(features, "ioapic", driver="qemu")


def add_timers(clock: ET.Element, spec: GuestSpec, machine: MachineFacts) -> None:
    """Of KVM's guests; emulated ones keep QEMU's own."""
    hpet = request_of(spec).hpet and machine.arch == X86
    if machine.virt_type != "kvm":
        if hpet:
            ET.SubElement(clock, "timer", name="hpet", present="yes")
        return
    if machine.arch == "x86_64":
        ET.SubElement(clock, "timer", name="pit", tickpolicy="delay")
    ET.SubElement(clock, "timer", name="rtc", tickpolicy="catchup")
    if machine.arch == "x86_64":
        ET.SubElement(clock, "timer", name="hpet", present="yes" if hpet else "no")
    if _is_windows(spec):
        ET.SubElement(clock, "timer", name="hypervclock", present="yes")


def add_addresses(cpu: ET.Element, spec: GuestSpec, machine: MachineFacts) -> None:
    """How wide the addresses of the guest's memory are."""
    wanted = request_of(spec)
    if not wanted.address_mode or _why_no_width(wanted.address_mode, machine):
        return
    element = ET.SubElement(cpu, "maxphysaddr", mode=wanted.address_mode)
    if wanted.address_bits and wanted.address_mode == "emulate":
        element.set("bits", str(wanted.address_bits))


def _why_no_width(mode: str, machine: MachineFacts) -> str:
    emulated = mode == "passthrough" and machine.virt_type != "kvm"
    return "guests of this host are emulated, and have no addresses of the host's width" if emulated else ""


def devices(spec: GuestSpec, machine: MachineFacts, kind: str) -> Iterator[ET.Element]:
    """Sound, USB and IOMMU, as far as they can be made here. `kind`: the machine's type."""
    wanted = request_of(spec)
    if wanted.sound and wanted.sound not in UNMADE_SOUND:
        yield ET.Element("sound", model=wanted.sound)
    if wanted.usb:
        yield ET.Element("controller", type="usb", index="0", model=wanted.usb)
    if wanted.viommu and not _why_no_iommu(wanted.viommu, machine, kind):
        yield _iommu(wanted.viommu, machine)


def _why_no_iommu(model: str, machine: MachineFacts, kind: str) -> str:
    """Return why it cannot be made here; empty: it can, or none is asked for."""
    right = {X86: Q35, "aarch64": "virt"}.get(machine.arch)
    if model and (right is None or right not in kind):
        return f"vIOMMU is not supported by the machine type '{kind or 'default'}' on {machine.arch}: {right or 'none'} is needed"
    if (model == "intel" and machine.arch != X86) or (model == "smmuv3" and machine.arch == X86):
        return f"vIOMMU model {model} is not supported on {machine.arch}"
    return ""


def _iommu(model: str, machine: MachineFacts) -> ET.Element:
    if model == "auto":
        model = "intel" if machine.arch == X86 else "smmuv3"
    iommu = ET.Element("iommu", model=model)
    if model == "intel":
        ET.SubElement(
            iommu,
            "driver",
            intremap="on" if machine.virt_type == "kvm" else "off",
            caching_mode="on",
            iotlb="on",
            aw_bits=ADDRESS_BITS,
        )
    return iommu


def pack(device: ET.Element, spec: GuestSpec) -> ET.Element:
    """Give a virtio disk or interface packed rings where they are asked, and return it."""
    model, target, driver = device.find("model"), device.find("target"), device.find("driver")
    buses = (None if model is None else model.get("type"), None if target is None else target.get("bus"))
    if "virtio" in buses and request_of(spec).packed:
        (ET.SubElement(device, "driver") if driver is None else driver).set("packed", "on")
    return device


def _is_windows(spec: GuestSpec) -> bool:
    return spec.image_properties.get("os_type", "").lower() == "windows"
