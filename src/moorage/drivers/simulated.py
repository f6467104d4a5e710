"""A hypervisor in a directory: guests are files, so they go on "running" when the whole cloud is killed, and are found again.

    <host's directory>/
        guests/<server>.json        one guest: its spec, its power state, what it wrote to its console
        disks/, snapshots/          their data (drivers/simulated_disks.py)
        arriving/, left/, departed/ guests on their way between hosts (drivers/simulated_moves.py, simulated_live.py)
        set-aside/                  records that could not be read: an operator looks at them, and removes them
        config-drives/<server>.iso  what its config drive says, where it has one
        rescue-drives/<server>.iso  the same while it is rescued
        dials.json                  optional; what goes wrong (drivers/fault_injection.py)

Files are replaced whole, so a kill at any moment leaves the old guest or the new one; a first small one is written at once, and
an empty file is no guest.  They are not synced: they outlive every process,
not a loss of power.
"""

import asyncio
import logging
import os
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from typing_extensions import override

from moorage.drivers.config_drive import build
from moorage.drivers.fault_injection import ANY, HONEST, FaultCounter, FaultSettings, read_dials
from moorage.drivers.simulated_chains import SimulatedChains
from moorage.drivers.simulated_config_drives import DriveFiles
from moorage.drivers.simulated_consoles import SimulatedConsoles
from moorage.drivers.simulated_disks import WRITTEN_MAX_BYTES, SimulatedDisks
from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.drivers.simulated_life import SimulatedLife
from moorage.drivers.simulated_live import SimulatedLive, Transfer, cpu_info
from moorage.drivers.simulated_moves import SimulatedMoves
from moorage.drivers.simulated_quiesce import SimulatedFreezing
from moorage.model.clock import Clock
from moorage.model.console import ConsoleSocket
from moorage.model.errors import HostFailed
from moorage.model.guest import (
    GuestSpec,
    HostDescription,
    PowerState,
    Quiesce,
    ResourceInventory,
    VifData,
    VolumeDisk,
)
from moorage.model.ids import ImageId, ServerId
from moorage.model.image import ImageStore
from moorage.model.instance_metadata import InstanceMetadata
from moorage.model.private_files import private_directory

_log = logging.getLogger(__name__)

ONE_WRITE_BYTES = 4096
"""A write of a page or less is done or not done when a process is killed."""

DRIVES = "config-drives"
RESCUE_DRIVES = "rescue-drives"
WITH_CONSOLES = frozenset({PowerState.RUNNING, PowerState.PAUSED})
SET_ASIDE = "set-aside"
SET_ASIDE_SAID_MAX = 100

TRAITS = (
    "COMPUTE_DEVICE_TAGGING",
    "COMPUTE_IMAGE_TYPE_QCOW2",
    "COMPUTE_IMAGE_TYPE_RAW",
    "COMPUTE_NET_ATTACH_INTERFACE",
    "COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG",
    "COMPUTE_NODE",
    "COMPUTE_RESCUE_BFV",
    "COMPUTE_VOLUME_ATTACH_WITH_TAG",
)


class SimulatedDriver(SimulatedLife, SimulatedChains, SimulatedFreezing, SimulatedMoves, SimulatedLive):
    """See `driver.Driver`; it has all the optional powers too."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        dials: FaultSettings | None = None,
        *,
        hostname: str = "",
        images: ImageStore | None = None,
    ) -> None:
        """`images`: the way to the image service; None: disks are made up, and no snapshot can be sent."""
        self._room = directory
        self._disks = SimulatedDisks(directory, images)
        self._clock = clock
        self._hostname = hostname or directory.name
        self._own = dials or FaultSettings()
        self._knob = FaultCounter(self._own)
        self._dials_seen: tuple[int, int] | None = None
        self._guests: dict[ServerId, SimulatedGuest] = {}
        self._set_aside: tuple[str, ...] = ()
        self._hanging: Counter[str] = Counter()
        self._drives = DriveFiles(directory / DRIVES)
        self._rescue_drives = DriveFiles(directory / RESCUE_DRIVES)
        self._consoles = SimulatedConsoles()
        self._up_since = 0
        self._transfers: dict[ServerId, Transfer] = {}
        self._awaited: dict[ServerId, str] = {}
        self._departed: dict[ServerId, str] = {}
        self._states: dict[ServerId, PowerState] | None = None  # made when asked for, and only after a change

    # ---- the driver ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._up_since = int(self._clock.now() * 1_000_000)
        self._load()

    def _load(self) -> None:
        private_directory(self._guests_room())
        for file in sorted(self._guests_room().glob("*.json")):
            if (
                not file.stat().st_size
            ):  # killed between making the file and writing it: that guest was never answered for
                file.unlink()
                continue
            try:
                guest = msgspec.json.decode(file.read_bytes(), type=SimulatedGuest)
            except (msgspec.MsgspecError, OSError) as unreadable:
                self._put_aside(file, unreadable)
                continue
            self._guests[guest.spec.server] = guest
        self._load_live()
        self._drives.tidy(self._guests)
        self._rescue_drives.tidy(self._guests)
        self._states = None
        room = self._room / SET_ASIDE
        self._set_aside = (
            tuple(sorted(each.name for each in room.iterdir()))[:SET_ASIDE_SAID_MAX] if room.is_dir() else ()
        )

    def _put_aside(self, file: Path, unreadable: Exception) -> None:
        """One record that cannot be read stops neither the host nor its other guests; it is kept for whoever can mend it."""
        room = self._room / SET_ASIDE
        try:
            private_directory(room)
            names = (file.name, *(f"{file.name}.{number}" for number in range(1, SET_ASIDE_SAID_MAX)))
            os.replace(file, next((room / each for each in names if not (room / each).exists()), room / names[-1]))
        except OSError as failure:
            _log.error("%s cannot be read (%s), nor be put aside: %s", file, unreadable, failure)
        else:
            _log.error("%s cannot be read and was put aside in %s: %s", file, room, unreadable)

    async def close(self) -> None:
        await self._end_transfers()
        self._consoles.close()
        self._guests.clear()
        self._states = None

    async def describe(self) -> HostDescription:
        dials = self._turned().dials
        return HostDescription(
            inventory={
                "VCPU": ResourceInventory(dials.vcpus, dials.reserved_vcpus, dials.vcpu_ratio, max_unit=dials.vcpus),
                "MEMORY_MB": ResourceInventory(
                    dials.ram_mib, dials.reserved_ram_mib, dials.ram_ratio, max_unit=dials.ram_mib
                ),
                "DISK_GB": ResourceInventory(
                    dials.disk_gib, dials.reserved_disk_gib, dials.disk_ratio, max_unit=dials.disk_gib
                ),
            },
            traits=tuple(sorted({*TRAITS, *dials.traits} - set(dials.without_traits))),
            physical_networks=dials.physical_networks,
            hypervisor_type="simulated",
            hypervisor_version=dials.hypervisor_version,
            hypervisor_hostname=self._hostname,
            cpu_info=cpu_info(dials),
            address="127.0.0.1",
            physical_functions=dials.physical_functions,
            set_aside=self._set_aside,
            up_since=self._up_since,
        )

    async def guests(self) -> Mapping[ServerId, PowerState]:
        self._turned()
        if self._states is None:
            self._states = {server: guest.power for server, guest in self._guests.items()}
        return self._states

    async def start_guest(self, spec: GuestSpec) -> PowerState:
        async with self._trouble("start_guest"):
            guest = self._guests.get(spec.server)
            if guest is None:
                self._refuse_beyond_truth(spec)
                formats = await self._disks.make(spec.server, spec.image, spec.root_gib)
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
                guest.write("The system is going down.\n[  OK  ] Reached target Power-Off.\n")
            return self._become(server, PowerState.SHUTDOWN)

    async def reboot(self, server: ServerId, *, hard: bool) -> PowerState:
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
        async with self._trouble("get_console") as knob:
            guest = self._of(server)
            if guest.power not in WITH_CONSOLES:
                raise HostFailed("the guest is not running", private=server, code="guest_not_running")
            if kind not in knob.dials.console_types:
                raise HostFailed("the guest has no such console", private=kind, code="console_unavailable")
            spec = guest.spec
            return await self._consoles.socket(server, kind, spec.name, lambda: self._of(server).console)

    async def attach_interface(self, server: ServerId, vif: VifData) -> PowerState:
        async with self._trouble("attach_interface"):
            spec = self._of(server).spec
            others = tuple(each for each in spec.vifs if each.port != vif.port)
            return self._respec(server, msgspec.structs.replace(spec, vifs=(*others, vif)))

    async def detach_interface(self, server: ServerId, port: str) -> PowerState:
        async with self._trouble("detach_interface"):
            spec = self._of(server).spec
            return self._respec(
                server, msgspec.structs.replace(spec, vifs=tuple(each for each in spec.vifs if each.port != port))
            )

    async def attach_volume(self, server: ServerId, disk: VolumeDisk) -> PowerState:
        async with self._trouble("attach_volume"):
            spec = self._of(server).spec
            others = tuple(each for each in spec.volumes if each.volume != disk.volume)
            return self._respec(server, msgspec.structs.replace(spec, volumes=(*others, disk)))

    async def detach_volume(self, server: ServerId, volume: str) -> PowerState:
        async with self._trouble("detach_volume"):
            spec = self._of(server).spec
            return self._respec(
                server,
                msgspec.structs.replace(spec, volumes=tuple(each for each in spec.volumes if each.volume != volume)),
            )

    async def take_snapshot(self, server: ServerId, image: ImageId, quiesce: Quiesce) -> PowerState:
        async with self._trouble("take_snapshot"):
            guest = self._of(server)
            if guest.snapshot == image:
                return guest.power
            await self._quiesce(guest, quiesce)
            await self._disks.copy(server, guest.spec.image, guest.written)
            guest.snapshot = image
            return self._keep(guest)

    async def _quiesce(self, guest: SimulatedGuest, quiesce: Quiesce) -> None:
        """A simulated guest is still at once; the dial of `quiesce` says that it has no agent, or a slow one."""
        if quiesce is Quiesce.NO or guest.power is not PowerState.RUNNING:
            return
        try:
            async with self._trouble("quiesce"):
                return
        except HostFailed as failed:
            if quiesce is Quiesce.MUST:
                raise HostFailed(
                    "the guest cannot be quiesced", private=failed.private, code="quiesce_failed"
                ) from failed
            _log.info("%s was not quiesced: %s", guest.spec.server, failed)

    async def upload_snapshot(self, server: ServerId, image: ImageId) -> PowerState:
        async with self._trouble("upload_snapshot"):
            guest = self._of(server)
            if guest.snapshot != image:
                raise HostFailed("the host has no copy of this disk", private=image, code="no_snapshot")
            if self._disks.has_copy(server):  # else it was sent
                await self._disks.send(server, image, guest.formats)
                self._disks.drop_copy(server)
            return guest.power

    async def drop_snapshot(self, server: ServerId, image: ImageId) -> PowerState:
        async with self._trouble("drop_snapshot"):
            guest = self._guests.get(server)
            if guest is None or guest.snapshot != image:
                return PowerState.NOSTATE if guest is None else guest.power
            self._disks.drop_copy(server)
            guest.snapshot = None
            return self._keep(guest)

    async def swap_volume(self, server: ServerId, old: str, disk: VolumeDisk) -> PowerState:
        async with self._trouble("swap_volume"):
            spec = self._of(server).spec
            kept = tuple(each for each in spec.volumes if each.volume not in {old, disk.volume})
            if len(kept) == len(spec.volumes):
                raise HostFailed("the guest has no such volume", private=old, code="volume_not_found")
            return self._respec(server, msgspec.structs.replace(spec, volumes=(*kept, disk)))

    async def extend_volume(self, server: ServerId, volume: str, size_gib: int) -> PowerState:
        async with self._trouble("extend_volume"):
            spec = self._of(server).spec
            grown = tuple(
                msgspec.structs.replace(each, size_gib=size_gib) if each.volume == volume else each
                for each in spec.volumes
            )
            return self._respec(server, msgspec.structs.replace(spec, volumes=grown))

    async def volume_connector(self) -> dict[str, Any]:
        async with self._trouble("volume_connector"):
            return {
                "platform": "x86_64",
                "os_type": "linux",
                "ip": "127.0.0.1",
                "host": self._hostname,
                "multipath": False,
                "initiator": f"iqn.2026-11.org.moorage:{self._hostname}",
                "do_local_attach": False,
                "system uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, self._hostname)),
            }

    # ---- only the simulated one --------------------------------------------------------------------------------------

    @property
    def dials(self) -> FaultSettings:
        """As the process turned them, without what a `dials.json` lays over them."""
        return self._own

    def turn(self, dials: FaultSettings) -> None:
        """Turn the dials from inside the process, for tests; a `dials.json` still lies over them."""
        self._own, self._dials_seen = dials, None

    def crash_host(self) -> None:
        """The power fails and comes back: guests are there, and off; nothing waits any more for one that is sent here."""
        self._lose_places()
        for guest in self._guests.values():
            guest.power = PowerState.SHUTDOWN
            self._keep(guest)

    def hanging(self, verb: str) -> int:
        """How many of this verb hang now."""
        return self._hanging[verb]

    def write_disk(self, server: ServerId, text: str) -> None:
        """A program in the guest writes to its disk."""
        guest = self._of(server)
        guest.written = (guest.written + text)[:WRITTEN_MAX_BYTES]
        self._keep(guest)

    def disk_of(self, server: ServerId) -> bytes:
        """All that is on the guest's disk."""
        guest = self._of(server)
        return self._disks.read(server, guest.spec.image, guest.written)

    def silences(self, server: ServerId) -> tuple[float, ...]:
        """How long it stood still each time that it changed hosts while it ran."""
        return self._of(server).silences

    def power_of(self, server: ServerId) -> PowerState:
        self._see_arrivals()
        guest = self._guests.get(server)
        return guest.power if guest else PowerState.NOSTATE

    def spec_of(self, server: ServerId) -> GuestSpec:
        return self._of(server).spec

    def config_drive(self, server: ServerId) -> bytes | None:
        """The image that the guest would see; None: it has none."""
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
        self._file(server).unlink(missing_ok=True)
        self._drives.drop(server)
        self._rescue_drives.drop(server)
        self._consoles.close_of(server)
        self._guests.pop(server, None)
        self._states = None

    # ---- guests as files ---------------------------------------------------------------------------------------------

    def _guests_room(self) -> Path:
        return self._room / "guests"

    def _file(self, server: ServerId) -> Path:
        if not server or "/" in server or server.startswith("."):
            raise HostFailed("not a server's id", private=repr(server), code="guest_not_found")
        return self._guests_room() / f"{server}.json"

    @override
    def _of(self, server: ServerId) -> SimulatedGuest:
        guest = self._guests.get(server)
        if guest is None:
            raise HostFailed("the host has no such guest", private=server, code="guest_not_found")
        return guest

    @override
    def _keep(self, guest: SimulatedGuest) -> PowerState:
        server = guest.spec.server
        file = str(self._file(server))
        whole = msgspec.json.encode(guest)
        if server in self._guests or len(whole) > ONE_WRITE_BYTES:
            coming = f"{file}.new"
            self._write_file(coming, whole)
            os.replace(coming, file)
        else:
            self._write_file(file, whole)
        self._guests[server] = guest
        self._states = None
        if guest.power not in WITH_CONSOLES:
            self._consoles.close_of(server)
        return guest.power

    @staticmethod
    def _write_file(file: str, whole: bytes) -> None:
        made = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            if os.write(made, whole) != len(whole):
                raise HostFailed("the host's disk is full", private=file, code="host_full")
        finally:
            os.close(made)

    def _become(self, server: ServerId, power: PowerState) -> PowerState:
        guest = self._of(server)
        guest.power = power
        return self._keep(guest)

    def _respec(self, server: ServerId, spec: GuestSpec) -> PowerState:
        guest = self._of(server)
        guest.spec = spec
        return self._keep(guest)

    @override
    def _refuse_beyond_truth(self, spec: GuestSpec) -> None:
        """The host that lies: it has less than it reported."""
        truth = self._knob.dials.really
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

    # ---- dials -----------------------------------------------------------------------------------------------------------

    @override
    def _turned(self) -> FaultCounter:
        """The dials as they are now; the file is only looked at when it has changed."""
        file = self._room / "dials.json"
        try:
            status = os.stat(file)
            seen = (status.st_mtime_ns, status.st_size)
        except FileNotFoundError:
            seen = (0, 0)
        if seen != self._dials_seen:
            self._dials_seen = seen
            try:
                self._knob = FaultCounter(read_dials(file, self._own))
            except msgspec.MsgspecError as error:
                _log.error("%s is not a file of dials, they stay as they were: %s", file, error)
            self._crash_some()
        if self._awaited:
            self._see_arrivals()
        return self._knob

    def _crash_some(self) -> None:
        for server in self._knob.dials.crash:
            for each in list(self._guests) if server == ANY else [ServerId(server)]:
                if each in self._guests:
                    self._become(each, PowerState.CRASHED)

    @override
    @asynccontextmanager
    async def _trouble(self, verb: str) -> AsyncIterator[FaultCounter]:
        """Around each verb: the delay, and the failure before or after its effect."""
        knob = self._turned()
        dial = knob.of(verb)
        if dial is None:
            yield knob
            return
        if delay_s := knob.delay_s(dial):
            await self._clock.sleep(delay_s)
        fails = knob.fails(verb, dial)
        problem = HostFailed(dial.says, private=f"a dial of {verb}", code=dial.code)
        if fails and dial.hang == "before":
            await self._hang(verb)
        if fails and not dial.hang and dial.fail_when == "before":
            raise problem
        yield knob
        if fails and dial.hang == "after":
            await self._hang(verb)
        if fails and not dial.hang:
            raise problem

    async def _hang(self, verb: str) -> None:
        """Until somebody gives up."""
        self._hanging[verb] += 1
        try:
            await asyncio.Event().wait()
        finally:
            self._hanging[verb] -= 1
