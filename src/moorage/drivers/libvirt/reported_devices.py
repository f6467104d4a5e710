"""The volumes and interfaces of this host's guests, for its reports: by its records, and as libvirt shows them.

The records are what the next start of a guest gets.  A guest that runs may have something else: QEMU may not have released a device,
an attach may have ended without an answer, an operator may have used `virsh`.  So a full report looks at the domains of guests that
run.  A disk is known by its source, for its serial number stays that of the volume with which it was plugged when another volume is
copied under it; an interface is known by its MAC.
"""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from moorage.drivers.libvirt.core import Core
from moorage.drivers.libvirt.plugging import path_of
from moorage.drivers.libvirt.records import GuestRecord
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec
from moorage.model.guest_devices import GuestDevices, GuestInterface, GuestVolume, devices_of
from moorage.model.ids import ServerId

LOOK_S = 10.0

_log = logging.getLogger(__name__)


class _ShownDisk(NamedTuple):
    source: str
    serial: str


class _Shown(NamedTuple):
    disks: list[_ShownDisk]
    macs: list[str]


class ReportedDevices(Core):
    """Reports devices for `LibvirtDriver`."""

    _known_devices: Mapping[ServerId, GuestDevices] = {}

    async def known_devices(self) -> Mapping[ServerId, GuestDevices]:
        now = {server: devices_of(record.spec) for server, record in self._records.every().items() if _is_here(record)}
        if now != self._known_devices:
            self._known_devices = now
        return self._known_devices

    async def guest_devices(self) -> Mapping[ServerId, GuestDevices]:
        """A guest about which libvirt does not answer is left out: nothing is known of it then."""
        found: dict[ServerId, GuestDevices] = {}
        for server, known in (await self.known_devices()).items():
            spec = self._records.of(server).spec
            try:
                shown = await self._ask(server, _shown, LOOK_S)
            except HostFailed as failure:
                if failure.code == "guest_not_found":  # it is off, and its next start is by the record
                    found[server] = known
                else:
                    _log.info("devices of %s are not known: %s", server, failure.private)
                continue
            found[server] = known if shown is None else _seen(spec, known, shown)
        return found


def _is_here(record: GuestRecord) -> bool:
    return not (record.incoming or record.departed or record.leaving is not None)


def _shown(domain: Any) -> _Shown | None:
    """The volumes and interfaces of a domain that runs; None: it is off."""
    if not domain.isActive():
        return None
    devices = ET.fromstring(domain.XMLDesc()).find("devices")
    assert devices is not None
    disks: list[_ShownDisk] = []
    for each in devices.iterfind("disk"):
        source, serial = each.find("source"), each.findtext("serial")
        if serial and source is not None:  # those without a serial number are the guest's local disks
            disks.append(_ShownDisk(source.get("file") or source.get("dev") or "", serial))
    return _Shown(disks, [each.get("address", "").lower() for each in devices.iterfind("interface/mac")])


def _seen(spec: GuestSpec, known: GuestDevices, shown: _Shown) -> GuestDevices:
    """What is shown, by the ids that the record gives it.  A source that is no recorded volume's is named as it is, with the block
    device in whose place it stands."""
    volumes = {each.volume: each for each in known.volumes}
    by_source = {str(path_of(each)): each.volume for each in spec.volumes}
    ports = {each.mac.lower(): each for each in known.interfaces}
    disks: list[GuestVolume] = []
    for each in shown.disks:
        volume = by_source.get(each.source)
        if volume is not None:
            disks.append(volumes[volume])
        elif each.serial in volumes:
            disks.append(GuestVolume(each.source, bdm=volumes[each.serial].bdm))
        else:
            disks.append(GuestVolume(each.serial))
    return GuestDevices(tuple(disks), tuple(ports.get(each) or GuestInterface("", each) for each in shown.macs))
