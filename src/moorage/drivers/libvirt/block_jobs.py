"""libvirt's block jobs on the disks of a running guest. Each call is short: who waits for a job asks again and again, and keeps no thread."""

from typing import Any
from xml.etree import ElementTree as ET

from moorage.drivers.libvirt.library import library
from moorage.model.errors import HostFailed


def begin_commit(domain: Any, *, above: str) -> str | None:
    """Begin to merge the overlay into the disk below it, unless that is under way. Returns the disk's device name; None:
    the guest does not use the overlay any more."""
    libvirt, target = library(), device_of(domain.XMLDesc(), above)
    if target is not None and not domain.blockJobInfo(target, 0):
        flags = libvirt.VIR_DOMAIN_BLOCK_COMMIT_ACTIVE | libvirt.VIR_DOMAIN_BLOCK_COMMIT_SHALLOW
        domain.blockCommit(target, None, None, 0, flags)
    return target


def is_level(domain: Any, *, target: str) -> bool:
    """Whether the copy of a disk has caught up. Raises HostFailed when it ended before, for instance since a disk is full."""
    mirror = ET.fromstring(domain.XMLDesc()).find(f"devices/disk/target[@dev='{target}']/../mirror")
    if mirror is None and not domain.blockJobInfo(target, 0):
        raise HostFailed(
            "the copy of the guest's disk failed", private=f"{target}: its job is gone", code="guest_failed"
        )
    return mirror is not None and mirror.get("ready") == "yes"


def pivot(domain: Any, *, target: str) -> None:
    """Let the guest use the copy from now on."""
    domain.blockJobAbort(target, library().VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT)


def end_copy(domain: Any, *, target: str) -> None:
    """Let the guest stay with what it has, if a copy is under way."""
    if domain.isActive() and domain.blockJobInfo(target, 0):
        domain.blockJobAbort(target, 0)


def writes_next_to(domain: Any, *, file: str) -> bool:
    """Whether a guest that is off would write to this file when it is started: it wrote there last."""
    return device_of(domain.XMLDesc(library().VIR_DOMAIN_XML_INACTIVE), file) is not None


def device_of(xml: str, file: str) -> str | None:
    """The device name of the disk that is this file."""
    for disk in ET.fromstring(xml).iterfind("devices/disk"):
        source, target = disk.find("source"), disk.find("target")
        if source is not None and target is not None and source.get("file") == file:
            return target.get("dev")
    return None
