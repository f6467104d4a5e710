"""What is known of guests that QEMU stopped because there was no space for what they wrote, and what libvirt says of them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from moorage.drivers.libvirt.library import library
from moorage.model.ids import ServerId
from moorage.model.retry import Backoff

AGAIN_FIRST_S, AGAIN_MOST_S = 5.0, 300.0
"""Pauses between attempts of one guest that stops again and again."""
MIB = 1 << 20


class StoppedGuest:
    """A guest that stopped."""

    def __init__(self) -> None:
        self.pauses = Backoff(AGAIN_FIRST_S, AGAIN_MOST_S)
        self.not_before = 0.0
        """When it may go on again."""
        self.stands = False
        """Whether it stood still at the last look; then that was logged."""


class StoppedGuests:
    """Those of one host. One that goes on is remembered for a while: it may stop again soon."""

    def __init__(self) -> None:
        self._guests: dict[ServerId, StoppedGuest] = {}

    @property
    def standing(self) -> tuple[ServerId, ...]:
        """Guests that wait for space, as of the last look."""
        return tuple(server for server, each in self._guests.items() if each.stands)

    def of(self, server: ServerId) -> StoppedGuest:
        return self._guests.setdefault(server, StoppedGuest())

    def others_go_on(self, but: set[ServerId], now: float) -> None:
        """Note which guests stand still; others do not."""
        for server in self._guests.keys() - but:
            self._guests[server].stands = False
            if now >= self._guests[server].not_before + AGAIN_MOST_S:
                del self._guests[server]


def full_disks(domain: Any) -> dict[str, int | None] | None:
    """The files or devices to which a guest could not write → what is free on their file systems, in bytes, if they are on one.

    None: it was not stopped for that.
    """
    libvirt = library()
    state, reason = domain.state()
    if state != libvirt.VIR_DOMAIN_PAUSED or reason != libvirt.VIR_DOMAIN_PAUSED_IOERROR:
        return None
    failed = domain.diskErrors()
    found: dict[str, int | None] = {}
    for disk in ET.fromstring(domain.XMLDesc()).iterfind("devices/disk"):
        target, source = disk.find("target"), disk.find("source")
        if target is not None and source is not None and target.get("dev") in failed:
            file = source.get("file") or source.get("dev") or ""
            found[file] = _free_bytes(file)
    return found


def disks_text(disks: Mapping[str, int | None]) -> str:
    """For the log."""
    parts = [
        file if free is None else f"{file}, with {free // MIB} MiB free on its file system"
        for file, free in disks.items()
    ]
    return "; ".join(parts) or "of an unknown file"


def _free_bytes(file: str) -> int | None:
    try:
        if Path(file).is_block_device():
            return None
        space = os.statvfs(file)
    except OSError:
        return None
    return space.f_bavail * space.f_frsize
