"""Extra specs whose names are known, and the values they may have (checked from 2.86 on).

A name in a known namespace that matches no form is refused; a name without a namespace, or in one we do not know, is
anybody's own.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

import os_resource_classes
import os_traits

from moorage.model.errors import Invalid
from moorage.model.waiting import FORM, WAIT, seconds_of

Check: TypeAlias = Callable[[str], str | None]
"""Returns what is wrong with a value, or None."""

CPUS = r"\^?\d+((-\d+)?(,\^?\d+(-\d+)?)?)*"
BOOLS = {"1", "t", "true", "on", "y", "yes", "0", "f", "false", "off", "n", "no"}


def text(form: str | None = None) -> Check:
    def check(value: str) -> str | None:
        if form is not None and not re.fullmatch(form, value):
            return f"is not of the format '{form}'."
        return None

    return check


def one_of(*values: str) -> Check:
    def check(value: str) -> str | None:
        return None if value in values else f"is not one of: {', '.join(values)}."

    return check


def integer(low: int | None = None, high: int | None = None) -> Check:
    def check(value: str) -> str | None:
        try:
            number = int(value)
        except ValueError:
            return "is not a valid integer value."
        if high is not None and number > high:
            return f"is greater than the max value of '{high}'."
        if low is not None and number < low:
            return f"is less than the min value of '{low}'."
        return None

    return check


def boolean(value: str) -> str | None:
    return None if value.strip().lower() in BOOLS else "is not a valid boolean-like value."


def wait(value: str) -> str | None:
    try:
        seconds_of(value)
    except Invalid:
        return f"is not {FORM}."
    return None


EXACT: dict[str, Check] = {
    WAIT: wait,
    "accel:device_profile": text(),
    "group_policy": one_of("isolate", "none"),
    "hide_hypervisor_id": boolean,
    "hw:boot_menu": boolean,
    "hw:cpu_cores": integer(1),
    "hw:cpu_dedicated_mask": text(CPUS),
    "hw:cpu_max_cores": integer(1),
    "hw:cpu_max_sockets": integer(1),
    "hw:cpu_max_threads": integer(1),
    "hw:cpu_policy": one_of("dedicated", "shared", "mixed"),
    "hw:cpu_realtime": boolean,
    "hw:cpu_realtime_mask": text(r"(\^)?\d+((-\d+)?(,\^?\d+(-\d+)?)?)*"),
    "hw:cpu_sockets": integer(1),
    "hw:cpu_thread_policy": one_of("prefer", "isolate", "require"),
    "hw:cpu_threads": integer(1),
    "hw:emulator_threads_policy": one_of("isolate", "share"),
    "hw:ephemeral_encryption": boolean,
    "hw:ephemeral_encryption_format": one_of("plain", "luks", "luksv2"),
    "hw:hide_hypervisor_id": boolean,
    "hw:locked_memory": boolean,
    "hw:maxphysaddr_bits": integer(0),
    "hw:maxphysaddr_mode": one_of("passthrough", "emulate"),
    "hw:mem_encryption": boolean,
    "hw:mem_encryption_model": one_of("amd-sev", "amd-sev-es", "amd-sev-snp", "intel-tdx"),
    "hw:mem_page_size": text(r"(large|small|any|\d+([kKMGT]i?)?(b|bit|B)?)"),
    "hw:numa_nodes": integer(1),
    "hw:pci_numa_affinity_policy": one_of("required", "preferred", "legacy", "socket"),
    "hw:pmem": text(r"([a-zA-Z0-9_]+(,)?)+"),
    "hw:pmu": boolean,
    "hw:redirected_usb_ports": integer(0, 15),
    "hw:serial_port_count": integer(0),
    "hw:sound_model": one_of("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb", "virtio"),
    "hw:tpm_model": one_of("tpm-tis", "tpm-crb"),
    "hw:tpm_secret_security": one_of("user", "host", "deployment"),
    "hw:tpm_version": one_of("1.2", "2.0"),
    "hw:usb_model": one_of("qemu-xhci", "nec-xhci"),
    "hw:vif_multiqueue_enabled": boolean,
    "hw:viommu_model": one_of("intel", "smmuv3", "virtio", "auto"),
    "hw:virtio_packed_ring": boolean,
    "hw:watchdog_action": one_of("none", "pause", "poweroff", "reset", "disabled"),
    "hw_rng:allowed": boolean,
    "hw_rng:rate_bytes": integer(0),
    "hw_rng:rate_period": integer(0),
    "hw_video:ram_max_mb": integer(0),
    "os:secure_boot": one_of("disabled", "required"),
    "pci_passthrough:alias": text(r"[^:]+:\d+(?:\s*,\s*[^:]+:\d+)*"),
    "quota:cpu_period": integer(0),
    "quota:cpu_quota": integer(),
    "quota:cpu_shares": integer(0),
    "vmware:hw_version": text(),
    "vmware:storage_policy": text(),
}

_QUOTA_KEYS = "(cpu|memory|disk_io|vif)"
FORMS: tuple[tuple[re.Pattern[str], Check], ...] = tuple(
    (re.compile(form), check)
    for form, check in (
        (r"hw:numa_cpus\.\d+", text(CPUS)),
        (r"hw:numa_mem\.\d+", integer(1)),
        (r"aggregate_instance_extra_specs:.+", text()),
        (r"capabilities:.+", text()),
        (rf"quota:{_QUOTA_KEYS}_limit", integer(0)),
        (rf"quota:{_QUOTA_KEYS}_reservation", integer()),
        (rf"quota:{_QUOTA_KEYS}_shares_level", one_of("custom", "high", "normal", "low")),
        (rf"quota:{_QUOTA_KEYS}_shares_share", integer(0)),
        (r"quota:disk_(read|write|total)_(bytes|iops)_sec(_max|_max_length)?", integer(0)),
        (r"quota:vif_(inbound|outbound)_(average|peak|burst)", integer(0)),
    )
)
RESOURCES = re.compile(r"resources(?:_?[a-zA-Z0-9_-]*|[1-9]\d*)?:(\w+)")
TRAITS = re.compile(r"trait(?:_?[a-zA-Z0-9_-]*|[1-9]\d*)?:(\w+)")
NAMESPACES = {name.split(":", 1)[0] for name in EXACT if ":" in name} | {
    "aggregate_instance_extra_specs", "capabilities", "powervm",
}  # fmt: skip
_TRAIT_NAMES = frozenset(os_traits.get_traits())


def _find(name: str) -> Check | None:
    if exact := EXACT.get(name):
        return exact
    for form, check in FORMS:
        if form.fullmatch(name):
            return check
    if (wants := RESOURCES.fullmatch(name)) and (
        wants[1].startswith("CUSTOM_") or wants[1] in os_resource_classes.STANDARDS
    ):
        return integer()
    if (wants := TRAITS.fullmatch(name)) and (wants[1].startswith("CUSTOM_") or wants[1] in _TRAIT_NAMES):
        return one_of("required", "forbidden")
    return None


def check_spec(name: str, value: str) -> None:
    """Raises Invalid for a known extra spec with a value it cannot have, and for an unknown one in a known namespace."""
    check = _find(name)
    if check is not None:
        if (wrong := check(value)) is not None:
            raise Invalid(f"Validation failed; '{value}' {wrong}")
        return
    namespace = name.split(":", 1)[0]
    known = namespace in NAMESPACES or namespace.startswith(("resources", "trait"))
    if ":" in name and known:
        raise Invalid(f"Validation failed; extra spec '{name}' does not appear to be a valid extra spec.")
