"""A simulated hypervisor in a directory: guests are files, so they "keep running" when the whole cloud is killed, and are found again.

    <host's directory>/
        guests/<server>.json        one guest: its spec, its power state, its console (drivers/simulated_records.py)
        disks/, snapshots/          their data (drivers/simulated_disks.py)
        arriving/, left/, departed/ guests on their way between hosts (drivers/simulated_moves.py, simulated_live.py)
        set-aside/                  records that could not be read: an operator examines and removes them
        config-drives/<server>.iso  its config drive, if it has one
        rescue-drives/<server>.iso  its config drive during a rescue
        dials.json                  optional; the simulated faults (drivers/fault_injection.py)

Files are replaced atomically, so a kill at any moment leaves the old guest or the new one; a new small file is written in one call, and
an empty file counts as no guest.  Files are not synced: they survive the end of every process, but not a loss of power.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from typing_extensions import override

from moorage.drivers.config_drive import build
from moorage.drivers.fault_injection import ANY, HONEST, FaultCounter, FaultSettings
from moorage.drivers.simulated_attachments import SimulatedAttachments, refuse_encrypted
from moorage.drivers.simulated_chains import SimulatedChains
from moorage.drivers.simulated_config_drives import DriveFiles
from moorage.drivers.simulated_consoles import SimulatedConsoles
from moorage.drivers.simulated_description import described
from moorage.drivers.simulated_disks import WRITTEN_MAX_BYTES, SimulatedDisks
from moorage.drivers.simulated_faults import SimulatedFaults
from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.drivers.simulated_life import SimulatedLife
from moorage.drivers.simulated_live import SimulatedLive
from moorage.drivers.simulated_moves import SimulatedMoves
from moorage.drivers.simulated_quiesce import SimulatedFreezing
from moorage.drivers.simulated_records import GuestRecords
from moorage.drivers.simulated_snapshots import SimulatedSnapshots
from moorage.drivers.simulated_transfer import SimulatedTransfer
from moorage.model.clock import Clock
from moorage.model.console import ConsoleSocket
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, HostDescription, PowerState
from moorage.model.guest_devices import GuestDevices, devices_of
from moorage.model.ids import ServerId
from moorage.model.image import ImageStore
from moorage.model.instance_metadata import InstanceMetadata

_log = logging.getLogger(__name__)

DRIVES = "config-drives"
RESCUE_DRIVES = "rescue-drives"
WITH_CONSOLES = frozenset({PowerState.RUNNING, PowerState.PAUSED})


class SimulatedDriver(
    SimulatedLife,
    SimulatedAttachments,
    SimulatedSnapshots,
    SimulatedChains,
    SimulatedFreezing,
    SimulatedMoves,
    SimulatedLive,
):
    """A simulated driver (see `driver.Driver`) with all optional abilities."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        dials: FaultSettings | None = None,
        *,
        hostname: str = "",
        images: ImageStore | None = None,
    ) -> None:
        """`images`: access to the image service; None: disks have invented data, and no snapshot can be uploaded."""
        self._room = directory
        self._records = GuestRecords(directory)
        self._disks = SimulatedDisks(directory, images)
        self._clock = clock
        self._hostname = hostname or directory.name
        self._faults = SimulatedFaults(directory / "dials.json", clock, dials or FaultSettings())
        self._guests: dict[ServerId, SimulatedGuest] = {}
        self._set_aside: tuple[str, ...] = ()
        self._drives = DriveFiles(directory / DRIVES)
        self._rescue_drives = DriveFiles(directory / RESCUE_DRIVES)
        self._consoles = SimulatedConsoles()
        self._up_since = 0
        self._transfers: dict[ServerId, SimulatedTransfer] = {}
        self._awaited: dict[ServerId, str] = {}
        self._departed: dict[ServerId, str] = {}
        self._states: dict[ServerId, PowerState] | None = None  # made when asked for, and only after a change
        self._devices: dict[ServerId, GuestDevices] = {}
        self._devices_of: dict[ServerId, PowerState] | None = None  # the states with which they were made

    # ---- the driver ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._up_since = int(self._clock.now() * 1_000_000)
        self._load()

    def _load(self) -> None:
        self._guests.update(self._records.load())
        self._load_live()
        self._drives.tidy(self._guests)
        self._rescue_drives.tidy(self._guests)
        self._states = None
        self._set_aside = self._records.set_aside()

    async def close(self) -> None:
        await self._end_transfers()
        self._consoles.close()
        self._guests.clear()
        self._states = None

    async def describe(self) -> HostDescription:
        return described(self._turned().dials, self._hostname, self._set_aside, self._up_since)

    async def guests(self) -> Mapping[ServerId, PowerState]:
        self._turned()
        if self._states is None:
            self._states = {server: guest.power for server, guest in self._guests.items()}
        return self._states

    async def known_devices(self) -> Mapping[ServerId, GuestDevices]:
        states = await self.guests()
        if self._devices_of is not states:
            now = {server: devices_of(guest.spec) for server, guest in self._guests.items() if not guest.incoming}
            self._devices = self._devices if now == self._devices else now
            self._devices_of = self._states
        return self._devices

    async def guest_devices(self) -> Mapping[ServerId, GuestDevices]:
        return await self.known_devices()

    async def start_guest(self, spec: GuestSpec) -> PowerState:
        async with self._trouble("start_guest"):
            guest = self._guests.get(spec.server)
            if guest is None:
                self._refuse_beyond_truth(spec)
                refuse_encrypted(spec.volumes)
                formats = await self._disks.make(spec)
                guest = SimulatedGuest(spec, PowerState.SHUTDOWN, formats=formats)
            spec = self._keep_drive(spec)
            if guest.power is not PowerState.RUNNING and spec.power_on:
                self._boot(guest)
            guest.spec = spec
            return self._keep(guest)

    async def destroy_guest(self, server: ServerId) -> None:
        async with self._trouble("destroy_guest"):
            await self._forget_live(server)
            self._remove(server)
            self._disks.remove(server)
            self._drop_arriving(server)

    async def power_on(self, server: ServerId) -> PowerState:
        async with self._trouble("power_on"):
            guest = self._of(server)
            if guest.power is not PowerState.RUNNING:
                self._boot(guest)
            return self._keep(guest)

    async def power_off(self, server: ServerId, graceful_s: float) -> PowerState:
        async with self._trouble("power_off"):
            guest = self._of(server)
            if guest.power is PowerState.RUNNING:
                await self._shut_down(guest, graceful_s)
            return self._become(server, PowerState.SHUTDOWN)

    async def reboot(self, server: ServerId, *, hard: bool) -> PowerState:
        """Reboot a guest. Raises HostFailed when it is not running."""
        async with self._trouble("reboot"):
            guest = self._of(server)
            if not hard and guest.power is not PowerState.RUNNING:
                raise HostFailed(
                    "the guest is not running", private=f"{server} is {guest.power.name}", code="guest_not_running"
                )
            if hard:
                guest.rescue = None
            self._boot(guest)
            return self._keep(guest)

    # ---- optional powers ---------------------------------------------------------------------------------------------

    async def pause(self, server: ServerId) -> PowerState:
        async with self._trouble("pause"):
            return self._become(server, PowerState.PAUSED)

    async def unpause(self, server: ServerId) -> PowerState:
        async with self._trouble("unpause"):
            return self._become(server, PowerState.RUNNING)

    async def suspend(self, server: ServerId) -> PowerState:
        async with self._trouble("suspend"):
            return self._become(server, PowerState.SUSPENDED)

    async def resume(self, server: ServerId) -> PowerState:
        async with self._trouble("resume"):
            return self._become(server, PowerState.RUNNING)

    async def console_output(self, server: ServerId, lines: int | None) -> str:
        async with self._trouble("console_output") as knob:
            written = self._of(server).console + knob.dials.console
            return (
                written if lines is None else "".join(written.splitlines(keepends=True)[-lines:] if lines > 0 else [])
            )

    async def get_console(self, server: ServerId, kind: str) -> ConsoleSocket:
        """Return the address of a guest's console.

        Raises HostFailed when the guest is not running, or has no such console.
        """
        async with self._trouble("get_console") as knob:
            guest = self._of(server)
            if guest.power not in WITH_CONSOLES:
                raise HostFailed("the guest is not running", private=server, code="guest_not_running")
            if kind not in knob.dials.console_types:
                raise HostFailed("the guest has no such console", private=kind, code="console_unavailable")
            spec = guest.spec
            return await self._consoles.socket(server, kind, spec.name, lambda: self._of(server).console)

    # ---- only the simulated one --------------------------------------------------------------------------------------

    @property
    def dials(self) -> FaultSettings:
        """The dials that the process has set, without those of `dials.json`, which override them."""
        return self._faults.own

    def turn(self, dials: FaultSettings) -> None:
        """Set the dials from inside the process, for tests; `dials.json` still overrides them."""
        self._faults.turn(dials)

    def crash_host(self) -> None:
        """Simulate a loss of power: all guests are off, and places for arriving guests are gone."""
        self._lose_places()
        for guest in self._guests.values():
            guest.power = PowerState.SHUTDOWN
            self._keep(guest)

    def hanging(self, verb: str) -> int:
        """Return how many calls of this verb hang now."""
        return self._faults.hanging[verb]

    def write_disk(self, server: ServerId, text: str) -> None:
        """Write to the guest's disk, like a program in the guest."""
        guest = self._of(server)
        guest.written = (guest.written + text)[:WRITTEN_MAX_BYTES]
        self._keep(guest)

    def disk_of(self, server: ServerId) -> bytes:
        """Return the contents of the guest's disk."""
        guest = self._of(server)
        return self._disks.read(server, guest.spec.image, guest.written)

    def silences(self, server: ServerId) -> tuple[float, ...]:
        """Return how long the guest was paused in each of its live migrations."""
        return self._of(server).silences

    def power_of(self, server: ServerId) -> PowerState:
        self._see_arrivals()
        guest = self._guests.get(server)
        return guest.power if guest else PowerState.NOSTATE

    def spec_of(self, server: ServerId) -> GuestSpec:
        return self._of(server).spec

    def config_drive(self, server: ServerId) -> bytes | None:
        """Return the guest's config drive; None: it has none."""
        guest = self._guests.get(server)
        rescue = None if guest is None or guest.rescue is None else self._rescue_drives.read(server)
        return self._drives.read(server) if rescue is None else rescue

    @override
    def _keep_drive(self, spec: GuestSpec) -> GuestSpec:
        if spec.drive is None:
            return spec
        self._drives.keep(spec.server, build(spec.drive))
        return msgspec.structs.replace(spec, drive=None)

    @override
    def _keep_rescue_drive(self, server: ServerId, drive: InstanceMetadata) -> None:
        self._rescue_drives.keep(server, build(drive))

    @override
    def _remove(self, server: ServerId) -> None:
        self._records.drop(server)
        self._drives.drop(server)
        self._rescue_drives.drop(server)
        self._consoles.close_of(server)
        self._guests.pop(server, None)
        self._states = None

    # ---- guests as files ---------------------------------------------------------------------------------------------

    @override
    def _of(self, server: ServerId) -> SimulatedGuest:
        guest = self._guests.get(server)
        if guest is None:
            raise HostFailed("the host has no such guest", private=server, code="guest_not_found")
        return guest

    @override
    def _keep(self, guest: SimulatedGuest) -> PowerState:
        server = guest.spec.server
        self._records.write(guest, new=server not in self._guests)
        self._guests[server] = guest
        self._states = None
        if guest.power not in WITH_CONSOLES:
            self._consoles.close_of(server)
        return guest.power

    def _become(self, server: ServerId, power: PowerState) -> PowerState:
        guest = self._of(server)
        guest.power = power
        return self._keep(guest)

    @override
    def _refuse_beyond_truth(self, spec: GuestSpec) -> None:
        """Refuse a guest if the host's real capacity is less than reported and is used up."""
        truth = self._faults.knob.dials.really
        if truth == HONEST:
            return
        others = [guest.spec for guest in self._guests.values() if guest.spec.server != spec.server]
        for has, needs, used, what in (
            (truth.vcpus, spec.vcpus, sum(each.vcpus for each in others), "VCPU"),
            (truth.ram_mib, spec.ram_mib, sum(each.ram_mib for each in others), "MiB of RAM"),
            (truth.disk_gib, spec.root_gib, sum(each.root_gib for each in others), "GiB of disk"),
        ):
            if has is not None and used + needs > has:
                raise HostFailed(
                    "the host is full", private=f"{needs} {what} asked, {used} of {has} used", code="host_full"
                )

    # ---- what a guest writes -------------------------------------------------------------------------------------------

    def _boot(self, guest: SimulatedGuest) -> None:
        guest.boot(self._clock.now())

    @override
    async def _shut_down(self, guest: SimulatedGuest, graceful_s: float) -> None:
        """The guest's own part of it: one that is deaf takes all the time it is given."""
        if self._faults.knob.dials.deaf:
            await self._clock.sleep(graceful_s)
            return
        guest.write("The system is going down.\n[  OK  ] Reached target Power-Off.\n")

    # ---- dials -----------------------------------------------------------------------------------------------------------

    @override
    def _turned(self) -> FaultCounter:
        """The present dials; the file is only read when it has changed."""
        if self._faults.read():
            self._crash_some()
        if self._awaited:
            self._see_arrivals()
        return self._faults.knob

    def _crash_some(self) -> None:
        for server in self._faults.knob.dials.crash:
            for each in list(self._guests) if server == ANY else [ServerId(server)]:
                if each in self._guests:
                    self._become(each, PowerState.CRASHED)

    @override
    @asynccontextmanager
    async def _trouble(self, verb: str) -> AsyncIterator[FaultCounter]:
        """Wrap a verb: add its delay, and its failure before or after the effect."""
        self._turned()
        async with self._faults.around(verb) as knob:
            yield knob
