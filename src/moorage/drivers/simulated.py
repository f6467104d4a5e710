"""A hypervisor in a directory: guests are files, so they go on "running" when the whole cloud is killed, and are found again.

    <host's directory>/
        guests/<server>.json     one guest: its spec, its power state, what it wrote to its console
        set-aside/               records that could not be read: an operator looks at them, and removes them
        dials.json               optional; what goes wrong (drivers/dials.py)

Files are replaced whole, so a kill at any moment leaves the old guest or the new one; a first small one is written at once, and
an empty file is no guest.  They are not synced: they outlive every process,
not a loss of power.
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from moorage.drivers.dials import ANY, HONEST, Dials, Knob, read_dials
from moorage.model.clock import Clock
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, HostDescription, PowerState, ResourceInventory, VifData, VolumeDisk
from moorage.model.ids import ServerId

_log = logging.getLogger(__name__)

MAX_CONSOLE_BYTES = 100_000
ONE_WRITE_BYTES = 4096
"""A write of a page or less is done or not done when a process is killed."""

SET_ASIDE = "set-aside"
SET_ASIDE_SAID_MAX = 100

TRAITS = (
    "COMPUTE_DEVICE_TAGGING",
    "COMPUTE_IMAGE_TYPE_QCOW2",
    "COMPUTE_IMAGE_TYPE_RAW",
    "COMPUTE_NET_ATTACH_INTERFACE",
    "COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG",
    "COMPUTE_NODE",
    "COMPUTE_VOLUME_ATTACH_WITH_TAG",
)


class SimulatedGuest(msgspec.Struct):
    """One file."""

    spec: GuestSpec
    power: PowerState
    console: str = ""
    boots: int = 0


class SimulatedDriver:
    """See `driver.Driver`; it has all the optional powers too."""

    def __init__(self, directory: Path, clock: Clock, dials: Dials | None = None, *, hostname: str = "") -> None:
        self._room = directory
        self._clock = clock
        self._hostname = hostname or directory.name
        self._own = dials or Dials()
        self._knob = Knob(self._own)
        self._dials_seen: tuple[int, int] | None = None
        self._guests: dict[ServerId, SimulatedGuest] = {}
        self._set_aside: tuple[str, ...] = ()
        self._hanging: Counter[str] = Counter()
        self._states: dict[ServerId, PowerState] | None = None  # made when asked for, and only after a change

    # ---- the driver ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._load()

    def _load(self) -> None:
        self._guests_room().mkdir(parents=True, exist_ok=True)
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
        self._states = None
        room = self._room / SET_ASIDE
        self._set_aside = (
            tuple(sorted(each.name for each in room.iterdir()))[:SET_ASIDE_SAID_MAX] if room.is_dir() else ()
        )

    def _put_aside(self, file: Path, unreadable: Exception) -> None:
        """One record that cannot be read stops neither the host nor its other guests; it is kept for whoever can mend it."""
        room = self._room / SET_ASIDE
        try:
            room.mkdir(exist_ok=True)
            names = (file.name, *(f"{file.name}.{number}" for number in range(1, SET_ASIDE_SAID_MAX)))
            os.replace(file, next((room / each for each in names if not (room / each).exists()), room / names[-1]))
        except OSError as failure:
            _log.error("%s cannot be read (%s), nor be put aside: %s", file, unreadable, failure)
        else:
            _log.error("%s cannot be read and was put aside in %s: %s", file, room, unreadable)

    async def close(self) -> None:
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
            hypervisor_version=1_000_000,
            hypervisor_hostname=self._hostname,
            cpu_info={"vendor": "Moorage", "model": "simulated", "arch": "x86_64"},
            address="127.0.0.1",
            physical_functions=dials.physical_functions,
            set_aside=self._set_aside,
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
                guest = SimulatedGuest(spec, PowerState.SHUTDOWN)
            if guest.power is not PowerState.RUNNING and spec.power_on:
                self._boot(guest)
            guest.spec = spec
            return self._keep(guest)

    async def destroy_guest(self, server: ServerId) -> None:
        async with self._trouble("destroy_guest"):
            self._file(server).unlink(missing_ok=True)
            self._guests.pop(server, None)
            self._states = None

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
                self._write(guest, "The system is going down.\n[  OK  ] Reached target Power-Off.\n")
            return self._become(server, PowerState.SHUTDOWN)

    async def reboot(self, server: ServerId, *, hard: bool) -> PowerState:
        async with self._trouble("reboot"):
            guest = self._of(server)
            if not hard and guest.power is not PowerState.RUNNING:
                raise HostFailed(
                    "the guest is not running", private=f"{server} is {guest.power.name}", code="guest_not_running"
                )
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

    # ---- only the simulated one --------------------------------------------------------------------------------------

    @property
    def dials(self) -> Dials:
        """As the process turned them, without what a `dials.json` lays over them."""
        return self._own

    def turn(self, dials: Dials) -> None:
        """Turn the dials from inside the process, for tests; a `dials.json` still lies over them."""
        self._own, self._dials_seen = dials, None

    def crash_host(self) -> None:
        """The power fails and comes back: guests are there, and off."""
        for guest in self._guests.values():
            guest.power = PowerState.SHUTDOWN
            self._keep(guest)

    def hanging(self, verb: str) -> int:
        """How many of this verb hang now."""
        return self._hanging[verb]

    def power_of(self, server: ServerId) -> PowerState:
        guest = self._guests.get(server)
        return guest.power if guest else PowerState.NOSTATE

    def spec_of(self, server: ServerId) -> GuestSpec:
        return self._of(server).spec

    # ---- guests as files ---------------------------------------------------------------------------------------------

    def _guests_room(self) -> Path:
        return self._room / "guests"

    def _file(self, server: ServerId) -> Path:
        if not server or "/" in server or server.startswith("."):
            raise HostFailed("not a server's id", private=repr(server), code="guest_not_found")
        return self._guests_room() / f"{server}.json"

    def _of(self, server: ServerId) -> SimulatedGuest:
        guest = self._guests.get(server)
        if guest is None:
            raise HostFailed("the host has no such guest", private=server, code="guest_not_found")
        return guest

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

    def _refuse_beyond_truth(self, spec: GuestSpec) -> None:
        """The host that lies: it has less than it reported."""
        truth = self._knob.dials.really
        if truth == HONEST:
            return
        others = [guest.spec for guest in self._guests.values()]
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
        guest.power = PowerState.RUNNING
        guest.boots += 1
        spec = guest.spec
        name = spec.hostname or spec.name
        nics = "".join(
            f"[    1.{place:06d}] virtio_net virtio{place}: {vif.mac} mtu {vif.mtu}"
            f" {', '.join(each.address for each in vif.addresses) or 'no address'}\n"
            for place, vif in enumerate(spec.vifs)
        )
        self._write(
            guest,
            f"[    0.000000] Linux version 6.12.0-moorage (simulated) #{guest.boots}\n"
            f"[    0.000000] Command line: root=LABEL=root ro console=ttyS0\n"
            f"[    0.004000] smpboot: Allowing {spec.vcpus} CPUs\n"
            f"[    0.008000] Memory: {spec.ram_mib * 1024}K available\n"
            f"{nics}[    2.000000] cloud-init: instance-id {spec.server}\n"
            f"\n{name} login: ",
        )

    @staticmethod
    def _write(guest: SimulatedGuest, text: str) -> None:
        guest.console = (guest.console + text)[-MAX_CONSOLE_BYTES:]

    # ---- dials -----------------------------------------------------------------------------------------------------------

    def _turned(self) -> Knob:
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
                self._knob = Knob(read_dials(file, self._own))
            except msgspec.MsgspecError as error:
                _log.error("%s is not a file of dials, they stay as they were: %s", file, error)
            self._crash_some()
        return self._knob

    def _crash_some(self) -> None:
        for server in self._knob.dials.crash:
            for each in list(self._guests) if server == ANY else [ServerId(server)]:
                if each in self._guests:
                    self._become(each, PowerState.CRASHED)

    @asynccontextmanager
    async def _trouble(self, verb: str) -> AsyncIterator[Knob]:
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
