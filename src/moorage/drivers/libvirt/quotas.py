"""What a flavor's extra specs allow a guest, in libvirt's words: by Nova's names, so that flavors need no change."""

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

from moorage.drivers.libvirt.library import library
from moorage.drivers.libvirt.refusals import not_here
from moorage.model.errors import HostFailed

DISK = tuple(f"{kind}_{unit}_sec" for kind in ("total", "read", "write") for unit in ("bytes", "iops"))
"""Each as `quota:disk_…`; libvirt takes either the totals or the others of a unit."""


def disk_limits(extra_specs: Mapping[str, str]) -> ET.Element | None:
    """For each local disk; None: there are none. Raises HostFailed for a limit that is no number, or that excludes another."""
    limits = ET.Element("iotune")
    for name in DISK:
        value = extra_specs.get(f"quota:disk_{name}")
        if value is None:
            continue
        if not (value.isascii() and value.isdigit()):
            raise _refused(f"quota:disk_{name} must be a whole number, and is {value!r}")
        ET.SubElement(limits, name).text = value
    for unit in ("bytes", "iops"):
        parts = [limits.find(f"{kind}_{unit}_sec") for kind in ("read", "write")]
        if limits.find(f"total_{unit}_sec") is not None and any(each is not None for each in parts):
            raise _refused(f"quota:disk_total_{unit}_sec excludes the same limit for reading and writing")
    return limits if len(limits) else None


CPU = ("shares", "period", "quota")
"""Each as `quota:cpu_…`; periods and quotas are in microseconds."""
RANGES = {"period": (1_000, 1_000_000), "quota": (1_000, 17_592_186_044_415)}
"""libvirt's, of values above 0 (https://libvirt.org/formatdomain.html#cpu-tuning); others are no limit."""
NO_QUOTA = "-1"
NO_CPU_CONTROL = ("cgroup cpu is required", "CPU tuning is not available")
"""What libvirt says where it has no control group with the controller `cpu` (qemu_process.c, qemu_cgroup.c)."""


def cpu_limits(extra_specs: Mapping[str, str]) -> ET.Element | None:
    """For the whole guest; None: there are none. Raises HostFailed for a limit that is no number, or out of range.

    Without control groups libvirt refuses a quota, and silently drops shares. Whether there are any is known to the daemon alone:
    qemu.conf may turn them off, and an agent may see other ones. So there always is a quota, which may be none.
    """
    limits = ET.Element("cputune")
    for name in CPU:
        value = extra_specs.get(f"quota:cpu_{name}")
        if value is None:
            continue
        if not (value.isascii() and value.removeprefix("-" if name == "quota" else "").isdigit()):
            raise _refused(f"quota:cpu_{name} must be a whole number, and is {value!r}")
        least, most = RANGES.get(name, (0, 0))
        if int(value) > 0 and most and not least <= int(value) <= most:
            raise _refused(f"quota:cpu_{name} must be from {least} to {most} µs, and is {value}")
        ET.SubElement(limits, name).text = value
    if len(limits) and limits.find("quota") is None:
        ET.SubElement(limits, "quota").text = NO_QUOTA
    return limits if len(limits) else None


def start_limited(domain: Any) -> None:
    """Start a domain. Raises HostFailed with Nova's sentence where the daemon cannot limit processors, and libvirtError."""
    libvirt = library()
    try:
        domain.create()
    except libvirt.libvirtError as failure:
        if not any(each in str(failure) for each in NO_CPU_CONTROL):
            raise
        raise not_here("Requested CPU control policy not supported by host", str(failure)) from failure


def _refused(why: str) -> HostFailed:
    return HostFailed(f"the flavor cannot be used on this host: {why}", private=why, code="not_supported")
