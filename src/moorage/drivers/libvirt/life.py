"""Verbs for a guest after its boot: console output, consoles, rebuild, rescue, crash dump, diagnostics; and the caching of images."""

import asyncio
import itertools
import os
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec

from moorage.drivers.config_drive import build
from moorage.drivers.libvirt import disks, machine_features
from moorage.drivers.libvirt.core import Core
from moorage.drivers.libvirt.images import info, kind_of
from moorage.drivers.libvirt.records import GuestRecord
from moorage.model.console import ConsoleSocket, ConsoleType
from moorage.model.diagnostics import (
    CpuDiagnostics,
    DiskDiagnostics,
    GuestDiagnostics,
    MemoryDiagnostics,
    NicDiagnostics,
)
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.ids import ImageId, ServerId
from moorage.model.instance_metadata import InstanceMetadata
from moorage.model.rescue import RescueSpec

CONSOLE_MAX_BYTES = 100 * 1024
"""How much of the end of a console log is returned, as in Nova."""
LINE = re.compile(r"[^\n]*\n|[^\n]+")
"""A guest that draws progress with carriage returns writes one."""
KIB = 1024
NMI = 0


class Life(Core):
    """Verbs of `LibvirtDriver` for a guest after its boot."""

    # ---- consoles --------------------------------------------------------------------------------------------------

    async def console_output(self, server: ServerId, lines: int | None) -> str:
        record = self._records.of(server)
        written = await asyncio.to_thread(_end_of, self._records.place(record) / disks.CONSOLE)
        return written if lines is None else "".join(LINE.findall(written)[-lines:] if lines > 0 else [])

    async def get_console(self, server: ServerId, kind: str) -> ConsoleSocket:
        """Return the address of a guest's console.

        Raises HostFailed when the guest is not running, or has no such console.
        """
        record = self._records.of(server)
        await self._active(server)
        if kind == ConsoleType.SERIAL:
            return ConsoleSocket(self._settings.address, record.serial_port)
        if kind != ConsoleType.NOVNC:
            raise HostFailed("the guest has no such console", private=kind, code="console_unavailable")
        graphics = ET.fromstring(await self._ask(server, lambda domain: str(domain.XMLDesc()))).find("devices/graphics")
        port = 0 if graphics is None else int(graphics.get("port", "0"))
        if port <= 0:
            raise HostFailed("the guest has no such console", private=kind, code="console_unavailable")
        return ConsoleSocket(self._settings.address, port)

    # ---- rebuild and rescue ----------------------------------------------------------------------------------------

    async def rebuild_guest(self, spec: GuestSpec, *, preserve_ephemeral: bool) -> PowerState:
        """Make the new disks in a new directory; the new record switches to them, and the old disks are removed afterwards."""
        server = spec.server
        self._records.directory(server)
        async with self._alone(server):
            old = self._records.find(server)
            bare = msgspec.structs.replace(spec, drive=None)
            if old is None:
                record = GuestRecord(bare)
                await self._make(record, spec.drive)
            else:
                machine_features.refuse_new_features(old.spec, spec, self._machine)
                await self._switch_off(server)
                record = await self._make_second_disk(old, bare, spec.drive, preserve_ephemeral=preserve_ephemeral)
                await asyncio.to_thread(self._records.tidy, server, record)
                await self._prune_images()
            return await self._switch_on(record) if spec.power_on else await self._power(server)

    async def _make_second_disk(
        self, old: GuestRecord, spec: GuestSpec, drive: InstanceMetadata | None, *, preserve_ephemeral: bool
    ) -> GuestRecord:
        """Make the second disk; if it is interrupted, the record says that the disks are not complete, and a repeat makes them again."""
        record = msgspec.structs.replace(
            old,
            spec=msgspec.structs.replace(spec, volumes=spec.volumes or old.spec.volumes),
            place=self._records.next_place(old),
            made=False,
            rescue=None,
        )
        before, place = self._records.place(old), self._records.place(record)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for name in disks.EPHEMERALS if preserve_ephemeral else ():
            if (before / name).exists():
                os.link(before / name, place / name)
        if drive is None and (before / disks.DRIVE).exists():
            os.link(before / disks.DRIVE, place / disks.DRIVE)
        await self._make(record, drive)
        return record

    async def rescue_guest(
        self, server: ServerId, rescue: RescueSpec, drive: InstanceMetadata | None = None
    ) -> PowerState:
        async with self._alone(server):
            record = self._records.of(server)
            place = self._records.place(record)
            if record.rescue == rescue and await self._power(server) is PowerState.RUNNING:
                return PowerState.RUNNING
            record.rescue_base = await self._images.disk(ImageId(rescue.image))
            self._records.keep(record)
            base = self._images.path(record.rescue_base)
            size = (await info(base, kind_of(record.rescue_base))).virtual_size
            await self._shut_down(server, self._settings.soft_reboot_s)
            await disks.make_over(self._images, record.rescue_base, place / disks.RESCUE, size)
            for name, file in (("kernel_id", disks.RESCUE_KERNEL), ("ramdisk_id", disks.RESCUE_RAMDISK)):
                if image := rescue.properties.get(name):
                    kernel = await self._images.kernel(ImageId(image))
                    await disks.copy_file(self._images.path(kernel), place / file)
            record.rescue_kernel = "kernel_id" in rescue.properties
            record.rescue_ramdisk = "ramdisk_id" in rescue.properties
            if drive is not None:
                disks.keep_drive(place / disks.RESCUE_DRIVE, build(drive))
            record.rescue = rescue
            self._records.keep(record)
            return await self._switch_on(record)

    async def unrescue_guest(self, server: ServerId, *, power_on: bool) -> PowerState:
        async with self._alone(server):
            record = self._records.of(server)
            if record.rescue is not None:
                await self._switch_off(server)
                record.rescue = None
                self._records.keep(record)
            for name in (disks.RESCUE, disks.RESCUE_DRIVE, disks.RESCUE_KERNEL, disks.RESCUE_RAMDISK):
                (self._records.place(record) / name).unlink(missing_ok=True)
            if record.rescue_base:
                record.rescue_base = ""
                self._records.keep(record)
            power = await self._power(server)
            if not power_on:
                return await self._switch_off(server)
            return power if power is PowerState.RUNNING else await self._switch_on(record)

    # ---- what is done to a guest that runs -------------------------------------------------------------------------

    async def crash_dump(self, server: ServerId) -> PowerState:
        async with self._alone(server):
            await self._active(server)
            await self._ask(server, lambda domain: domain.injectNMI(NMI))
            return await self._power(server)

    async def diagnostics(self, server: ServerId) -> GuestDiagnostics:
        record = self._records.of(server)
        power = await self._active(server)
        counted = await self._ask(server, _counted)
        assert self._machine is not None
        return GuestDiagnostics(
            state=power.name.lower(),
            driver="libvirt",
            hypervisor=self._machine.virt_type,
            hypervisor_os="linux",
            uptime=max(0, int(self._clock.now() - record.on_since)),
            config_drive=(self._records.place(record) / disks.DRIVE).exists(),
            cpu_details=counted.cpus,
            nic_details=counted.nics,
            disk_details=counted.disks,
            memory_details=MemoryDiagnostics(record.spec.ram_mib, counted.memory_used_mib),
        )

    # ---- images ----------------------------------------------------------------------------------------------------

    async def cache_image(self, image: str) -> None:
        await self._images.disk(ImageId(image))


class _Counted(msgspec.Struct):
    cpus: tuple[CpuDiagnostics, ...]
    nics: tuple[NicDiagnostics, ...]
    disks: tuple[DiskDiagnostics, ...]
    memory_used_mib: int | None


def _counted(domain: Any) -> _Counted:
    """libvirt's counters of a running guest."""
    described = ET.fromstring(domain.XMLDesc())
    nics: list[NicDiagnostics] = []
    for card in described.iterfind("devices/interface"):
        target, mac = card.find("target"), card.find("mac")
        if target is not None and mac is not None:
            rx, rx_p, rx_e, rx_d, tx, tx_p, tx_e, tx_d = domain.interfaceStats(target.get("dev"))
            nics.append(NicDiagnostics(mac.get("address"), rx, rx_e, rx_d, rx_p, None, tx, tx_e, tx_d, tx_p, None))
    counted: list[DiskDiagnostics] = []
    for disk in described.iterfind("devices/disk"):
        target = disk.find("target")
        if target is not None:
            read_n, read, written_n, written, errors = domain.blockStats(target.get("dev"))
            counted.append(DiskDiagnostics(read, read_n, written, written_n, max(0, errors)))
    cpus = tuple(CpuDiagnostics(number, time_ns) for number, _, time_ns, _ in domain.vcpus()[0])
    memory = domain.memoryStats()
    whole, free = memory.get("available"), memory.get("unused")
    used = None if whole is None or free is None else (whole - free) // KIB
    return _Counted(cpus, tuple(nics), tuple(counted), used)


def _end_of(log: Path) -> str:
    """The end of what a guest wrote: `virtlogd` begins a new file now and then, and numbers the older ones, newest first."""
    older = (log.with_name(f"{log.name}.{number}") for number in itertools.count())
    pieces, left = [_last_bytes(log, CONSOLE_MAX_BYTES) or b""], CONSOLE_MAX_BYTES
    while (left := left - len(pieces[-1])) > 0 and (piece := _last_bytes(next(older), left)) is not None:
        pieces.append(piece)
    return b"".join(reversed(pieces)).decode(errors="replace")


def _last_bytes(file: Path, count: int) -> bytes | None:
    """None: there is no such file."""
    try:
        with file.open("rb") as log:
            log.seek(max(0, file.stat().st_size - count))
            return log.read(count)
    except FileNotFoundError:
        return None
