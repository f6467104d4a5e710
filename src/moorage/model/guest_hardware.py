"""The virtual hardware that a flavor's extra specs and an image's properties ask for: Nova's names, defaults and refusals.

The API refuses with 400 what `check` refuses, the scheduler asks hosts for `traits_of`, and drivers make what the others say.
"""

from collections.abc import Mapping

import msgspec

from moorage.model import device_requests, guest_requests, image_requirements
from moorage.model.errors import Invalid
from moorage.model.request_values import boolean_of, is_boolean

DISK_BUSES = ("fdc", "ide", "sata", "scsi", "usb", "virtio", "xen", "lxc", "uml")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "hw_cdrom_bus": DISK_BUSES,
    "hw_disk_bus": DISK_BUSES,
    "hw_firmware_type": ("uefi", "bios"),
    "hw_input_bus": ("usb", "virtio"),
    "hw_pointer_model": ("usbtablet",),
    "hw_floppy_bus": DISK_BUSES,
    "hw_maxphysaddr_mode": ("passthrough", "emulate"),
    "hw_mem_encryption_model": ("amd-sev", "amd-sev-es", "amd-sev-snp", "intel-tdx"),
    "hw_pci_numa_affinity_policy": ("required", "legacy", "preferred", "socket"),
    "hw_rescue_bus": DISK_BUSES,
    "hw_rescue_device": ("cdrom", "disk", "floppy", "fs", "lun"),
    "hw_rng_model": ("virtio",),
    "hw_scsi_model": (
        "buslogic", "ibmvscsi", "lsilogic", "lsisas1068", "lsisas1078", "virtio-scsi", "vmpvscsi", "lsilogicsas", "paravirtual",
    ),
    "hw_sound_model": ("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio"),
    "hw_tpm_model": ("tpm-tis", "tpm-crb"),
    "hw_tpm_version": ("1.2", "2.0"),
    "hw_usb_model": ("none", "nec-xhci", "qemu-xhci"),
    "hw_vif_model": (
        "virtio", "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139", "netfront", "sriov", "spapr-vlan", "lan9118",
        "vmxnet", "vmxnet3", "virtuale1000", "virtuale1000e", "virtualpcnet32", "virtualsriovethernetcard", "virtualvmxnet",
        "virtualvmxnet3",
    ),
    "hw_video_model": ("cirrus", "qxl", "vga", "vmvga", "xen", "virtio", "gop", "none", "bochs"),
    "hw_viommu_model": ("intel", "smmuv3", "virtio", "auto"),
    "hw_watchdog_action": ("none", "pause", "poweroff", "reset", "disabled"),
    "os_secure_boot": ("required", "disabled", "optional"),
    "os_type": ("linux", "windows"),
}  # fmt: skip
"""Properties of images that have one of these values, or are refused."""
SWITCHES = (
    "hw_boot_menu", "hw_ephemeral_encryption", "hw_firmware_stateless", "hw_ipxe_boot", "hw_locked_memory", "hw_mem_encryption",
    "hw_pmu", "hw_qemu_guest_agent", "hw_time_hpet", "hw_vif_multiqueue_enabled", "hw_virtio_packed_ring",
    "img_hide_hypervisor_id", "os_require_quiesce",
)  # fmt: skip
"""Properties of images that are true or false."""
ANY_CASE = frozenset({"hw_scsi_model", "hw_vif_model", "os_type"})
"""Of those, the ones whose values are compared in lower case."""
PARTS = ("sockets", "cores", "threads")
NUMBERS = (
    *(f"hw_cpu_{part}" for part in PARTS), *(f"hw_cpu_max_{part}" for part in PARTS), "hw_serial_port_count", "hw_video_ram",
)  # fmt: skip
"""Properties of images that are whole numbers."""
UNLIMITED = 65_536
SECURE_BOOT_TRAIT = "COMPUTE_SECURITY_UEFI_SECURE_BOOT"
STATELESS_TRAIT = "COMPUTE_SECURITY_STATELESS_FIRMWARE"


class CpuTopology(msgspec.Struct, frozen=True):
    """How a guest's processors are arranged, or how many of each there may be."""

    sockets: int = 0
    cores: int = 0
    threads: int = 0

    def exceeds(self, limit: "CpuTopology") -> bool:
        return self.sockets > limit.sockets or self.cores > limit.cores or self.threads > limit.threads

    def text(self) -> str:
        return f"(sockets={self.sockets}, cores={self.cores}, threads={self.threads})"


def is_true(value: str | None) -> bool:
    """Whether a property or extra spec switches something on; what is not known does not."""
    return boolean_of(value)


def check(vcpus: int, ram_mib: int, specs: Mapping[str, str], properties: Mapping[str, str]) -> None:
    """Raises Invalid for what Nova refuses at its API: values that are not allowed, and a flavor and an image that contradict each other."""
    for name, choices in CHOICES.items():
        value = properties.get(name, choices[0])
        if (value.lower() if name in ANY_CASE else value) not in choices:
            raise Invalid(f"Invalid image metadata. Error: Field value {value} is invalid")
    for name in NUMBERS:
        _number_of_image(name, properties)
    for name in SWITCHES:
        if name in properties and not is_boolean(properties[name]):
            raise Invalid(f"Invalid image metadata. Error: {name} must be true or false, and is '{properties[name]}'")
    image_requirements.required_of(properties)
    guest_requests.check(vcpus, ram_mib, specs, properties)
    device_requests.check(specs, properties)
    secure_boot(specs, properties)
    tpm(specs, properties)
    serial_ports(specs, properties)
    vif_queues(vcpus, specs, properties)
    _topology_constraints(specs, properties)


def traits_of(specs: Mapping[str, str], properties: Mapping[str, str]) -> set[str]:
    """Return the traits that a host must have, as Nova's scheduler asks for them. A contradiction, which `check` refuses, asks for both."""
    wanted: set[str] = set()
    if "required" in (specs.get("os:secure_boot"), properties.get("os_secure_boot")):
        wanted.add(SECURE_BOOT_TRAIT)
    if properties.get("hw_firmware_type") == "uefi" and is_true(properties.get("hw_firmware_stateless")):
        wanted.add(STATELESS_TRAIT)
    version = specs.get("hw:tpm_version") or properties.get("hw_tpm_version")
    if version:
        model = specs.get("hw:tpm_model") or properties.get("hw_tpm_model")
        wanted.add("COMPUTE_SECURITY_TPM_CRB" if model == "tpm-crb" else "COMPUTE_SECURITY_TPM_TIS")
        wanted.add("COMPUTE_SECURITY_TPM_2_0" if version == "2.0" else "COMPUTE_SECURITY_TPM_1_2")
    return wanted | guest_requests.traits_of(specs, properties) | device_requests.traits_of(specs, properties)


def secure_boot(specs: Mapping[str, str], properties: Mapping[str, str]) -> str:
    """Return `required`, `optional`, `disabled`, or nothing. Raises Invalid when flavor and image contradict each other."""
    return _agreed("os", "secure_boot", specs, properties)


def tpm(specs: Mapping[str, str], properties: Mapping[str, str]) -> tuple[str, str] | None:
    """Return model and version of the guest's TPM; None: it has none. Raises Invalid for a contradiction."""
    version = _agreed("hw", "tpm_version", specs, properties)
    if not version:
        return None
    model = _agreed("hw", "tpm_model", specs, properties) or "tpm-tis"
    if model == "tpm-crb" and version != "2.0":
        raise Invalid("TPM model CRB is only valid with TPM version 2.0.")
    return model, version


def serial_ports(specs: Mapping[str, str], properties: Mapping[str, str]) -> int:
    """Return how many serial ports the guest has. Raises Invalid when the image asks for more than its flavor allows."""
    flavor_value, image_count = (
        specs.get("hw:serial_port_count", ""),
        _number_of_image("hw_serial_port_count", properties),
    )
    try:
        allowed = int(flavor_value or 0)
    except ValueError as bad:
        why = f"Number of serial ports specified in flavor is invalid: expected an integer, got '{flavor_value}'"
        raise Invalid(why) from bad
    if allowed and image_count > allowed:
        raise Invalid("Forbidden to exceed flavor value of number of serial ports passed in image meta.")
    return image_count or allowed or 1


def vif_queues(vcpus: int, specs: Mapping[str, str], properties: Mapping[str, str]) -> int:
    """Return how many queues each of the guest's interfaces has. Raises Invalid when flavor and image contradict each other."""
    if vcpus < 2:
        return 1
    of_flavor, of_image = specs.get("hw:vif_multiqueue_enabled"), properties.get("hw_vif_multiqueue_enabled")
    if of_flavor is not None and of_image is not None and is_true(of_flavor) != is_true(of_image):
        raise Invalid(_conflict("hw", "vif_multiqueue_enabled", of_flavor, of_image))
    return vcpus if is_true(of_flavor) or is_true(of_image) else 1


def cpu_topology(vcpus: int, specs: Mapping[str, str], properties: Mapping[str, str]) -> CpuTopology | None:
    """Return the arrangement of processors that comes nearest to what is asked; None: nothing is.

    Of those that come equally near the one with the fewest threads, and then with the most sockets.
    Raises Invalid when the limits leave none.
    """
    preferred, limit = _topology_constraints(specs, properties)
    if preferred == CpuTopology() and limit == CpuTopology(UNLIMITED, UNLIMITED, UNLIMITED):
        return None
    possible = [
        CpuTopology(sockets, cores, vcpus // (sockets * cores))
        for sockets in range(1, min(vcpus, limit.sockets) + 1)
        for cores in range(1, min(vcpus, limit.cores) + 1)
        if vcpus % (sockets * cores) == 0 and vcpus // (sockets * cores) <= limit.threads
    ]
    if not possible:
        least = CpuTopology(*(min(vcpus, getattr(limit, part)) for part in PARTS))
        limits = f"{least.sockets}:{least.cores}:{least.threads}"
        raise Invalid(f"Requested vCPU limits {limits} are impossible to satisfy for vcpus count {vcpus}")

    def nearness(each: CpuTopology) -> tuple[int, int, int]:
        alike = sum(getattr(each, part) == getattr(preferred, part) for part in PARTS)
        return alike, each.sockets * each.cores, each.sockets

    return max(possible, key=nearness)


def _topology_constraints(specs: Mapping[str, str], properties: Mapping[str, str]) -> tuple[CpuTopology, CpuTopology]:
    """The preferred arrangement, and the most of each. Raises Invalid when the image goes beyond its flavor."""
    most_of_flavor, most_of_image = _topology_of_flavor("max_", specs), _topology_of_image("max_", properties)
    allowed = CpuTopology(*(getattr(most_of_flavor, part) or UNLIMITED for part in PARTS))
    if most_of_image.exceeds(allowed):
        raise Invalid(
            f"Image vCPU topology limits {most_of_image.text()} exceeds the limits of the flavor {most_of_flavor.text()}"
        )
    limit = CpuTopology(*(getattr(most_of_image, part) or getattr(allowed, part) for part in PARTS))
    of_flavor, of_image = _topology_of_flavor("", specs), _topology_of_image("", properties)
    if of_image.exceeds(limit):
        raise Invalid(f"Image vCPU topology {of_image.text()} exceeds the limits of the flavor or image {limit.text()}")
    if of_flavor.exceeds(limit):  # the image has lowered the limits
        of_flavor = CpuTopology()
    return (of_flavor if of_image == CpuTopology() else of_image), limit


def _topology_of_flavor(kind: str, specs: Mapping[str, str]) -> CpuTopology:
    try:
        return CpuTopology(*(int(specs.get(f"hw:cpu_{kind}{part}") or 0) for part in PARTS))
    except ValueError as bad:
        raise Invalid(f"Invalid flavor extra spec. Error: {bad}") from bad


def _topology_of_image(kind: str, properties: Mapping[str, str]) -> CpuTopology:
    return CpuTopology(*(_number_of_image(f"hw_cpu_{kind}{part}", properties) for part in PARTS))


def _number_of_image(name: str, properties: Mapping[str, str]) -> int:
    try:
        return int(properties.get(name) or 0)
    except ValueError as bad:
        raise Invalid(f"Invalid image metadata. Error: {bad}") from bad


def _agreed(prefix: str, name: str, specs: Mapping[str, str], properties: Mapping[str, str]) -> str:
    of_flavor, of_image = specs.get(f"{prefix}:{name}", ""), properties.get(f"{prefix}_{name}", "")
    if of_flavor and of_image and of_flavor != of_image:
        raise Invalid(_conflict(prefix, name, of_flavor, of_image))
    return of_flavor or of_image


def _conflict(prefix: str, name: str, of_flavor: str, of_image: str) -> str:
    return (
        f"The flavor's extra spec {prefix}:{name} is {of_flavor}, and conflicts with the image's property {prefix}_{name}, "
        f"which is {of_image}."
    )
