"""Copies of guests' disks for the image service.

While the disk of a running guest is copied, the guest writes to an overlay; then the overlay is merged into the disk and removed.
If the agent dies in between, the guest keeps writing to the overlay: the next start of the agent or of the guest merges it.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from moorage.drivers.libvirt import disks
from moorage.drivers.libvirt.core import ACTIVE
from moorage.drivers.libvirt.domain_xml import root_is_local
from moorage.drivers.libvirt.guest_agent import ANSWERS_WITHIN_S, CALL_S, GuestAgent
from moorage.drivers.libvirt.guest_devices import has_agent
from moorage.drivers.libvirt.library import library
from moorage.drivers.libvirt.records import GuestRecord
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState, Quiesce
from moorage.model.ids import ImageId, ServerId
from moorage.model.image import ImageFile

COPY = "snapshot.qcow2"

_log = logging.getLogger(__name__)


class Snapshots(GuestAgent):
    """Snapshots of `LibvirtDriver`."""

    async def take_snapshot(self, server: ServerId, image: ImageId, quiesce: Quiesce) -> PowerState:
        """Copy the guest's disk.

        Raises HostFailed when its root disk is a volume, or when it must be quiesced and cannot be.
        """
        async with self._alone(server):
            record = self._records.of(server)
            power = await self._power(server)
            if record.snapshot == image:
                return power
            if not root_is_local(record.spec):
                raise HostFailed("the guest's root disk is a volume", private=server, code="no_snapshot")
            if power is not PowerState.RUNNING:
                quiesce = Quiesce.NO
            if quiesce is Quiesce.MUST and not has_agent(record.spec):
                raise cannot_quiesce("QEMU guest agent is not enabled")
            await self._settle_overlay(record)
            if power in ACTIVE:
                await self._copy_under(record, quiesce if has_agent(record.spec) else Quiesce.NO)
            else:
                place = self._records.place(record)
                above = place / disks.OVERLAY  # of a guest that was saved with it
                await disks.copy_flat(above if above.exists() else place / disks.ROOT, self._copy_of(server))
            record.snapshot = image
            self._records.keep(record)
            return await self._power(server)

    async def _copy_under(self, record: GuestRecord, quiesce: Quiesce) -> None:
        server, place = record.spec.server, self._records.place(record)
        above = place / disks.OVERLAY
        begin = partial(_write_above, disk=str(place / disks.ROOT), above=str(above))
        if quiesce is Quiesce.NO or not await self._begun_still(record, begin, must=quiesce is Quiesce.MUST):
            await self._ask(server, begin)
        try:
            await disks.copy_flat(place / disks.ROOT, self._copy_of(server))
        finally:
            await self._settle_overlay(record)

    async def _begun_still(self, record: GuestRecord, begin: Callable[..., None], *, must: bool) -> bool:
        """Let the guest write to the overlay from a moment in which its file systems are still.

        libvirt's daemon makes them still and lets them go within one call, so a kill of this process leaves none still. A
        daemon that dies within it may: so the guest's record says so first, and it is thawed. False: its agent did not do it.
        """
        record.frozen_for, record.frozen_until, record.thawed_for = COPY, self._clock.now(), ""
        self._records.keep(record)
        try:
            await self._ask(record.spec.server, partial(begin, still=True), CALL_S)
        except HostFailed as failure:
            await self._thaw_if_possible(record)
            await self._settle_overlay(record)
            if failure.code != "guest_failed":
                raise
            if must:
                raise cannot_quiesce(failure.private) from failure
            _log.info("%s: its agent cannot make it still: %s", record.spec.server, failure.private)
            return False
        await self._thawed(record, "")
        return True

    async def upload_snapshot(self, server: ServerId, image: ImageId) -> PowerState:
        """Send the copy into the image.

        Raises HostFailed when there is no copy, or the host has no access to the image service.
        """
        record = self._records.of(server)
        copy = self._copy_of(server)
        if record.snapshot != image:
            raise HostFailed("the host has no copy of this disk", private=image, code="no_snapshot")
        if self._image_store is None:
            raise HostFailed("the host has no way to the image service", private=server, code="no_image_service")
        if copy.exists():  # else it was sent
            await self._image_store.send(image, ImageFile(copy, "qcow2", "bare"))
            await asyncio.to_thread(copy.unlink, missing_ok=True)
        return await self._power(server)

    async def drop_snapshot(self, server: ServerId, image: ImageId) -> PowerState:
        async with self._alone(server):
            record = self._records.find(server)
            if record is None:
                return PowerState.NOSTATE
            if record.snapshot == image:
                self._copy_of(server).unlink(missing_ok=True)
                record.snapshot = None
                self._records.keep(record)
            return await self._power(server)

    def _copy_of(self, server: ServerId) -> Path:
        return self._records.directory(server) / COPY


def cannot_quiesce(why: str) -> HostFailed:
    return HostFailed("the guest cannot be quiesced", private=why, code="quiesce_failed")


def _write_above(domain: Any, *, disk: str, above: str, still: bool = False) -> None:
    """Let the guest write to a new overlay from now on. `still`: from a moment in which its file systems are still."""
    libvirt = library()
    snapshot = ET.Element("domainsnapshot")
    places = ET.SubElement(snapshot, "disks")
    for each in ET.fromstring(domain.XMLDesc()).iterfind("devices/disk"):
        source, target = each.find("source"), each.find("target")
        assert target is not None
        name = target.get("dev", "")
        if source is not None and source.get("file") == disk:
            place = ET.SubElement(places, "disk", name=name, snapshot="external", type="file")
            ET.SubElement(place, "driver", type="qcow2")
            ET.SubElement(place, "source", file=above)
        else:
            ET.SubElement(places, "disk", name=name, snapshot="no")
    flags = (
        libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_DISK_ONLY
        | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA
        | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_ATOMIC
    )
    if still:
        domain.agentSetResponseTimeout(ANSWERS_WITHIN_S, 0)
        flags |= libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_QUIESCE
    domain.snapshotCreateXML(ET.tostring(snapshot, encoding="unicode"), flags)
