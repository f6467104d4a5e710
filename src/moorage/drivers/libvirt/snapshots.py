"""Copies of guests' disks for the image service.

While the disk of a running guest is copied, the guest writes to an overlay; then the overlay is merged into the disk and removed.
If the agent dies in between, the guest keeps writing to the overlay: the next start of the agent or of the guest merges it.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from moorage.drivers.libvirt import disks
from moorage.drivers.libvirt.core import ACTIVE, Core
from moorage.drivers.libvirt.domain_xml import root_is_local
from moorage.drivers.libvirt.library import library
from moorage.drivers.libvirt.records import GuestRecord
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState, Quiesce
from moorage.model.ids import ImageId, ServerId
from moorage.model.image import ImageFile

COPY = "snapshot.qcow2"


class Snapshots(Core):
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
            if quiesce is Quiesce.MUST and power is PowerState.RUNNING:
                raise HostFailed(
                    "the guest cannot be quiesced", private="no guest agent is spoken to", code="quiesce_failed"
                )
            await self._settle_overlay(record)
            if power in ACTIVE:
                await self._copy_under(record)
            else:
                await disks.copy_flat(self._records.place(record) / disks.ROOT, self._copy_of(server))
            record.snapshot = image
            self._records.keep(record)
            return await self._power(server)

    async def _copy_under(self, record: GuestRecord) -> None:
        server, place = record.spec.server, self._records.place(record)
        above = place / disks.OVERLAY
        await self._ask(server, partial(_write_above, disk=str(place / disks.ROOT), above=str(above)))
        try:
            await disks.copy_flat(place / disks.ROOT, self._copy_of(server))
        finally:
            await self._settle_overlay(record)

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


def _write_above(domain: Any, *, disk: str, above: str) -> None:
    """Let the guest write to a new overlay from now on."""
    libvirt = library()
    asked = ET.Element("domainsnapshot")
    places = ET.SubElement(asked, "disks")
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
    domain.snapshotCreateXML(ET.tostring(asked, encoding="unicode"), flags)
