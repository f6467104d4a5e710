"""What a flavor's extra specs allow a guest, in libvirt's words: by Nova's names, so that flavors need no change."""

from collections.abc import Mapping
from xml.etree import ElementTree as ET

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


def cpu_limits(extra_specs: Mapping[str, str], *, can: bool) -> ET.Element | None:
    """For the whole guest; None: there are none. `can`: whether the host has the control group that they need.

    Raises HostFailed for a limit that is no number, or on a host that has no way to it.
    """
    limits = ET.Element("cputune")
    for name in CPU:
        value = extra_specs.get(f"quota:cpu_{name}")
        if value is None:
            continue
        if not (value.isascii() and value.removeprefix("-" if name == "quota" else "").isdigit()):
            raise _refused(f"quota:cpu_{name} must be a whole number, and is {value!r}")
        ET.SubElement(limits, name).text = value
    if len(limits) and not can:
        why = "no control group has the controller `cpu`"
        raise HostFailed("Requested CPU control policy not supported by host", private=why, code="not_supported")
    return limits if len(limits) else None


def _refused(why: str) -> HostFailed:
    return HostFailed(f"the flavor cannot be used on this host: {why}", private=why, code="not_supported")
