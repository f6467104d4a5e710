"""Attaches and detaches interfaces and volumes: at once in a running guest, and in its record for the next start."""

import asyncio
import logging
import platform
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import msgspec

from moorage.drivers.libvirt import machine_features
from moorage.drivers.libvirt.block_jobs import end_copy, pivot
from moorage.drivers.libvirt.core import ACTIVE, Core
from moorage.drivers.libvirt.devices import tap_of
from moorage.drivers.libvirt.disks import copy_raw
from moorage.drivers.libvirt.domain_xml import PREFIXES, bus_of, interface, queues_of, seat_volumes, volume_disk
from moorage.drivers.libvirt.host_facts import machine_id
from moorage.drivers.libvirt.library import library
from moorage.drivers.libvirt.records import GuestRecord
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState, VifData, VolumeDisk
from moorage.model.ids import ServerId

LETS_GO_WITHIN_S = 25.0
"""How long a detach waits for the guest; if the guest does not release the device in this time, the device stays."""
UNRELEASED_WITHIN_S = 10.0
"""The same for what it could not release before; whoever resumes it waits for that."""
ASK_AGAIN_S = 5.0
COPY_S = 3_600.0
"""Limit for copying a volume; the verb's own deadline usually ends before."""
GIB = 1 << 30
MAY_HAVE_DONE = frozenset({"hypervisor_slow", "hypervisor_out"})
"""Of a call whose answer did not come."""

_log = logging.getLogger(__name__)


class _SavedInterface(NamedTuple):
    mac: str
    tap: str
    many_queues: bool


class Plugging(Core):
    """Devices of `LibvirtDriver`."""

    # ---- interfaces ------------------------------------------------------------------------------------------------

    async def attach_interface(self, server: ServerId, vif: VifData) -> PowerState:
        async with self._alone(server):
            record = self._records.of(server)
            await self._runs(server)
            others = tuple(each for each in record.spec.vifs if each.port != vif.port)
            grown = msgspec.structs.replace(
                record,
                spec=msgspec.structs.replace(record.spec, vifs=(*others, vif)),
                unreleased={mac: tap for mac, tap in record.unreleased.items() if mac != vif.mac},
            )
            self._records.keep(grown)  # first, so that its tap is known to be somebody's
            try:
                async with self._wiring:
                    plug = (await self._wires.plug([vif], many_queues=queues_of(record.spec) > 1))[0]
                    await self._serve_networks()
                card = ET.tostring(interface(grown.spec, vif, plug), encoding="unicode")
                if await self._power(server) in ACTIVE:
                    mark = ("mac", "address", vif.mac)
                    await self._ask(server, partial(_attach, what="interface", mark=mark, xml=card))
            except HostFailed as failure:
                if failure.code not in MAY_HAVE_DONE:
                    self._records.keep(record)
                    await self._unplug_what_is_unused()
                raise
            return await self._power(server)

    async def detach_interface(self, server: ServerId, port: str) -> PowerState:
        """One that stands still cannot release it: it is taken off its network at once, and out of the guest when that goes on."""
        async with self._alone(server):
            record = self._records.of(server)
            leaving = next((each for each in record.spec.vifs if each.port == port), None)
            if leaving is not None:
                is_paused = await self._power(server) is PowerState.PAUSED
                if is_paused:
                    record.unreleased[leaving.mac] = tap_of(leaving)
                else:
                    await self._take_out(server, "interface", ("mac", "address", leaving.mac))
                kept = tuple(each for each in record.spec.vifs if each.port != port)
                record.spec = msgspec.structs.replace(record.spec, vifs=kept)
                self._records.keep(record)
                async with self._wiring:
                    await (self._wires.loosen(leaving) if is_paused else self._wires.unplug([leaving]))
                    await self._serve_networks()
            return await self._power(server)

    async def _plug_as_saved(self, record: GuestRecord) -> None:
        """Connect the interfaces of a guest that was saved: those that were detached since, on no network. QEMU does not go on
        without a device that it was saved with."""
        plain = {each.mac for each in record.spec.vifs}
        saved = await self._ask(record.spec.server, _saved_interfaces)
        record.unreleased = {each.mac: each.tap for each in saved if each.mac not in plain}
        self._records.keep(record)
        await self._plug(record)
        async with self._wiring:
            for each in saved:
                if each.mac in record.unreleased:
                    await self._wires.plug_nowhere(each.tap, many_queues=each.many_queues)

    async def _take_out_unreleased(self, record: GuestRecord) -> None:
        """Of a guest that goes on again: interfaces that were detached meanwhile. One that does not release them keeps them, on
        no network, until its next start."""
        server = record.spec.server
        for mac in tuple(record.unreleased):
            try:
                await self._take_out(server, "interface", ("mac", "address", mac), UNRELEASED_WITHIN_S)
            except HostFailed as failure:
                _log.warning("%s still has the interface %s, on no network: %s", server, mac, failure.private)
                continue
            del record.unreleased[mac]
            self._records.keep(record)
            await self._unplug_what_is_unused()

    # ---- volumes ---------------------------------------------------------------------------------------------------

    async def attach_volume(self, server: ServerId, disk: VolumeDisk) -> PowerState:
        async with self._alone(server):
            record = self._records.of(server)
            others = tuple(each for each in record.spec.volumes if each.volume != disk.volume)
            runs = await self._runs(server)
            taken = await self._ask(server, _disk_names) if runs else ()
            grown = self._with_volumes(record, (*others, disk), taken)
            device = machine_features.pack(
                volume_disk(disk, grown.targets[disk.volume], bus_of(grown.spec)), grown.spec
            )
            await self._reach(disk)
            self._records.keep(grown)
            if runs:
                xml, mark = ET.tostring(device, encoding="unicode"), ("target", "dev", grown.targets[disk.volume])
                try:
                    await self._ask(server, partial(_attach, what="disk", mark=mark, xml=xml))
                except HostFailed as failure:
                    if failure.code not in MAY_HAVE_DONE:  # else the guest may have it, and a detach must find it
                        self._records.keep(record)
                    raise
            return await self._power(server)

    async def detach_volume(self, server: ServerId, volume: str) -> PowerState:
        async with self._alone(server):
            record = self._records.of(server)
            if any(each.volume == volume for each in record.spec.volumes):
                await self._runs(server)
                await self._refuse_paused(server, record.targets[volume])
                await self._take_out(server, "disk", ("target", "dev", record.targets[volume]))
                kept = tuple(each for each in record.spec.volumes if each.volume != volume)
                self._records.keep(self._with_volumes(record, kept))
            return await self._power(server)

    async def swap_volume(self, server: ServerId, old: str, disk: VolumeDisk) -> PowerState:
        """Replace a volume by a copy. The disk keeps its place on the guest's bus; only its source changes, in one
        moment.

        Raises HostFailed when the guest has no such volume, or is suspended.
        """
        async with self._alone(server):
            record = self._records.of(server)
            attached = {each.volume for each in record.spec.volumes}
            if old not in attached:
                if disk.volume in attached:
                    return await self._power(server)
                raise HostFailed("the guest has no such volume", private=old, code="volume_not_found")
            target = record.targets[old]
            device = volume_disk(disk, target, bus_of(record.spec))
            await self._reach(disk)
            xml, power = ET.tostring(device, encoding="unicode"), await self._power(server)
            if power in ACTIVE:
                await self._copy_over(server, target, xml)
            elif power is PowerState.SUSPENDED:
                raise HostFailed("a suspended guest keeps its volumes", private=old, code="guest_not_running")
            elif not await self._is_switched(server, target, xml):
                await copy_raw(path_of(self._volume(record, old)), path_of(disk))
            kept = tuple(each for each in record.spec.volumes if each.volume not in {old, disk.volume})
            record.targets[disk.volume] = target
            self._records.keep(self._with_volumes(record, (*kept, disk)))
            return await self._power(server)

    async def _copy_over(self, server: ServerId, target: str, xml: str) -> None:
        """Copy a disk; a copy that was begun is continued, and one that is ready is switched. One that fails, or is given
        up, ends: the new volume is somebody else's then."""
        if not await self._ask(server, partial(_begin_copy, target=target, xml=xml)):
            return
        try:
            await self._until_level(server, target, COPY_S)
            await self._ask(server, partial(pivot, target=target))
        except (HostFailed, asyncio.CancelledError):
            await self._ask(server, partial(end_copy, target=target))
            raise

    async def _is_switched(self, server: ServerId, target: str, xml: str) -> bool:
        """Whether a guest that is off was switched to the new volume before: that one has its data then."""
        try:
            return await self._ask(server, partial(_has_source, target=target, xml=xml))
        except HostFailed as failure:
            if failure.code != "guest_not_found":
                raise
            return False

    async def _reach(self, disk: VolumeDisk) -> None:
        """Raises HostFailed when the volume is not on this host, or QEMU cannot reach it."""
        await refuse_absent(disk)
        await asyncio.to_thread(self._access.open_ways, [path_of(disk).parent])

    async def _runs(self, server: ServerId) -> bool:
        """Whether its devices are changed at once, and not at its next start. Raises HostFailed for one that is suspended:
        it goes on with those that it was saved with, and would write to a volume that is somebody else's by then."""
        power = await self._power(server)
        if power is PowerState.SUSPENDED:
            raise HostFailed("a suspended guest keeps its devices", private=server, code="guest_not_running")
        return power in ACTIVE

    async def _refuse_paused(self, server: ServerId, target: str) -> None:
        """Raises HostFailed for a guest that is paused: once asked, it would release the volume when it goes on, after that was
        given up. On a bus whose devices QEMU takes out by itself it is not asked."""
        if target.startswith(PREFIXES["virtio"]) and await self._power(server) is PowerState.PAUSED:
            raise HostFailed("a paused guest does not release its volumes", private=target, code="device_busy")

    @staticmethod
    def _volume(record: GuestRecord, volume: str) -> VolumeDisk:
        return next(each for each in record.spec.volumes if each.volume == volume)

    def _with_volumes(
        self, record: GuestRecord, volumes: tuple[VolumeDisk, ...], taken: Collection[str] = ()
    ) -> GuestRecord:
        """A changed record, which is not written yet. `taken`: device names that the running guest has for other disks."""
        changed = msgspec.structs.replace(record, spec=msgspec.structs.replace(record.spec, volumes=volumes))
        seat_volumes(changed, taken)
        return changed

    async def extend_volume(self, server: ServerId, volume: str, size_gib: int) -> PowerState:
        """Tell the guest that the volume service has made a volume larger.

        Raises HostFailed when the guest has no such volume.
        """
        async with self._alone(server):
            record = self._records.of(server)
            if all(each.volume != volume for each in record.spec.volumes):
                raise HostFailed("the guest has no such volume", private=volume, code="volume_not_found")
            if await self._power(server) in ACTIVE:
                size = size_gib * GIB
                await self._ask(server, partial(_resize, target=record.targets[volume], size=size))
            grown = tuple(
                msgspec.structs.replace(each, size_gib=size_gib) if each.volume == volume else each
                for each in record.spec.volumes
            )
            record.spec = msgspec.structs.replace(record.spec, volumes=grown)
            self._records.keep(record)
            return await self._power(server)

    async def volume_connector(self) -> dict[str, Any]:
        """Return the connector of a host whose volumes are its own files or block devices, so it has no iSCSI initiator."""
        return {
            "platform": platform.machine(),
            "os_type": "linux",
            "ip": self._settings.address,
            "host": self._hostname,
            "multipath": False,
            "do_local_attach": False,
            "system uuid": machine_id(),
        }

    # ---- out of a guest that runs ------------------------------------------------------------------------------------

    async def _take_out(
        self, server: ServerId, what: str, mark: tuple[str, str, str], within_s: float = LETS_GO_WITHIN_S
    ) -> None:
        """Detach a device, which the guest must release. Raises HostFailed (`device_busy`) when it does not."""
        if await self._power(server) not in ACTIVE:
            return
        await self._link.until_over(server)  # an attach that was given up may still bring it
        ends, again = self._clock.monotonic() + within_s, 0.0
        while await self._ask(server, partial(_has, what=what, mark=mark)):
            now = self._clock.monotonic()
            if now >= ends:
                raise HostFailed("the guest does not release the device", private=mark[2], code="device_busy")
            if now >= again:
                again = now + ASK_AGAIN_S
                await self._ask(server, partial(_detach, what=what, mark=mark))
            await self._clock.sleep(0.2)


def _data(disk: VolumeDisk) -> dict[str, Any]:
    found: dict[str, Any] = disk.connection.get("data", disk.connection)
    return found


def path_of(disk: VolumeDisk) -> Path:
    return Path(str(_data(disk).get("device_path")))


async def refuse_absent(disk: VolumeDisk) -> None:
    """Check that a volume's device exists on this host. Raises HostFailed when it does not."""
    if not await asyncio.to_thread(path_of(disk).exists):
        raise HostFailed("the volume is not on this host", private=disk.volume, code="volume_unreachable")


def _find(domain: Any, what: str, mark: tuple[str, str, str]) -> ET.Element | None:
    """Find a device by its mark: an attribute or the text of a child element."""
    tag, attribute, value = mark
    for device in ET.fromstring(domain.XMLDesc()).iterfind(f"devices/{what}"):
        child = device.find(tag)
        if child is not None and (child.get(attribute) if attribute else child.text) == value:
            return device
    return None


def _saved_interfaces(domain: Any) -> list[_SavedInterface]:
    """Those that a guest was saved with."""
    found: list[_SavedInterface] = []
    for card in ET.fromstring(domain.managedSaveGetXMLDesc(0)).iterfind("devices/interface"):
        mac, target, driver = card.find("mac"), card.find("target"), card.find("driver")
        if mac is not None and target is not None:
            queues = 1 if driver is None else int(driver.get("queues", "1"))
            found.append(_SavedInterface(mac.get("address", ""), target.get("dev", ""), queues > 1))
    return found


def _disk_names(domain: Any) -> list[str]:
    """The device names of all disks of a running guest."""
    return [target.get("dev", "") for target in ET.fromstring(domain.XMLDesc()).iterfind("devices/disk/target")]


def _has(domain: Any, *, what: str, mark: tuple[str, str, str]) -> bool:
    return bool(domain.isActive()) and _find(domain, what, mark) is not None


def _attach(domain: Any, *, what: str, mark: tuple[str, str, str], xml: str) -> None:
    """Attach a device, if it is missing. The definition is made again at the next start, so only the running guest is changed."""
    if _find(domain, what, mark) is None:
        domain.attachDeviceFlags(xml, library().VIR_DOMAIN_AFFECT_LIVE)
    elif what == "disk" and not _has_source(domain, target=mark[2], xml=xml):
        raise HostFailed("the guest has another disk of this name", private=mark[2], code="guest_failed")


def _detach(domain: Any, *, what: str, mark: tuple[str, str, str]) -> None:
    device = _find(domain, what, mark)
    if device is None:
        return
    libvirt = library()
    try:
        domain.detachDeviceFlags(ET.tostring(device, encoding="unicode"), libvirt.VIR_DOMAIN_AFFECT_LIVE)
    except libvirt.libvirtError as failure:
        on_its_way = "in the process of unplug" in str(failure)
        gone = failure.get_error_code() == libvirt.VIR_ERR_DEVICE_MISSING
        if not on_its_way and not gone:
            raise


def _begin_copy(domain: Any, *, target: str, xml: str) -> bool:
    """Begin to copy a disk, unless that is under way. False: the guest has the copy already."""
    libvirt = library()
    if _has_source(domain, target=target, xml=xml):
        return False
    if not domain.blockJobInfo(target, 0):
        flags = libvirt.VIR_DOMAIN_BLOCK_COPY_REUSE_EXT | libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB
        domain.blockCopy(target, xml, {}, flags)
    return True


def _has_source(domain: Any, *, target: str, xml: str) -> bool:
    """Whether the disk is what is described there."""
    return ET.fromstring(xml).find("source").attrib == _source(domain, target)  # type: ignore[union-attr]


def _source(domain: Any, target: str) -> dict[str, str]:
    """The disk's present source."""
    found = ET.fromstring(domain.XMLDesc()).find(f"devices/disk/target[@dev='{target}']/../source")
    return {} if found is None else {name: value for name, value in found.attrib.items() if name in {"file", "dev"}}


def _resize(domain: Any, *, target: str, size: int) -> None:
    domain.blockResize(target, size, library().VIR_DOMAIN_BLOCK_RESIZE_BYTES)
