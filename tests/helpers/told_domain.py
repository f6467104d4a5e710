"""A domain of libvirt that is told how it stands, and the driver over it: for what no hypervisor is needed."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from xml.etree import ElementTree as ET

import msgspec
import pytest
from typing_extensions import override

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.drivers.libvirt.records import GuestRecord
from moorage.drivers.libvirt.settings import Libvirt
from moorage.model.clock import SystemClock
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.ids import ServerId

T = TypeVar("T")

ONE = ServerId("11111111-0000-4000-8000-000000000000")


class ToldFailure(Exception):
    """libvirt's."""

    def get_error_code(self) -> int:
        return 1


LIBRARY = SimpleNamespace(
    libvirtError=ToldFailure,
    VIR_ERR_DEVICE_MISSING=99,
    VIR_DOMAIN_XML_INACTIVE=2,
    VIR_DOMAIN_AFFECT_LIVE=1,
    VIR_DOMAIN_BLOCK_COMMIT_ACTIVE=4,
    VIR_DOMAIN_BLOCK_COMMIT_SHALLOW=1,
    VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT=2,
    VIR_DOMAIN_BLOCK_COPY_REUSE_EXT=2,
    VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB=4,
)
MODULES = ("core", "block_jobs", "plugging", "power_states", "snapshots")


class ToldDomain:
    """`live` and `kept`: the disks of the running guest, and of its next start: device name → file."""

    def __init__(self) -> None:
        self.power = PowerState.RUNNING
        self.live: dict[str, str] = {}
        self.kept: dict[str, str] = {}
        self.serials: dict[str, str] = {}
        self.mirror: str | None = None
        """Of the disk that is copied: `yes` when it has caught up; empty while it has not."""
        self.asked: list[str] = []
        self.fails: dict[str, Exception] = {}
        """What is asked → what it raises, after it has been done."""

        self.deaf_for = 0
        """So many requests to shut down it does not notice."""

        self.events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        """What is asked → set when it was."""

    def note(self, what: str) -> None:
        self.asked.append(what)
        self.events[what].set()
        if (failure := self.fails.get(what)) is not None:
            raise failure

    def isActive(self) -> bool:  # noqa: N802 - libvirt's, as the following
        return self.power in {PowerState.RUNNING, PowerState.PAUSED}

    def XMLDesc(self, flags: int = 0) -> str:  # noqa: N802
        domain = ET.Element("domain")
        devices = ET.SubElement(domain, "devices")
        used = self.kept if flags & LIBRARY.VIR_DOMAIN_XML_INACTIVE or not self.isActive() else self.live
        for target, file in used.items():
            disk = ET.SubElement(devices, "disk", type="file")
            ET.SubElement(disk, "source", file=file)
            ET.SubElement(disk, "target", dev=target)
            if target in self.serials:
                ET.SubElement(disk, "serial").text = self.serials[target]
            if self.mirror is not None:
                ET.SubElement(disk, "mirror", {"ready": self.mirror} if self.mirror else {})
        return ET.tostring(domain, encoding="unicode")

    def blockJobInfo(self, target: str, flags: int) -> dict[str, int]:  # noqa: N802
        return {} if self.mirror is None else {"type": 1}

    def blockCommit(self, target: str, *_: object) -> None:  # noqa: N802
        self.mirror = "yes"
        self.note("commit")

    def blockCopy(self, target: str, xml: str, *_: object) -> None:  # noqa: N802
        self.mirror = ""
        self.note("copy")

    def blockJobAbort(self, target: str, flags: int) -> None:  # noqa: N802
        self.mirror = None
        self.note("pivot" if flags else "abort")

    def attachDeviceFlags(self, xml: str, flags: int) -> None:  # noqa: N802
        device = ET.fromstring(xml)
        target = device.find("target").get("dev")  # type: ignore[union-attr]
        assert target is not None
        assert target not in self.live, f"target {target} already exists"
        self.live[target] = device.find("source").get("file") or ""  # type: ignore[union-attr]
        self.serials[target] = device.findtext("serial") or ""
        self.note("attach")

    def detachDeviceFlags(self, xml: str, flags: int) -> None:  # noqa: N802
        target = ET.fromstring(xml).find("target").get("dev")  # type: ignore[union-attr]
        assert target is not None
        del self.live[target]
        self.note("detach")

    def managedSave(self, flags: int) -> None:  # noqa: N802
        self.power = PowerState.SUSPENDED
        self.note("save")

    def shutdown(self) -> None:
        self.note("shutdown")
        if self.asked.count("shutdown") > self.deaf_for:
            self.power = PowerState.SHUTDOWN


class ToldDriver(LibvirtDriver):
    """Without a daemon: its domain answers."""

    def __init__(self, room: Path, domain: ToldDomain) -> None:
        super().__init__(room, Libvirt(), SystemClock(), hostname="host", images=None)
        self.domain = domain

    @override
    async def _ask(self, server: ServerId, work: Callable[[Any], T], limit_s: float = 30.0) -> T:
        try:
            return work(self.domain)
        except ToldFailure as failure:
            raise HostFailed("the hypervisor refused", private=str(failure), code="guest_failed") from failure

    @override
    async def _power(self, server: ServerId) -> PowerState:
        self._records.of(server)
        return self.domain.power

    @override
    async def _switch_off(self, server: ServerId) -> PowerState:
        self.domain.asked.append("off")
        self.domain.power = PowerState.SHUTDOWN
        return PowerState.SHUTDOWN


def told_driver(room: Path, monkeypatch: pytest.MonkeyPatch, **spec: object) -> ToldDriver:
    """With one guest, which runs. Who calls closes its records."""
    for module in MODULES:
        monkeypatch.setattr(f"moorage.drivers.libvirt.{module}.library", lambda: LIBRARY)
    made = ToldDriver(room, ToldDomain())
    made._records.open()
    wanted = msgspec.structs.replace(GuestSpec(ONE, "web", 1, 512, 1), **spec)
    record = made._records.keep(GuestRecord(wanted, made=True))
    made._records.place(record).mkdir()
    return made
