"""Live migration between simulated hosts.

    <destination>/arriving/<server>.<move>.ready     a place waits for the guest
    <destination>/arriving/<server>.<move>.arrived   the same file, renamed by the source: the guest is here from that instant on
    <destination>/arriving/<server>.<move>.live      the guest as it was at the switch
    <source>/departed/<server>                       the move by which it left

The switch is that one rename.  A destination that withdraws deletes the same file, so exactly one of the two happens: there is always exactly
one guest.  If a process dies in between, the files show which host has the guest.  A transfer ends with its agent.
"""

import asyncio
import os
import shutil
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from moorage.drivers.fault_injection import FaultCounter, FaultSettings
from moorage.drivers.simulated_disks import SimulatedDisks
from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.drivers.simulated_moves import ARRIVING, DEPARTED, LEFT
from moorage.drivers.simulated_transfer import MIB, SimulatedTransfer
from moorage.model.clock import Clock
from moorage.model.errors import HostFailed, Problem
from moorage.model.guest import GuestSpec, MoveTarget, PowerState
from moorage.model.ids import ServerId
from moorage.model.live_migration import LiveNow, LiveSource, LiveState
from moorage.model.private_files import private_directory, private_file

TICK_S = 0.05
LIVE = (PowerState.RUNNING, PowerState.PAUSED)


class SimulatedLive(ABC):
    """The live migration of `SimulatedDriver`."""

    _room: Path
    _clock: Clock
    _disks: SimulatedDisks
    _guests: dict[ServerId, SimulatedGuest]
    _transfers: dict[ServerId, SimulatedTransfer]
    _awaited: dict[ServerId, str]  # server that arrives → its move
    _departed: dict[ServerId, str]

    @abstractmethod
    def _trouble(self, verb: str) -> AbstractAsyncContextManager[FaultCounter]: ...

    @abstractmethod
    def _turned(self) -> FaultCounter: ...

    @abstractmethod
    def _of(self, server: ServerId) -> SimulatedGuest: ...

    @abstractmethod
    def _keep(self, guest: SimulatedGuest) -> PowerState: ...

    @abstractmethod
    def _remove(self, server: ServerId) -> None:
        """Remove the guest's record and drive; its disk stays."""

    @abstractmethod
    def _keep_drive(self, spec: GuestSpec) -> GuestSpec: ...

    @abstractmethod
    def _refuse_beyond_truth(self, spec: GuestSpec) -> None: ...

    @abstractmethod
    def _forget_departed(self, server: ServerId) -> None: ...

    # ---- before ----------------------------------------------------------------------------------------------------

    async def live_source(self, server: ServerId) -> LiveSource:
        """Describe this host as the source of a live migration. Raises HostFailed when the guest is not running."""
        async with self._trouble("live_source") as knob:
            guest = self._of(server)
            if guest.power not in LIVE:
                why = f"{server} is {guest.power.name}"
                raise HostFailed("the guest is not running", private=why, code="guest_not_running")
            dials = knob.dials
            return LiveSource(
                cpu_info(dials),
                "simulated",
                dials.hypervisor_version,
                dials.shared_storage or str(self._room.resolve()),
            )

    async def live_target(self, spec: GuestSpec, source: LiveSource, block: bool | None) -> MoveTarget:
        async with self._trouble("live_target") as knob:
            own_cpu, where = cpu_info(knob.dials), str(self._room.resolve())
            if source.cpu_info != own_cpu:
                raise _refused("Unacceptable CPU info: CPU doesn't have compatibility.", f"{source.cpu_info} {own_cpu}")
            if source.hypervisor_type != "simulated":
                raise _refused("The supplied hypervisor type of is invalid.", source.hypervisor_type)
            if source.hypervisor_version > knob.dials.hypervisor_version:
                why = f"{source.hypervisor_version} > {knob.dials.hypervisor_version}"
                raise _refused("The instance requires a newer hypervisor version than has been provided.", why)
            local = bool(spec.root_gib or spec.ephemeral_gib or spec.swap_mib)
            shared = bool(source.storage) and source.storage in {where, knob.dials.shared_storage}
            if block and shared:
                raise _refused(
                    "The host is not on local storage: Block migration can not be used with shared storage.",
                    source.storage,
                )
            if block is False and local and not shared:
                raise _refused(
                    "The host is not on shared storage: Live migration can not be used without shared storage except a booted "
                    "from volume VM which does not have a local disk.",
                    where,
                )
            self._refuse_beyond_truth(spec)
            return MoveTarget("127.0.0.1", where, shared_disks=shared)

    async def prepare_live(self, spec: GuestSpec, move: str) -> PowerState:
        """Prepare for a guest that arrives; may be repeated. Raises HostFailed when an earlier guest is here."""
        async with self._trouble("prepare_live"):
            self._see_arrivals()
            guest = self._guests.get(spec.server)
            if guest is not None:
                if guest.move != move:
                    raise HostFailed("an earlier guest is in the way", private=guest.move, code="guest_in_the_way")
                if guest.incoming:  # an agent that was killed may have left it without its sign
                    self._await(spec.server, move)
                return guest.power
            self._refuse_beyond_truth(spec)
            self._sign(self._room, spec.server, move, "ready")  # refused before anything is kept
            self._drop_signs(spec.server)
            power = self._keep(SimulatedGuest(self._keep_drive(spec), PowerState.PAUSED, move=move, incoming=True))
            self._await(spec.server, move)
            return power

    def _await(self, server: ServerId, move: str) -> None:
        self._awaited[server] = move
        ready = self._sign(self._room, server, move, "ready")
        private_directory(ready.parent)
        if not ready.with_suffix(".arrived").exists():
            ready.touch()

    # ---- at the source ---------------------------------------------------------------------------------------------

    async def send_live(self, server: ServerId, to: MoveTarget, move: str) -> PowerState:
        """Begin to send a guest. Raises HostFailed when it is not running, or another move sends it."""
        async with self._trouble("send_live"):
            if self._departed.get(server) == move:
                return PowerState.NOSTATE
            guest, known = self._of(server), self._transfers.get(server)
            if known is not None and known.state is LiveState.RUNNING:
                if known.move != move:
                    raise HostFailed("the guest is being sent elsewhere", private=known.move, code="guest_busy")
                return guest.power
            if guest.power not in LIVE:
                raise HostFailed("the guest is not running", private=guest.power.name, code="guest_not_running")
            transfer = self._transfers[server] = SimulatedTransfer(guest.spec, to, move)
            guest.leaving = to.where, move
            power = self._keep(guest)
            transfer.task = asyncio.create_task(self._send_live(server, transfer), name=f"live-{server}")
            return power

    async def _send_live(self, server: ServerId, transfer: SimulatedTransfer) -> None:
        """Send the guest until it has left; after an error it goes on here."""
        power: PowerState | None = None
        try:
            async with self._trouble("live_transfer"):
                await self._copy(server, transfer)
                guest = self._of(server)
                power, guest.silent_since = guest.power, self._clock.now()
                if switch_s := self._turned().dials.live_switch_s:
                    guest.stands_still, guest.power = power, PowerState.PAUSED
                    self._keep(guest)
                    await self._clock.sleep(switch_s)
                self._switch(self._of(server), power, transfer)
                transfer.state = LiveState.SWITCHED
        except asyncio.CancelledError:
            transfer.state = LiveState.ABORTED
            raise
        except Exception as failure:  # noqa: BLE001 - a boundary: the next question for the state shows it
            transfer.state = LiveState.FAILED
            transfer.why = failure.public if isinstance(failure, Problem) else repr(failure)
        finally:
            guest_here = self._guests.get(server)
            if transfer.state is not LiveState.SWITCHED and guest_here is not None:
                guest_here.leaving = guest_here.stands_still = None
                guest_here.power = guest_here.power if power is None else power
                self._keep(guest_here)

    async def _copy(self, server: ServerId, transfer: SimulatedTransfer) -> None:
        while not transfer.forced and (transfer.memory_left or transfer.disk_left):
            dials = self._turned().dials
            if dials.live_mib_per_s <= 0:
                break
            await self._clock.sleep(TICK_S)
            transfer.send(int(dials.live_mib_per_s * TICK_S * MIB), int(dials.live_dirty_mib_per_s * TICK_S * MIB))
        mine, disk = self._disks.file_of(server), self._sign(transfer.to, server, transfer.move, "disk")
        if mine.exists() and disk.parent.exists():
            await asyncio.to_thread(shutil.copyfile, mine, private_file(disk))
        transfer.all_sent()

    def _switch(self, guest: SimulatedGuest, power: PowerState, transfer: SimulatedTransfer) -> None:
        """Switch without an `await`: nothing else runs between the guest's last moment here and its first one there."""
        server, move = guest.spec.server, transfer.move
        ready, data, disk = (self._sign(transfer.to, server, move, kind) for kind in ("ready", "live", "disk"))
        silences = (*guest.silences, self._clock.now() - guest.silent_since)
        gone = msgspec.structs.replace(guest, power=power, leaving=None, stands_still=None, silences=silences)
        try:
            private_file(data).write_bytes(msgspec.json.encode(gone))
            os.rename(ready, ready.with_suffix(".arrived"))
        except FileNotFoundError as nowhere:
            for file in (data, disk):
                file.unlink(missing_ok=True)
            raise HostFailed("the other host does not wait for the guest", private=str(ready)) from nowhere
        self._depart(server, move)

    def _depart(self, server: ServerId, move: str) -> None:
        room, left = self._room / DEPARTED, self._room / LEFT
        private_directory(room)
        private_directory(left)
        private_file(left / server).write_bytes(msgspec.json.encode(self._of(server)))
        private_file(room / server).write_text(move)
        self._departed[server] = move
        self._remove(server)

    async def abort_live(self, server: ServerId, move: str) -> PowerState:
        async with self._trouble("abort_live"):
            transfer = self._transfers.get(server)
            if transfer is not None and transfer.move == move:
                await self._end(transfer)
            guest = self._guests.get(server)
            return PowerState.NOSTATE if guest is None else guest.power

    @staticmethod
    async def _end(transfer: SimulatedTransfer) -> None:
        if transfer.task is not None and not transfer.task.done():
            transfer.task.cancel()
            await asyncio.wait([transfer.task])
        if transfer.state is LiveState.RUNNING:  # it was cancelled before it began
            transfer.state = LiveState.ABORTED

    async def force_live(self, server: ServerId, move: str, *, post_copy: bool) -> PowerState:
        async with self._trouble("force_live"):
            transfer = self._transfers.get(server)
            if transfer is not None and transfer.move == move:
                transfer.forced = True
            guest = self._guests.get(server)
            return PowerState.NOSTATE if guest is None else guest.power

    # ---- at either -------------------------------------------------------------------------------------------------

    async def live_status(self, server: ServerId, move: str) -> LiveNow:
        async with self._trouble("live_status"):
            transfer = self._transfers.get(server)
            if transfer is not None and transfer.move == move:
                return transfer.now()
            if self._departed.get(server) == move:
                return LiveNow(LiveState.SWITCHED)
            guest = self._guests.get(server)
            if guest is None or guest.move != move:
                return LiveNow(LiveState.NONE)
            return LiveNow(LiveState.WAITING if guest.incoming else LiveState.ARRIVED)

    # ---- at the destination ----------------------------------------------------------------------------------------

    async def drop_live(self, server: ServerId, move: str) -> PowerState:
        """Remove what was prepared, if any. Raises HostFailed when the guest has arrived."""
        async with self._trouble("drop_live"):
            guest = self._guests.get(server)
            if guest is None or guest.move != move:
                for file in (self._room / ARRIVING).glob(f"{server}.{move}.*"):  # the place was lost while it was sent
                    file.unlink(missing_ok=True)
                return PowerState.NOSTATE if guest is None else guest.power
            if guest.incoming:
                self._sign(self._room, server, move, "ready").unlink(missing_ok=True)
                self._see_arrivals()
                guest = self._of(server)
            if not guest.incoming:
                raise HostFailed("the guest has arrived", private=move, code="guest_has_arrived")
            self._awaited.pop(server, None)
            self._drop_signs(server)
            self._remove(server)
            self._disks.remove(server)
            return PowerState.NOSTATE

    async def land_live(self, spec: GuestSpec, move: str) -> PowerState:
        """Record a guest that has arrived, with its final spec. Raises HostFailed when it has not arrived."""
        async with self._trouble("land_live"):
            guest = self._of(spec.server)
            if guest.incoming or guest.move != move:
                raise HostFailed("the guest has not arrived", private=move, code="nothing_arrived")
            guest.spec = self._keep_drive(spec)
            return self._keep(guest)

    def _see_arrivals(self) -> None:
        """Take in guests that have arrived: they run here from the moment at which the source renamed the file."""
        for server, move in list(self._awaited.items()):
            arrived = self._sign(self._room, server, move, "arrived")
            if not arrived.exists():
                continue
            waiting, disk = self._guests[server], self._sign(self._room, server, move, "disk")
            data = self._sign(self._room, server, move, "live")
            guest = msgspec.json.decode(data.read_bytes(), type=SimulatedGuest)
            if disk.exists():
                self._disks.adopt(server, disk)
            self._keep(msgspec.structs.replace(guest, spec=waiting.spec, move=move, snapshot=None))
            del self._awaited[server]
            self._drop_signs(server)

    def _lose_places(self) -> None:
        """Handle a loss of power: places that waited are lost; a guest that arrived before is here."""
        self._see_arrivals()
        for server in list(self._awaited):
            del self._awaited[server]
            self._drop_signs(server)
            self._remove(server)
            self._disks.remove(server)

    # ---- files -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _sign(room: Path, server: ServerId, move: str, kind: str) -> Path:
        if not move or "/" in move or "/" in server or server.startswith("."):
            raise HostFailed("not a move", private=f"{server} {move}", code="garbled")
        return room / ARRIVING / f"{server}.{move}.{kind}"

    def _drop_signs(self, server: ServerId) -> None:
        for file in (self._room / ARRIVING).glob(f"{server}.*"):
            file.unlink(missing_ok=True)

    def _load_live(self) -> None:
        """Read after a restart which guests have left, and which places wait."""
        departed = self._room / DEPARTED
        self._departed = (
            {ServerId(each.name): each.read_text() for each in departed.iterdir()} if departed.is_dir() else {}
        )
        for server, guest in list(self._guests.items()):
            if guest.incoming:
                self._awaited[server] = guest.move
            if guest.leaving is not None:
                where, move = guest.leaving
                if self._has_left(server, Path(where), move):
                    self._depart(server, move)
                else:
                    guest.power = guest.power if guest.stands_still is None else guest.stands_still
                    guest.leaving = guest.stands_still = None
                    self._keep(guest)
        self._see_arrivals()

    def _has_left(self, server: ServerId, to: Path, move: str) -> bool:
        if self._sign(to, server, move, "arrived").exists():
            return True
        try:
            guest = msgspec.json.decode((to / "guests" / f"{server}.json").read_bytes(), type=SimulatedGuest)
        except (FileNotFoundError, msgspec.MsgspecError):
            return False
        return guest.move == move and not guest.incoming

    async def _forget_live(self, server: ServerId) -> None:
        """Forget everything about a guest that is destroyed: its transfer, its place, and that it left."""
        if (transfer := self._transfers.pop(server, None)) is not None:
            await self._end(transfer)
        self._awaited.pop(server, None)
        self._drop_signs(server)
        self._forget_departed(server)

    async def _end_transfers(self) -> None:
        for transfer in list(self._transfers.values()):
            await self._end(transfer)
        self._transfers.clear()


def cpu_info(dials: FaultSettings) -> dict[str, str]:
    return {"vendor": "Moorage", "model": dials.cpu_model, "arch": "x86_64"}


def _refused(public: str, private: str) -> HostFailed:
    return HostFailed(public, private=private, code="live_refused")
