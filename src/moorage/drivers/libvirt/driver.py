"""Real guests on this machine (`moorage.drivers.driver` has the rules for all verbs).

libvirt is asked each time, so changes that an operator makes with `virsh` are seen; only domains with our mark are listed or changed.
Guests are QEMU processes, and keep running when the agent or libvirt's daemon stops.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from moorage.drivers.libvirt import host_facts, live_tls, machine_features
from moorage.drivers.libvirt.arriving import Arriving
from moorage.drivers.libvirt.carrier import Receiver
from moorage.drivers.libvirt.core import ACTIVE, COMMIT_AT_START_S, DESTROY_S, SAVE_S, Core
from moorage.drivers.libvirt.describing import Describing
from moorage.drivers.libvirt.domain_xml import seat_volumes
from moorage.drivers.libvirt.full_disks import FullDisks
from moorage.drivers.libvirt.guest_agent import GuestAgent
from moorage.drivers.libvirt.library import library
from moorage.drivers.libvirt.life import Life
from moorage.drivers.libvirt.link import DaemonLink
from moorage.drivers.libvirt.plugging import Plugging
from moorage.drivers.libvirt.port_wiring import TROUBLE_CHARACTERS_MAX, TROUBLES_MAX
from moorage.drivers.libvirt.power_states import go_on, power_from
from moorage.drivers.libvirt.qemu_access import UNPRIVILEGED_FAULTS
from moorage.drivers.libvirt.quotas import start_limited
from moorage.drivers.libvirt.records import GuestRecord
from moorage.drivers.libvirt.reported_devices import ReportedDevices
from moorage.drivers.libvirt.serving import Serving
from moorage.drivers.libvirt.snapshots import Snapshots
from moorage.drivers.libvirt.transfers import is_awaited
from moorage.model.errors import HostFailed, Invalid
from moorage.model.guest import GuestSpec, HostDescription, PowerState
from moorage.model.ids import ServerId

GUEST_NAMES = "guest-"
FIRST_ANSWER_S = 120.0
"""Limit of the first answer: a daemon that was just started inspects QEMU first."""

_log = logging.getLogger(__name__)


class LibvirtDriver(
    Arriving, Life, Plugging, Snapshots, GuestAgent, Describing, ReportedDevices, FullDisks, Serving, Core
):
    """See `driver.Driver`."""

    # ---- the driver ------------------------------------------------------------------------------------------------

    async def start(self, *, serving: bool = True) -> None:
        """Raises Invalid with what is missing on this machine, in one sentence. `serving` False: networks are left as they are."""
        self._closing = False
        self._link = DaemonLink(self._settings.uri)
        self._machine = await self._inspect()
        try:
            await asyncio.to_thread(self._records.open)
        except Invalid:
            self._link.close()
            raise
        await self._let_qemu_in(self._machine)
        await asyncio.to_thread(self._descriptions.load)
        self._serve_as(self._records.owner)
        self._cache = await asyncio.to_thread(_cache_mode, self._room)
        if self._settings.migration_address:
            await self._listen()
        _log.info("guests are made as %s on %s", self._machine.virt_type, self._machine.arch)
        for record in self._records.every().values():
            try:
                await self._settle_overlay(record, COMMIT_AT_START_S)
            except HostFailed as failure:
                _log.error("%s: a copy of its disk was cut off: %s", record.spec.server, failure.private)
        await self._prune_images()
        if not serving:
            return
        self._no_tls = await live_tls.why_none_arrive(self._settings)
        if self._no_tls:
            _log.error("no guest can arrive while it runs, for TLS of live migration does not work: %s", self._no_tls)
        if self._settings.live_post_copy and not self._access.may_fetch_memory():
            _log.error(
                "no guest runs before its memory has arrived: live_post_copy needs %s to be 1 here", UNPRIVILEGED_FAULTS
            )
        await self._thaw_what_is_still()
        await self._unplug_what_is_unused()
        self._begin_serving()
        self._begin_describing()
        self._begin_resuming()

    async def _inspect(self) -> host_facts.MachineFacts:
        """Inspect the machine. Raises Invalid with everything that is missing."""
        lacking = await asyncio.to_thread(host_facts.lacking, self._settings)
        machine: host_facts.MachineFacts | None = None
        try:
            machine = await self._link.ask(
                lambda found: host_facts.inspect_machine(found, self._settings), limit_s=FIRST_ANSWER_S
            )
        except (HostFailed, Invalid) as failure:
            self._link.close()
            if isinstance(failure, Invalid):
                lacking.append(failure.public)
                if host_facts.has_no_socket(self._settings):
                    lacking.append(host_facts.no_daemon(self._settings, "no socket of it is there"))
            elif failure.code in {"hypervisor_out", "hypervisor_slow"}:
                lacking.append(host_facts.no_daemon(self._settings, failure.private))
            else:
                raise
        if lacking or machine is None:
            self._link.close()
            raise Invalid(f"this machine cannot run guests: it lacks {', and '.join(lacking)}")
        return machine

    async def _let_qemu_in(self, machine: host_facts.MachineFacts) -> None:
        """Raises Invalid when QEMU's user cannot come to the host's directory."""
        self._access.user = machine.qemu_user
        closed = await asyncio.to_thread(self._access.open_way, self._room)
        if closed is not None:
            await self.close()
            hint = f"chmod o+x {closed}, or another directory as [libvirt] instances_path"
            raise Invalid(f"this machine cannot run guests: {self._access.why(closed)} ({hint})")

    async def _listen(self) -> None:
        """Listen for other hosts. Raises Invalid when the address cannot be used."""
        settings, receiver = self._settings, Receiver(self._room, self)
        try:
            await receiver.open(settings.migration_address, settings.migration_port)
        except OSError as taken:
            await self.close()
            where = f"{settings.migration_address}:{settings.migration_port}"
            raise Invalid(f"other hosts cannot send guests to {where}: {taken}") from taken
        self._receiver = receiver

    async def close(self) -> None:
        """Close the driver; live migrations continue, because libvirt sends them."""
        self._closing = True
        tasks = [each for one in self._transfers.values() for each in (one.task, one.forcing) if each is not None]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._transfers.clear()
        await self._end_describing()
        await self._end_resuming()
        await self._end_serving()
        if self._receiver is not None:
            await self._receiver.close()
            self._receiver = None
        self._link.close()
        self._records.close()

    @property
    def room(self) -> Path:
        """The directory with everything that it keeps of its guests."""
        return self._room

    async def clean(self) -> None:
        """What was made for guests that are gone: devices, servers of networks. Nothing is left of them."""
        await self._end_describing()
        await self._end_serving()
        self._descriptions.forget()
        async with self._wiring:
            await self._serve_networks(nobody=True)

    async def describe(self) -> HostDescription:
        assert self._machine is not None
        machine = await asyncio.to_thread(
            host_facts.describe, self._machine, self._settings, self._hostname, self._room, self._physical_networks
        )
        troubles = (*self._wires.not_wired, *self._services.not_routed)
        return msgspec.structs.replace(
            machine,
            set_aside=self._records.set_aside,
            takes_descriptions=self._settings.port_filter,
            not_wired=tuple(each[:TROUBLE_CHARACTERS_MAX] for each in troubles[:TROUBLES_MAX]),
        )

    async def guests(self) -> Mapping[ServerId, PowerState]:
        """Return all guests with one call; a record without a domain is a guest that is off."""
        states = await self._link.query(self._list)
        for server, record in self._records.every().items():
            power, awaited = states.get(server, (PowerState.SHUTDOWN, True))
            if record.incoming and not awaited:
                self._arrive(record)
            elif record.incoming:
                states[server] = PowerState.PAUSED, True
            elif record.departed or (record.leaving is not None and server not in states):
                states.pop(server, None)  # it has left
            else:
                states[server] = power, False
        return {server: power for server, (power, _) in states.items()}

    def _list(self, connection: Any) -> dict[ServerId, tuple[PowerState, bool]]:
        """Our domains, and whether each is only a place for an arriving guest."""
        libvirt = library()
        stats = connection.getAllDomainStats(
            libvirt.VIR_DOMAIN_STATS_STATE, libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
        )
        found: dict[ServerId, tuple[PowerState, bool]] = {}
        for domain, statistics in stats:
            try:
                if domain.name().startswith(GUEST_NAMES) and self._is_ours(domain):
                    state, reason = statistics["state.state"], statistics["state.reason"]
                    power = power_from(domain, state, reason)
                    found[ServerId(domain.UUIDString())] = power, is_awaited(domain, state, reason)
            except libvirt.libvirtError as failure:
                if failure.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:  # else it went meanwhile
                    raise
        return found

    async def start_guest(self, spec: GuestSpec) -> PowerState:
        server = spec.server
        self._records.directory(server)  # refuses an id that is none before anything is made
        async with self._alone(server):
            bare = msgspec.structs.replace(spec, drive=None)
            record = self._records.find(server)
            if record is not None and record.departed:
                await asyncio.to_thread(self._records.forget, server)
                record = None
            if record is not None and record.incoming:
                record = self._records.of(server)
            if record is None or not record.made:
                if not spec.existed:
                    assert self._machine is not None
                    machine_features.refuse_unmade(spec, self._machine)
                record = GuestRecord(bare)
                await self._make(record, spec.drive)
            elif await self._power(server) not in ACTIVE:
                record.spec = bare
                self._keep_drive(record, spec.drive)
                seat_volumes(record)
                self._records.keep(record)
            power = await self._power(server)
            if not spec.power_on or power is PowerState.RUNNING:
                return power
            return await self._ensure_running(record, power)

    async def _ensure_running(self, record: GuestRecord, power: PowerState) -> PowerState:
        """However it stands, it runs afterwards. Raises HostFailed when it has left: it would run twice."""
        server = record.spec.server
        if record.leaving is not None and power not in ACTIVE:
            await self._stands_at_source(record)
            self._records.of(server)
        if power is PowerState.PAUSED:
            await self._ask(server, go_on)
            await self._goes_on(record)
        elif power is PowerState.SUSPENDED:
            await self._plug_as_saved(record)
            await self._ask(server, start_limited, SAVE_S)
            if await self._power(server) is PowerState.PAUSED:  # it stood still when it was saved
                await self._ask(server, go_on)
            await self._goes_on(record)
        elif power is not PowerState.RUNNING:
            return await self._switch_on(record)
        return await self._power(server)

    async def _goes_on(self, record: GuestRecord) -> None:
        """What could not be done while it stood still."""
        if record.paused:
            record.paused = False
            self._records.keep(record)
        await self._thaw_if_still(record)
        await self._take_out_unreleased(record)

    async def destroy_guest(self, server: ServerId) -> None:
        async with self._alone(server):
            try:
                self._records.directory(server)
            except HostFailed:
                return  # not an id that a guest of ours can have
            transfer = self._transfers.pop(server, None)
            if transfer is not None and transfer.task is not None and not transfer.agreed:
                transfer.task.cancel()
            await self._link.ask(lambda connection: self._undefine(connection, server), limit_s=DESTROY_S)
            self._ours.discard(server)
            record = self._records.every().get(server)  # also of one that is set aside: this is what remains to be done
            if record is not None and record.frozen_for:
                await self._end_thawing(record)
            if record is not None and not record.departed:
                async with self._wiring:
                    await self._wires.unplug(record.spec.vifs)
            await asyncio.to_thread(self._records.forget, server)
            await asyncio.to_thread(self._drop_arriving, server)
            await self._unplug_what_is_unused()
            await self._prune_images()

    async def power_on(self, server: ServerId) -> PowerState:
        async with self._alone(server):
            record = self._records.of(server)
            return await self._ensure_running(record, await self._power(server))

    async def power_off(self, server: ServerId, graceful_s: float) -> PowerState:
        async with self._alone(server):
            return await self._shut_down(server, graceful_s)

    async def reboot(self, server: ServerId, *, hard: bool) -> PowerState:
        async with self._alone(server):
            record = self._records.of(server)
            if hard:
                record.rescue = None
                await self._switch_off(server)
            else:
                await self._active(server)
                await self._shut_down(server, self._settings.soft_reboot_s)
            return await self._ensure_running(record, PowerState.SHUTDOWN)

    # ---- pausing and saving ----------------------------------------------------------------------------------------

    async def pause(self, server: ServerId) -> PowerState:
        async with self._alone(server):
            power, record = await self._active(server), self._records.of(server)
            record.paused = True  # first: nobody lets it go on from now on
            self._records.keep(record)
            if power is PowerState.RUNNING:
                await self._ask(server, lambda domain: domain.suspend())
            return await self._power(server)

    async def unpause(self, server: ServerId) -> PowerState:
        async with self._alone(server):
            if await self._active(server) is PowerState.PAUSED:
                await self._ask(server, go_on)
                await self._goes_on(self._records.of(server))
            return await self._power(server)

    async def suspend(self, server: ServerId) -> PowerState:
        """Save the guest's memory to disk, which frees its memory on this host."""
        async with self._alone(server):
            if await self._power(server) is not PowerState.SUSPENDED:
                await self._active(server)
                await self._settle_overlay(self._records.of(server))  # its saved state would name the overlay
                await self._ask(server, lambda domain: domain.managedSave(0), SAVE_S)
            return await self._power(server)

    async def resume(self, server: ServerId) -> PowerState:
        async with self._alone(server):
            record = self._records.of(server)
            return await self._ensure_running(record, await self._power(server))


def _cache_mode(room: Path) -> str:
    """QEMU's cache mode: without the machine's page cache if the file system supports it, so that a second host sees what was written."""
    probe = room / ".direct"
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600))
    except OSError:
        return "writeback"
    finally:
        probe.unlink(missing_ok=True)
    return "none"
