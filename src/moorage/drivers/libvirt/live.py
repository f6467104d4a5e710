"""Live migration from this host.

libvirt sends the guest: the source's daemon connects to the destination's, and no agent is in between, so a transfer continues if agents die.
Disks are copied completely, by NBD.  libvirt's state tells where the guest is:

    at the source         the domain is gone as soon as the guest has left; otherwise the guest runs there
    at the destination    the domain is only a waiting place until the guest runs there

Only a daemon that dies within the switch leaves its guest stopped, or off, and does not know.  Its agent then asks the other host's.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from xml.etree import ElementTree as ET

from moorage.drivers.libvirt import carrier, live_tls
from moorage.drivers.libvirt.carrier import MigrationAddress
from moorage.drivers.libvirt.core import DESTROY_S
from moorage.drivers.libvirt.images import info
from moorage.drivers.libvirt.library import library
from moorage.drivers.libvirt.live_arrivals import (
    BESIDE,
    COPIED,
    LIVE_FILE,
    LIVE_PLAN,
    LIVE_STATE,
    ArrivalPlan,
    LiveArrivals,
    Offer,
)
from moorage.drivers.libvirt.live_checks import refused, source_cpu
from moorage.drivers.libvirt.power_states import power_of
from moorage.drivers.libvirt.records import GuestRecord
from moorage.drivers.libvirt.stopped_guests import full_disks
from moorage.drivers.libvirt.transfers import LiveTransfer, counted, is_between
from moorage.model.errors import HostFailed, Problem
from moorage.model.guest import MoveTarget, PowerState
from moorage.model.ids import ServerId
from moorage.model.live_migration import LiveNow, LiveSource, LiveState

T = TypeVar("T")

AGAIN_S = 0.3

_log = logging.getLogger(__name__)


class Live(LiveArrivals):
    """Live migration of `LibvirtDriver`."""

    # ---- before ----------------------------------------------------------------------------------------------------

    async def live_source(self, server: ServerId) -> LiveSource:
        """Describe this host as the source of a guest's live migration.

        Raises HostFailed when the guest is not running, or is in rescue.
        """
        assert self._machine is not None
        record = self._records.of(server)
        await self._active(server)
        if record.rescue is not None:
            raise HostFailed("a guest that is rescued stays where it is", private=server, code="guest_busy")
        cpu = await self._ask(server, partial(source_cpu, machine=self._machine))
        return LiveSource(cpu, "QEMU", self._machine.version, f"{self._place().machine}:{self._room}")

    # ---- at the source ---------------------------------------------------------------------------------------------

    async def send_live(self, server: ServerId, to: MoveTarget, move: str) -> PowerState:
        """Begin to send a running guest to the host that waits for it; a repeat does nothing more.

        Raises HostFailed when the guest is not running, is quiesced, is being sent by another move, or the other host
        cannot be reached, or takes guests in the clear although this host does not.
        """
        async with self._alone(server):
            record = self._records.find(server)
            if record is not None and record.departed and record.leaving_by == move:
                return PowerState.NOSTATE
            record, known = self._records.of(server), self._transfers.get(server)
            if self._is_still(record):
                raise HostFailed("the guest is quiesced", private=record.frozen_for, code="guest_busy")
            if record.leaving is not None and (known is None or known.state is not LiveState.RUNNING):
                stands = await self._stands_at_source(record)
                if stands.state is LiveState.SWITCHED and record.leaving_by == move:
                    return PowerState.NOSTATE
                if stands.state is LiveState.RUNNING and record.leaving_by != move:
                    raise HostFailed("the guest is being sent elsewhere", private=record.leaving_by, code="guest_busy")
                if stands.state is LiveState.RUNNING:
                    return await self._power(server)
            elif known is not None and known.state is LiveState.RUNNING:
                if known.move != move:
                    raise HostFailed("the guest is being sent elsewhere", private=known.move, code="guest_busy")
                return await self._power(server)
            power = await self._active(server)
            place = MigrationAddress.of(to)
            if not place.port or not place.daemon:
                raise carrier.unreachable(to.where)
            if live_tls.is_tls(self._settings.live_uri) and not live_tls.is_tls(place.daemon):
                raise refused("The other host takes guests in the clear only.", place.daemon)
            await self._settle_overlay(record)
            record.leaving, record.leaving_by, record.held = to, move, False
            self._records.keep(record)
            transfer = self._transfers[server] = LiveTransfer(move)
            transfer.task = asyncio.create_task(self._send_live(server, place, transfer), name=f"live-{server}")
            return power

    async def _send_live(self, server: ServerId, place: MigrationAddress, transfer: LiveTransfer) -> None:
        """Send the guest until it has left; after an error it continues here."""
        why = ""
        try:
            plan = await self._agree(server, place, transfer.move)
            transfer.agreed = True
            await self._in_thread(partial(self._migrate, server=server, place=place, plan=plan))
        except asyncio.CancelledError:
            why = "it was aborted before anything was sent"
            if self._closing:
                raise
        except Exception as failure:  # noqa: BLE001 - a boundary: who asks how it stands is answered with it
            why = (failure.private or failure.public) if isinstance(failure, Problem) else repr(failure)
            why = live_tls.explained(why)
        finally:
            transfer.sending = False
            if transfer.forcing is not None:
                transfer.forcing.cancel()
        if not self._closing:
            await self._over(server, transfer, why)

    async def _over(self, server: ServerId, transfer: LiveTransfer, why: str) -> None:
        """Handle the end of libvirt's transfer, successful or not."""
        record = self._records.find(server)
        while record is not None and not self._closing:
            try:
                stands = await self._stands_at_source(record)
            except HostFailed as silent:  # asked again: until somebody knows, nothing is over
                _log.warning("%s: where the guest is cannot be known yet: %s", server, silent.private or silent.public)
            else:
                if stands.state is not LiveState.RUNNING:
                    break
            await self._clock.sleep(AGAIN_S)
            record = self._records.find(server)
        if record is None or record.departed:
            transfer.all_sent()
            transfer.state = LiveState.SWITCHED
        else:
            transfer.state, transfer.why = (LiveState.ABORTED if transfer.ended else LiveState.FAILED), why
            _log.warning("%s: the guest stays here: %s", server, why)

    async def _agree(self, server: ServerId, place: MigrationAddress, move: str) -> ArrivalPlan:
        """Send the files beside the disks to the destination, which makes the disks and returns the guest's description."""
        record = self._records.of(server)
        directory = self._records.place(record)
        for name in BESIDE:
            if (directory / name).exists():
                await carrier.send_file(place, LIVE_FILE, server, move, directory / name)
        sizes = {
            name: (await info(directory / name, "qcow2")).virtual_size for name in COPIED if (directory / name).exists()
        }
        flags = library().VIR_DOMAIN_XML_MIGRATABLE | library().VIR_DOMAIN_XML_SECURE
        domain = await self._ask(server, lambda found: str(found.XMLDesc(flags)))
        is_stopped = not record.paused and await self._ask(server, full_disks) is not None
        return await carrier.ask(place, LIVE_PLAN, server, move, Offer(record, domain, sizes, is_stopped), ArrivalPlan)

    def _migrate(self, connection: Any, *, server: ServerId, place: MigrationAddress, plan: ArrivalPlan) -> None:
        """Run the transfer in a thread of its own, which blocks until it is over."""
        libvirt = library()
        domain = self._domain(connection, server)
        directory = str(self._records.directory(server))
        targets = [
            disk.find("target").get("dev")  # type: ignore[union-attr]
            for disk in ET.fromstring(domain.XMLDesc()).iterfind("devices/disk")
            if disk.get("device") == "disk" and (disk.find("source") is not None)
            and str(disk.find("source").get("file")).startswith(f"{directory}/")  # type: ignore[union-attr]
        ]  # fmt: skip
        flags = libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_PEER2PEER
        flags |= libvirt.VIR_MIGRATE_PERSIST_DEST | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
        parameters: dict[str, object] = {
            libvirt.VIR_MIGRATE_PARAM_URI: f"tcp://{place.address}",
            libvirt.VIR_MIGRATE_PARAM_DEST_XML: plan.domain,
            libvirt.VIR_MIGRATE_PARAM_PERSIST_XML: plan.domain,
        }
        if targets:
            flags |= libvirt.VIR_MIGRATE_NON_SHARED_DISK
            parameters[libvirt.VIR_MIGRATE_PARAM_MIGRATE_DISKS] = targets
        if self._post_copies and power_of(domain) is PowerState.RUNNING:  # libvirt refuses it of others
            flags |= libvirt.VIR_MIGRATE_POSTCOPY
        if live_tls.is_tls(place.daemon):
            flags |= libvirt.VIR_MIGRATE_TLS
            if (name := live_tls.name_of(place.daemon)) != place.address:
                parameters[libvirt.VIR_MIGRATE_PARAM_TLS_DESTINATION] = name
        if place.machine == self._place().machine:  # one machine has one page cache: no host sees old data of a volume
            flags |= libvirt.VIR_MIGRATE_UNSAFE
        if self._settings.live_mib_per_s:
            parameters[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = self._settings.live_mib_per_s
        domain.migrateToURI3(live_tls.as_client(place.daemon, self._settings), parameters, flags)

    async def abort_live(self, server: ServerId, move: str) -> PowerState:
        async with self._alone(server):
            record, transfer = self._records.find(server), self._transfers.get(server)
            if record is None or record.departed or record.leaving_by != move:
                return await self._power_if_here(server)
            if transfer is not None:
                transfer.ended = True
                if transfer.task is not None and not transfer.agreed:
                    transfer.task.cancel()
                    await asyncio.wait([transfer.task])
            while (await self._stands_at_source(record)).state is LiveState.RUNNING:
                with suppress_absent():  # it has just left
                    await self._ask(server, _abort_job)
                await self._clock.sleep(AGAIN_S)
            if transfer is not None and transfer.task is not None:
                await asyncio.wait([transfer.task])
            return await self._power_if_here(server)

    async def _power_if_here(self, server: ServerId) -> PowerState:
        record = self._records.find(server)
        return PowerState.NOSTATE if record is None or record.departed else await self._power(server)

    @property
    def _post_copies(self) -> bool:
        """Whether guests may be switched before their memory is there. QEMU of a host that cannot fetch it would refuse each guest."""
        return self._settings.live_post_copy and self._access.may_fetch_memory()

    async def force_live(self, server: ServerId, move: str, *, post_copy: bool) -> PowerState:
        record, transfer = self._records.find(server), self._transfers.get(server)
        if record is None or record.departed:
            return PowerState.NOSTATE
        running = transfer is not None and transfer.state is LiveState.RUNNING and transfer.move == move
        if transfer is not None and running and transfer.forcing is None:
            early = post_copy and self._post_copies
            transfer.forcing = asyncio.create_task(self._force(record, early=early), name=f"force-{server}")
        elif not running and record.leaving_by == move and await self._ask(server, counted) is not None:
            await self._force(record, early=post_copy and self._post_copies)
        return await self._power(server)

    async def _force(self, record: GuestRecord, *, early: bool) -> None:
        """Switch as soon as libvirt can: the guest is paused until everything has arrived, or, if `early`, runs there before that."""
        server = record.spec.server
        while True:
            try:
                if early:
                    await self._ask(server, lambda domain: domain.migrateStartPostCopy(0))
                    _log.info("%s goes on at its destination before all of its memory is there", server)
                elif await self._ask(server, counted) is not None:
                    if await self._power(server) is PowerState.RUNNING:
                        record.held = True
                        self._records.keep(record)
                        await self._ask(server, lambda domain: domain.suspend())
                    return
                else:
                    await self._clock.sleep(AGAIN_S)
                    continue
            except HostFailed as not_yet:
                if not_yet.code == "guest_not_found":
                    return
                _log.info("%s is not switched yet: %s", server, not_yet.private)
                await self._clock.sleep(AGAIN_S)
            else:
                return

    # ---- at either -------------------------------------------------------------------------------------------------

    async def live_status(self, server: ServerId, move: str) -> LiveNow:
        record, transfer = self._records.find(server), self._transfers.get(server)
        if transfer is not None and transfer.move == move:
            if transfer.state is LiveState.RUNNING:
                await self._count(server, transfer)
            return transfer.now()
        if record is None:
            return LiveNow(LiveState.NONE)
        if record.leaving_by == move:
            return await self._stands_at_source(record)
        if record.move != move or not record.made:
            return LiveNow(LiveState.NONE)
        return LiveNow(LiveState.WAITING if await self._is_awaited(record) else LiveState.ARRIVED)

    async def _count(self, server: ServerId, transfer: LiveTransfer) -> None:
        try:
            found = await self._ask(server, counted)
        except HostFailed:
            return  # it has just left, or libvirt is silent: how far it was stays
        if found is not None:
            transfer.progress = found

    async def _stands_at_source(self, record: GuestRecord) -> LiveNow:
        """The state at the source, from libvirt; an ended transfer is recorded. Raises HostFailed when the state cannot be known now."""
        server = record.spec.server
        if record.departed:
            return LiveNow(LiveState.SWITCHED)
        if record.leaving is None:
            return LiveNow(LiveState.NONE)
        transfer = self._transfers.get(server)
        try:
            progress, state, reason = await self._ask(server, _seen_at_source)
        except HostFailed as failure:
            if failure.code != "guest_not_found":
                raise
            await self._depart(record)
            return LiveNow(LiveState.SWITCHED)
        if progress is not None:
            return LiveNow(LiveState.RUNNING, progress)
        if transfer is not None and transfer.sending:
            return LiveNow(LiveState.RUNNING)
        if is_between(state, reason):
            at_destination = await carrier.ask(
                MigrationAddress.of(record.leaving), LIVE_STATE, server, record.leaving_by, None, LiveNow
            )
            if at_destination.state is LiveState.ARRIVED:
                await self._link.ask(partial(self._undefine, server=server), limit_s=DESTROY_S)
                await self._depart(record)
                return LiveNow(LiveState.SWITCHED)
            record.held = True
        if record.held and await self._power(server) is PowerState.PAUSED:
            await self._ask(server, lambda domain: domain.resume())
        record.leaving, record.held = None, False
        self._records.keep(record)
        return LiveNow(LiveState.NONE)

    async def _depart(self, record: GuestRecord) -> None:
        """Record that the guest has left; its disks stay."""
        if record.departed:
            return
        record.departed, record.held = True, False
        self._records.keep(record)
        self._ours.discard(record.spec.server)
        async with self._wiring:
            await self._wires.unplug(record.spec.vifs)
        await self._unplug_what_is_unused()

    async def _in_thread(self, work: Callable[[Any], T]) -> T:
        """Call `work(connection)` with a connection and a thread of its own; the end of the process does not wait for it."""
        loop = asyncio.get_running_loop()
        ends: asyncio.Future[T] = loop.create_future()

        def answer(result: T | None, failure: BaseException | None) -> None:
            if ends.cancelled():
                return
            ends.set_result(result) if failure is None else ends.set_exception(failure)  # type: ignore[arg-type]

        def run() -> None:
            libvirt, result, failure = library(), None, None
            try:
                connection = libvirt.open(self._settings.uri)
                try:
                    result = work(connection)
                finally:
                    connection.close()
            except libvirt.libvirtError as refused:
                failure = HostFailed("Live Migration failure", private=str(refused), code="live_migration_failed")
            except Exception as other:  # noqa: BLE001 - a boundary: it is raised where it is waited for
                failure = other  # type: ignore[assignment]
            if not loop.is_closed():
                loop.call_soon_threadsafe(answer, result, failure)

        threading.Thread(target=run, name="live", daemon=True).start()
        return await ends


@contextmanager
def suppress_absent() -> Iterator[None]:
    """Of what is asked of a domain that may go meanwhile."""
    try:
        yield
    except HostFailed as failure:
        if failure.code != "guest_not_found":
            raise


def _seen_at_source(domain: Any) -> tuple[Any, int, int]:
    progress = counted(domain) if domain.isActive() else None
    state, reason = domain.state()
    return progress, state, reason


def _abort_job(domain: Any) -> None:
    """Abort a domain's job, if there is one that can be aborted: not before its start, after its end, or after the switch."""
    libvirt = library()
    try:
        domain.abortJob()
    except libvirt.libvirtError as not_now:
        if not_now.get_error_code() not in {libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_DOMAIN}:
            raise
