"""libvirt's block jobs on the disks of a running guest."""

import time
from typing import Any
from xml.etree import ElementTree as ET

from moorage.drivers.libvirt.library import library
from moorage.model.errors import HostFailed

COMMIT_S = 60.0


def commit_and_pivot(domain: Any, *, above: str) -> None:
    """Merge the overlay into the disk below it while the guest runs; then the guest uses that disk."""
    libvirt = library()
    target = next(
        (
            disk.find("target").get("dev")  # type: ignore[union-attr]
            for disk in ET.fromstring(domain.XMLDesc()).iterfind("devices/disk")
            if (source := disk.find("source")) is not None and source.get("file") == above
        ),
        None,
    )
    if target is None:
        return
    job = domain.blockJobInfo(target, 0)
    if not job:
        flags = libvirt.VIR_DOMAIN_BLOCK_COMMIT_ACTIVE | libvirt.VIR_DOMAIN_BLOCK_COMMIT_SHALLOW
        domain.blockCommit(target, None, None, 0, flags)
    wait_until_level(domain, target, COMMIT_S)
    domain.blockJobAbort(target, libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT)


def wait_until_level(domain: Any, target: str, within_s: float) -> None:
    """Wait until the copy of a disk has caught up. Call it in libvirt's thread; `within_s` is limited by the call that
    it belongs to.

    Raises HostFailed when the copy does not catch up in time.
    """
    ends = time.monotonic() + within_s
    while time.monotonic() < ends:
        mirror = ET.fromstring(domain.XMLDesc()).find(f"devices/disk/target[@dev='{target}']/../mirror")
        if mirror is not None and mirror.get("ready") == "yes":
            return
        time.sleep(0.05)
    raise HostFailed("the copy of the guest's disk does not end", private=target, code="guest_failed")
