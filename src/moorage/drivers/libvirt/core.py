"""What all parts of the driver share: a guest's power state from libvirt, and how a guest is made, switched on and switched off."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary
from xml.etree import ElementTree as ET

from moorage.drivers.config_drive import build
from moorage.drivers.libvirt import block_jobs, disks
from moorage.drivers.libvirt.carrier import MigrationAddress, Receiver
from moorage.drivers.libvirt.console_ports import free_port
from moorage.drivers.libvirt.described_ports import DescribedPorts
from moorage.drivers.libvirt.domain_xml import (
    NAMESPACE,
    Around,
    domain_xml,
    queues_of,
    root_is_local,
    seat_volumes,
)
from moorage.drivers.libvirt.guest_services import GuestServices
from moorage.drivers.libvirt.host_facts import MachineFacts, machine_id
from moorage.drivers.libvirt.images import ImageCache
from moorage.drivers.libvirt.library import library
from moorage.drivers.libvirt.link import DaemonLink
from moorage.drivers.libvirt.plumber import Plumber
from moorage.drivers.libvirt.port_wiring import is_described
from moorage.drivers.libvirt.power_states import power_of, switch_off
from moorage.drivers.libvirt.qemu_access import QemuAccess, directories_of
from moorage.drivers.libvirt.quotas import start_limited
from moorage.drivers.libvirt.records import GuestDirectory, GuestRecord
from moorage.drivers.libvirt.settings import Libvirt
from moorage.drivers.libvirt.stopped_guests import StoppedGuests
from moorage.drivers.libvirt.transfers import LiveTransfer
from moorage.drivers.libvirt.wires import Wires
from moorage.model.clock import Clock
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState
from moorage.model.ids import ServerId
from moorage.model.image import ImageStore
from moorage.model.instance_metadata import InstanceMetadata

T = TypeVar("T")

START_S, DESTROY_S, SAVE_S = 120.0, 60.0, 600.0
"""Limits of one call of libvirt; the verb's own deadline usually ends before."""
COMMIT_S, COMMIT_AT_START_S = 3_600.0, 60.0
"""Limits of merging what a guest wrote while its disk was copied; an agent that starts does not wait for so long."""
LOOK_EVERY_S = 0.2
SHUTDOWN_EVERY_S = 10.0  # as Nova's `shutdown_retry_interval`
DESCRIBED_WITHIN_S = 5.0
STARTS_TRIED_MAX = 3
"""A serial console's port may be taken between the check and the start."""
ACTIVE = frozenset({PowerState.RUNNING, PowerState.PAUSED})

_log = logging.getLogger(__name__)


class Core:
    """One host's guests."""

    def __init__(
        self,
        directory: Path,
        settings: Libvirt,
        clock: Clock,
        *,
        hostname: str,
        images: ImageStore | None,
        physical_networks: tuple[str, ...] = (),
        metadata_secret: str = "",
    ) -> None:
        """`metadata_secret`: what the metadata service knows its proxies by."""
        self._room = (
            Path(settings.instances_path).resolve() / hostname if settings.instances_path else directory.resolve()
        )
        self._settings, self._clock, self._hostname = settings, clock, hostname
        self._image_store = images
        self._physical_networks = physical_networks
        self._access = QemuAccess(directory, self._room, settings.instances_path)
        self._link = DaemonLink(settings.uri)
        self._records = GuestDirectory(self._room)
        self._images = ImageCache(self._room, images, settings.image_unused_s)
        self._descriptions = DescribedPorts(self._room)
        self._redescribed = asyncio.Event()
        self._describing: asyncio.Task[None] | None = None
        self._metadata_secret = metadata_secret
        self._serve_as("")
        self._wiring = asyncio.Lock()
        self._machine: MachineFacts | None = None
        self._cache = "none"
        self._locks: WeakValueDictionary[ServerId, asyncio.Lock] = WeakValueDictionary()
        self._ours: set[str] = set()
        """Domains that have our mark; an entry is kept until we destroy the domain."""
        self._receiver: Receiver | None = None
        self._transfers: dict[ServerId, LiveTransfer] = {}
        """Live migrations from here."""
        self._stopped = StoppedGuests()
        self._closing = False

    def _place(self) -> MigrationAddress:
        """The place at which this host accepts guests."""
        settings, receiver = self._settings, self._receiver
        if receiver is None:
            return MigrationAddress(machine_id(), str(self._room), settings.address)
        daemon = settings.live_uri.format(address=settings.migration_address)
        return MigrationAddress(
            machine_id(), str(self._room), settings.migration_address, settings.migration_port, receiver.key, receiver.certificate, daemon
        )  # fmt: skip

    def _serve_as(self, owner: str) -> None:
        plumber = Plumber(self._room, self._settings)
        self._wires = Wires(owner, self._settings, plumber, self._descriptions)
        self._services = GuestServices(owner, self._room, self._settings, self._metadata_secret)

    # ---- state in libvirt ------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _alone(self, server: ServerId) -> AsyncIterator[None]:
        """Lock the guest: nothing else is done with it meanwhile."""
        async with self._locks.setdefault(server, asyncio.Lock()):
            yield

    async def _ask(self, server: ServerId, work: Callable[[Any], T], limit_s: float = 30.0) -> T:
        """Call `work(domain)`. Raises HostFailed (`guest_not_found`) when there is no domain, or it is not ours."""
        return await self._link.ask(
            lambda connection: work(self._domain(connection, server)), limit_s=limit_s, of=server
        )

    def _domain(self, connection: Any, server: ServerId) -> Any:
        domain = connection.lookupByUUIDString(server)
        if not self._is_ours(domain):
            raise HostFailed(
                "the host has no such guest", private=f"{domain.name()} is not ours", code="guest_not_found"
            )
        return domain

    def _is_ours(self, domain: Any) -> bool:
        """Whether the domain is ours. Only a yes is cached: another domain of this id may be removed, and one of ours made."""
        key = domain.UUIDString()
        if key not in self._ours:
            libvirt = library()
            try:
                mark = ET.fromstring(domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, NAMESPACE, 0))
            except libvirt.libvirtError as failure:
                if failure.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN_METADATA:
                    raise
                return False
            if mark.get("owner") != self._records.owner:
                return False
            self._ours.add(key)
        return True

    async def _power(self, server: ServerId) -> PowerState:
        """The guest's power state. A guest without a domain is off, and only has its record. Raises HostFailed when it is not here."""
        self._records.of(server)
        try:
            return await self._link.query(lambda connection: power_of(self._domain(connection, server)))
        except HostFailed as failure:
            if failure.code != "guest_not_found":
                raise
            return PowerState.SHUTDOWN

    async def _active(self, server: ServerId) -> PowerState:
        """Check that the guest is running. Raises HostFailed (`guest_not_running`)."""
        power = await self._power(server)
        if power not in ACTIVE:
            why = f"{server} is {power.name}"
            raise HostFailed("the guest is not running", private=why, code="guest_not_running")
        return power

    def _is_still(self, record: GuestRecord) -> bool:
        """Whether its file systems are still, as far as anybody knows (guest_agent.py)."""
        return bool(record.frozen_for) and self._clock.now() < record.frozen_until

    async def _when(self, server: ServerId, powers: Collection[PowerState], within_s: float) -> bool:
        """Wait until the guest has one of these power states; false: not in time."""
        ends = self._clock.monotonic() + within_s
        while True:
            if await self._power(server) in powers:
                return True
            if self._clock.monotonic() >= ends:
                return False
            await self._clock.sleep(LOOK_EVERY_S)

    # ---- made ------------------------------------------------------------------------------------------------------

    async def _make(self, record: GuestRecord, drive: InstanceMetadata | None) -> None:
        """Make the guest's disks in its directory; files that an interrupted call left are made again."""
        self._records.keep(record)
        spec, place = record.spec, self._records.place(record)
        place.mkdir(exist_ok=True)
        if root_is_local(spec):
            if spec.image:
                record.base = await self._images.disk(spec.image)
                self._records.keep(record)
                await disks.make_over(self._images, record.base, place / disks.ROOT, spec.root_gib * disks.GIB)
            else:
                await disks.make_empty(place / disks.ROOT, max(1, spec.root_gib) * disks.GIB)
        await disks.make_ephemerals(place, spec)
        if spec.swap_mib:
            await disks.make_swap(place / disks.SWAP, spec.swap_mib * disks.MIB)
        for image, name in ((spec.kernel, disks.KERNEL), (spec.ramdisk, disks.RAMDISK)):
            if image:
                await disks.copy_file(self._images.path(await self._images.kernel(image)), place / name)
        record.kernel, record.ramdisk = bool(spec.kernel), bool(spec.ramdisk)
        self._keep_drive(record, drive)
        seat_volumes(record)
        record.made = True
        self._records.keep(record)

    async def _prune_images(self) -> None:
        """Remove images that no disk needs. While a record cannot be read, nobody knows what its guest's disk is over."""
        if not self._records.set_aside:
            await asyncio.to_thread(self._images.prune, self._records.bases())

    def _keep_drive(self, record: GuestRecord, drive: InstanceMetadata | None) -> None:
        if drive is not None:
            disks.keep_drive(self._records.place(record) / disks.DRIVE, build(drive))

    # ---- switched on and off ---------------------------------------------------------------------------------------

    async def _plug(self, record: GuestRecord) -> list[ET.Element]:
        """Connect its interfaces; and let QEMU reach its files."""
        ways = directories_of(record, self._records.place(record), self._images.path(""))
        await asyncio.to_thread(self._access.open_ways, ways)
        if record.incoming:
            await self._until_described(record)
        async with self._wiring:
            plugs = await self._wires.plug(record.spec.vifs, many_queues=queues_of(record.spec) > 1)
            await self._serve_networks()
        return plugs

    async def _until_described(self, record: GuestRecord) -> None:
        """A guest that runs is on its way: its ports should be open when it comes. They are closed, but for longer, if nobody describes them."""
        ports = [vif.port for vif in record.spec.vifs if self._settings.port_filter and is_described(vif)]
        if missing := await self._descriptions.until_has(ports, self._clock, DESCRIBED_WITHIN_S):
            _log.warning("%s: ports are not described yet, and closed: %s", record.spec.server, ", ".join(missing))

    async def _unplug_what_is_unused(self) -> None:
        async with self._wiring:
            await self._serve_networks()

    async def _serve_networks(self, *, nobody: bool = False) -> None:
        """As the guests of this host need them; whoever calls holds `_wiring`. `nobody`: as if there were none."""
        known = [] if nobody else [each.spec for each in self._records.every().values() if not each.departed]
        specs = [self._descriptions.as_described(each) for each in known]
        unreleased = {tap for each in self._records.every().values() for tap in each.unreleased.values()}
        await self._wires.serve([vif for spec in specs for vif in spec.vifs], unreleased)
        await self._services.keep(await self._wires.seats(specs), self._descriptions.ports, self._wires.far_side)

    async def _switch_on(self, record: GuestRecord) -> PowerState:
        """Start the guest from its disk, as its record says; it is off, or saved, and a saved state is dropped."""
        server, place = record.spec.server, self._records.place(record)
        record.leaving, record.held, record.paused = None, False, False  # it was off, so it did not go
        record.frozen_for, record.frozen_until, record.unreleased = "", 0.0, {}
        await self._settle_overlay(record)
        await asyncio.to_thread(disks.shorten, place / disks.CONSOLE)
        plugs = await self._plug(record)
        for left in reversed(range(STARTS_TRIED_MAX)):
            record.serial_port = self._free_port()
            record.on_since = self._clock.now()
            self._records.keep(record)
            xml = self._described(record, plugs)
            try:
                return await self._link.ask(partial(self._define_and_start, server=server, xml=xml), limit_s=START_S)
            except HostFailed as failure:
                if not left or not any(each in failure.private for each in ("in use", "available port")):
                    raise
                _log.info("%s is started once more: %s", server, failure.private)
        raise AssertionError("unreachable")

    def _described(self, record: GuestRecord, plugs: list[ET.Element]) -> str:
        """libvirt's description of the guest, as it would be started here."""
        assert self._machine is not None
        place = self._records.place(record)
        return domain_xml(record, Around(self._machine, self._settings, self._records.owner, place, self._cache, plugs))

    def _arrive(self, record: GuestRecord) -> None:  # a guest of the place that waited for it
        record.incoming = False
        self._records.keep(record)

    def _define_and_start(self, connection: Any, *, server: ServerId, xml: str) -> PowerState:
        libvirt = library()
        try:
            existing = connection.lookupByUUIDString(server)
        except libvirt.libvirtError as failure:
            if failure.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
        else:
            if not self._is_ours(existing):
                raise HostFailed(
                    "the host has another guest of this id", private=str(existing.name()), code="guest_in_the_way"
                )
            if existing.isActive():
                return power_of(existing)
            if existing.hasManagedSaveImage(0):
                existing.managedSaveRemove(0)
        domain = connection.defineXML(xml)
        start_limited(domain)
        return power_of(domain)

    def _free_port(self) -> int:
        return free_port(self._settings, {record.serial_port for record in self._records.every().values()})

    async def _switch_off(self, server: ServerId) -> PowerState:
        """Switch the guest off at once, and drop a saved state."""
        try:
            return await self._ask(server, switch_off, DESTROY_S)
        except HostFailed as failure:
            if failure.code != "guest_not_found":
                raise
            return PowerState.SHUTDOWN

    def _undefine(self, connection: Any, server: ServerId) -> None:
        libvirt = library()
        try:
            domain = self._domain(connection, server)
            if domain.isActive():
                domain.destroy()
            domain.undefineFlags(
                libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
                | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
                | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
            )
        except libvirt.libvirtError as failure:
            if failure.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise
        except HostFailed as failure:
            if failure.code != "guest_not_found":
                raise

    async def _shut_down(self, server: ServerId, within_s: float) -> PowerState:
        """Ask the guest to shut down, and switch it off if it does not in time, or cannot be asked: libvirt asks its agent first."""
        if await self._power(server) is PowerState.RUNNING and await self._shuts_down(server, within_s):
            return PowerState.SHUTDOWN
        return await self._switch_off(server)

    async def _shuts_down(self, server: ServerId, within_s: float) -> bool:
        """Ask again and again: a guest that has just begun to boot does not notice its power button."""
        ends = self._clock.monotonic() + within_s
        while (left_s := ends - self._clock.monotonic()) > 0:
            try:
                await self._ask(server, lambda domain: domain.isActive() and domain.shutdown())
            except HostFailed as failure:
                if failure.code not in {"guest_failed", "hypervisor_slow"}:
                    raise
                _log.info("%s cannot be asked to shut down: %s", server, failure.private)
            if await self._when(server, {PowerState.SHUTDOWN, PowerState.CRASHED}, min(left_s, SHUTDOWN_EVERY_S)):
                return True
        return False

    # ---- the disk that lies above while a copy is taken -------------------------------------------------------------

    async def _settle_overlay(self, record: GuestRecord, within_s: float = COMMIT_S) -> None:
        """Merge the overlay, to which the guest wrote while its disk was copied, into the disk.

        A guest that was switched over may have ended before the overlay was removed. Its disk has newer data then, so the
        overlay is only merged if the guest wrote to it last. That of a saved guest stays: the saved state names it.
        """
        server, above = record.spec.server, self._records.place(record) / disks.OVERLAY
        if not above.exists() or (power := await self._power(server)) is PowerState.SUSPENDED:
            return
        if power in ACTIVE:
            target = await self._ask(server, partial(block_jobs.begin_commit, above=str(above)))
            if target is not None:
                await self._until_level(server, target, within_s)
                await self._ask(server, partial(block_jobs.pivot, target=target))
        elif await self._wrote_last_to(server, above):
            await disks.merge_down(above)
        above.unlink(missing_ok=True)

    async def _wrote_last_to(self, server: ServerId, above: Path) -> bool:
        try:
            return await self._ask(server, partial(block_jobs.writes_next_to, file=str(above)))
        except HostFailed as failure:
            if failure.code != "guest_not_found":
                raise
            return True

    async def _until_level(self, server: ServerId, target: str, within_s: float) -> None:
        """Raises HostFailed when the copy of a disk fails, or does not catch up in time."""
        ends = self._clock.monotonic() + within_s
        while not await self._ask(server, partial(block_jobs.is_level, target=target)):
            if self._clock.monotonic() >= ends:
                raise HostFailed("the copy of the guest's disk does not end", private=target, code="guest_failed")
            await self._clock.sleep(LOOK_EVERY_S)
