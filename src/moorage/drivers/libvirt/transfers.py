"""A live migration from this host, and its progress from libvirt's counters."""

import asyncio
from typing import Any
from xml.etree import ElementTree as ET

from moorage.drivers.libvirt.library import library
from moorage.model.live_migration import LiveNow, LiveState
from moorage.model.migration import TransferProgress


class LiveTransfer:
    """A transfer that this agent began; one that an earlier agent began is known only to libvirt."""

    def __init__(self, move: str) -> None:
        self.move = move
        self.state, self.why = LiveState.RUNNING, ""
        self.progress = TransferProgress()
        self.sending = True
        """Whether libvirt's call, or the preparation before it, is not over."""
        self.agreed = False
        """Whether the destination has agreed; from then on only libvirt can end it."""
        self.ended = False
        """Whether it was aborted."""
        self.task: asyncio.Task[None] | None = None
        self.forcing: asyncio.Task[None] | None = None

    def now(self) -> LiveNow:
        return LiveNow(self.state, self.progress, self.why)

    def all_sent(self) -> None:
        last = self.progress
        self.progress = TransferProgress(
            last.memory_total, last.memory_processed + last.memory_remaining, 0,
            last.disk_total, last.disk_processed + last.disk_remaining, 0,
        )  # fmt: skip


def counted(domain: Any) -> TransferProgress | None:
    """Return the progress from libvirt's counters; None: nothing is being sent."""
    libvirt = library()
    found = domain.jobStats()
    if found.get("type", libvirt.VIR_DOMAIN_JOB_NONE) == libvirt.VIR_DOMAIN_JOB_NONE:
        return None
    names = ("memory_total", "memory_processed", "memory_remaining", "disk_total", "disk_processed", "disk_remaining")
    return TransferProgress(*(int(found.get(name, 0)) for name in names))


def is_awaited(domain: Any, state: int, reason: int) -> bool:
    """Tell from libvirt's state whether a domain is only the place for an arriving guest."""
    libvirt = library()
    if state in {libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_BLOCKED}:
        return False
    if state == libvirt.VIR_DOMAIN_PAUSED:
        begins = {"MIGRATION", "STARTING_UP", "UNKNOWN"}
        return reason in {getattr(libvirt, f"VIR_DOMAIN_PAUSED_{each}") for each in begins}
    return not domain.isPersistent()  # it is being started; one that arrived is kept, also when it died since


def is_between(state: int, reason: int) -> bool:
    """Whether a guest's source stopped it at the switch, and libvirt does not know how that ended.

    A daemon that died after QEMU had left, and before it forgot the domain, finds it switched off and cannot say why.
    """
    libvirt = library()
    if state == libvirt.VIR_DOMAIN_SHUTOFF:
        meant = {getattr(libvirt, f"VIR_DOMAIN_SHUTOFF_{each}") for each in ("SHUTDOWN", "DESTROYED", "SAVED")}
        return reason not in meant
    stopped = {libvirt.VIR_DOMAIN_PAUSED_MIGRATION, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY}
    stopped.add(getattr(libvirt, "VIR_DOMAIN_PAUSED_POSTCOPY_FAILED", libvirt.VIR_DOMAIN_PAUSED_POSTCOPY))
    return bool(state == libvirt.VIR_DOMAIN_PAUSED and reason in stopped)


def at_destination(source: str, own: str) -> str:
    """Return the running guest's description at its source with the destination's own files, connections and consoles.

    `own`: how the destination would start this guest.  Raises ValueError for a device that the destination does not have.
    """
    source_xml, own_xml = ET.fromstring(source), ET.fromstring(own)
    devices, mine = source_xml.find("devices"), own_xml.find("devices")
    if devices is None or mine is None:
        raise ValueError("no devices")
    _take(source_xml, own_xml, "metadata")
    for part in ("kernel", "initrd"):
        found, ours = source_xml.find(f"os/{part}"), own_xml.find(f"os/{part}")
        if found is not None and ours is None:
            raise ValueError(f"no {part}")
        if found is not None and ours is not None:
            found.text = ours.text
    variables, own_variables = source_xml.find("os/nvram"), own_xml.find("os/nvram")
    if variables is not None:
        if own_variables is None:
            raise ValueError("no firmware with variables")
        variables.text = own_variables.text
    _take(devices, mine, "emulator")
    for disk in devices.iterfind("disk"):
        ours = _matching(mine, "disk", "target", "dev", disk)
        for each in [*disk.iterfind("backingStore"), *disk.iterfind("mirror")]:
            disk.remove(each)
        _take(disk, ours, "source")
        disk.set("type", ours.get("type", "file"))
    for card in devices.iterfind("interface"):
        ours = _matching(mine, "interface", "mac", "address", card)
        for part in ("source", "target", "virtualport"):
            _take(card, ours, part)
        card.set("type", ours.get("type", "ethernet"))
    _take_consoles(devices, mine)
    return ET.tostring(source_xml, encoding="unicode")


def _take_consoles(devices: ET.Element, mine: ET.Element) -> None:
    serial = mine.find("serial")
    for line in [*devices.iterfind("serial"), *devices.iterfind("console")]:
        for part in ("source", "log"):
            if serial is not None and line.get("type") == serial.get("type"):
                _take(line, serial, part)
    _take(devices, mine, "graphics")


def _take(into: ET.Element, of: ET.Element, part: str) -> None:
    for old in list(into.iterfind(part)):
        into.remove(old)
    into.extend(list(of.iterfind(part)))


def _matching(among: ET.Element, tag: str, child: str, attribute: str, wanted: ET.Element) -> ET.Element:
    key = wanted.find(child)
    value = None if key is None else key.get(attribute)
    for each in among.iterfind(tag):
        mark = each.find(child)
        if mark is not None and value is not None and mark.get(attribute) == value:
            return each
    raise ValueError(f"no {tag} {value}")
