"""The destination of a live migration: a place waits for the guest, and becomes the guest as soon as libvirt has started it there."""

import asyncio
import shutil
from functools import partial
from xml.etree import ElementTree as ET

import msgspec

from moorage.drivers.libvirt import disks, live_tls
from moorage.drivers.libvirt.core import DESTROY_S, Core
from moorage.drivers.libvirt.domain_xml import root_is_local, seat_volumes
from moorage.drivers.libvirt.live_checks import refuse_other_machines, refused
from moorage.drivers.libvirt.plugging import refuse_absent
from moorage.drivers.libvirt.records import GuestRecord
from moorage.drivers.libvirt.transfers import at_destination, is_awaited
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, MoveTarget, PowerState
from moorage.model.ids import ServerId
from moorage.model.live_migration import LiveSource

COPIED = disks.WHOLE
BESIDE = (disks.KERNEL, disks.RAMDISK, disks.CONSOLE)
LIVE_FILE, LIVE_PLAN, LIVE_STATE = "live_file", "live_plan", "live_state"
"""Verbs between two hosts (carrier.py)."""


class Offer(msgspec.Struct):
    """The source's description of an arriving guest."""

    record: GuestRecord
    domain: str
    """libvirt's description of the running guest."""
    sizes: dict[str, int]
    """Sizes of its local disks, in bytes."""
    is_stopped: bool = False
    """Whether QEMU stopped it, since its disk had no space, and nobody paused it."""


class ArrivalPlan(msgspec.Struct):
    """The guest's description for the destination."""

    domain: str


class LiveArrivals(Core):
    """The part of `Live` for arriving guests."""

    _no_tls = ""
    """Why guests cannot arrive by TLS, as it was when somebody last looked; empty: they can."""

    async def live_target(self, spec: GuestSpec, source: LiveSource, block: bool | None) -> MoveTarget:
        assert self._machine is not None
        if not self._settings.migration_address:
            raise refused("The host takes no guests from other machines.", "[libvirt] migration_address is not set")
        if not self._settings.live_uri:
            raise refused("The host takes no guests while they run.", "[libvirt] live_uri is empty")
        if self._no_tls:  # it may have been mended since the agent started
            self._no_tls = await live_tls.why_none_arrive(self._settings)
        if self._no_tls:
            raise refused("The host takes no guests while they run: its TLS does not work.", self._no_tls)
        own_storage = f"{self._place().machine}:{self._room}"
        await self._link.ask(partial(refuse_other_machines, machine=self._machine, source=source))
        local = root_is_local(spec) or bool(spec.ephemeral_gib or spec.swap_mib)
        if block is False and local and source.storage != own_storage:
            raise refused(
                "The host is not on shared storage: Live migration can not be used without shared storage except a booted "
                "from volume VM which does not have a local disk.",
                own_storage,
            )
        return self._place().target()

    async def prepare_live(self, spec: GuestSpec, move: str) -> PowerState:
        """Prepare the host for a guest that arrives by live migration; may be repeated.

        Raises HostFailed when an earlier guest is still here.
        """
        server = spec.server
        self._records.directory(server)
        async with self._alone(server):
            present = self._records.find(server)
            if present is not None and present.departed:
                await asyncio.to_thread(self._records.forget, server)
                present = None
            if present is not None and present.move != move:
                raise HostFailed("an earlier guest is in the way", private=present.move, code="guest_in_the_way")
            if present is not None and present.made:
                return await self._awaited_power(present)
            record = GuestRecord(msgspec.structs.replace(spec, drive=None), move=move, incoming=True)
            self._records.keep(record)
            place = self._records.place(record)
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            self._keep_drive(record, spec.drive)
            for each in spec.volumes:
                await refuse_absent(each)
            seat_volumes(record)
            await self._plug(record)
            record.made = True
            self._records.keep(record)
            return PowerState.PAUSED

    async def plan_live(self, server: ServerId, move: str, offer: Offer) -> ArrivalPlan:
        """Make its disks, and describe it with this host's values. Raises HostFailed when the guest is not awaited."""
        async with self._alone(server):
            record = self.awaited(server, move)
            record.targets, record.kernel, record.ramdisk = (
                offer.record.targets,
                offer.record.kernel,
                offer.record.ramdisk,
            )
            record.snapshot, record.on_since = None, offer.record.on_since
            record.paused, record.stopped_at_source = offer.record.paused, offer.is_stopped
            for name, size in offer.sizes.items():
                if name not in COPIED:
                    raise HostFailed("the guest has a disk that is not known here", private=name, code="live_refused")
                await disks.make_empty(self._records.place(record) / name, size)
            plugs = await self._plug(record)
            record.serial_port = self._free_port()
            self._records.keep(record)
            try:
                return ArrivalPlan(at_destination(offer.domain, self._described(record, plugs)))
            except (ValueError, ET.ParseError) as other:
                raise HostFailed("the guest has other devices here", private=str(other), code="live_refused") from other

    def awaited(self, server: ServerId, move: str) -> GuestRecord:
        """Return the record of a guest for which this host waits.

        Raises HostFailed when it does not wait for it by this move.
        """
        record = self._records.find(server)
        if record is None or not record.incoming or not record.made or record.move != move:
            raise HostFailed("the other host does not wait for the guest", private=move, code="nothing_waits")
        return record

    async def drop_live(self, server: ServerId, move: str) -> PowerState:
        """Remove what was prepared for a guest that does not arrive; a missing one is success.

        Raises HostFailed when the guest has arrived.
        """
        async with self._alone(server):
            record = self._records.find(server)
            if record is None or record.move != move:
                return PowerState.NOSTATE if record is None else await self._power(server)
            if record.made and not await self._is_awaited(record):
                raise HostFailed("the guest has arrived", private=move, code="guest_has_arrived")
            await self._link.ask(partial(self._undefine, server=server), limit_s=DESTROY_S)
            self._ours.discard(server)
            async with self._wiring:
                await self._wires.unplug(record.spec.vifs)
            await asyncio.to_thread(self._records.forget, server)
            await self._unplug_what_is_unused()
            return PowerState.NOSTATE

    async def land_live(self, spec: GuestSpec, move: str) -> PowerState:
        """Record a guest that has arrived, with its final spec. Raises HostFailed when it has not arrived."""
        server = spec.server
        async with self._alone(server):
            record = self._records.find(server)
            if record is None or record.departed:
                record = self._records.of(server)
            if record.move != move or await self._is_awaited(record):
                raise HostFailed("the guest has not arrived", private=move, code="nothing_arrived")
            record.spec = msgspec.structs.replace(spec, drive=None)
            self._keep_drive(record, spec.drive)
            seat_volumes(record)
            if record.stopped_at_source and await self._power(server) is PowerState.PAUSED:
                # it tries again to write, and is stopped here if that fails
                await self._ask(server, lambda domain: domain.resume())
            record.stopped_at_source = False
            self._records.keep(record)
            await self._unplug_what_is_unused()
            return await self._power(server)

    async def _awaited_power(self, record: GuestRecord) -> PowerState:
        return PowerState.PAUSED if await self._is_awaited(record) else await self._power(record.spec.server)

    async def _is_awaited(self, record: GuestRecord) -> bool:
        """Whether the guest is still awaited. False: it runs here, or ran until it ended; this is recorded."""
        if not record.incoming:
            return False
        try:
            awaited = await self._ask(record.spec.server, lambda domain: is_awaited(domain, *domain.state()))
        except HostFailed as failure:
            if failure.code != "guest_not_found":
                raise
            return True
        if awaited:
            return True
        self._arrive(record)
        return False
