"""Moves between simulated hosts: real files are copied from one host's directory to another's.

    <host's directory>/arriving/<server>.<move>.json   the guest as it was where it came from
    <host's directory>/arriving/<server>.<move>.disk   the data of its image
    <host's directory>/left/<server>                   the same, as it was when it left
    <host's directory>/departed/<server>               one that was live migrated away: its disk is kept here until it may be removed

So both hosts must be on one machine, as all simulated hosts are.
"""

import asyncio
import os
import shutil
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from moorage.drivers.fault_injection import FaultCounter
from moorage.drivers.simulated_disks import SimulatedDisks
from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, MoveTarget, PowerState
from moorage.model.ids import ServerId
from moorage.model.private_files import DIRECTORY_MODE, private_file

ARRIVING, DEPARTED, LEFT = "arriving", "departed", "left"


class SimulatedMoves(ABC):
    """Moves of `SimulatedDriver`."""

    _room: Path
    _disks: SimulatedDisks
    _guests: dict[ServerId, SimulatedGuest]
    _departed: dict[ServerId, str]

    @abstractmethod
    def _trouble(self, verb: str) -> AbstractAsyncContextManager[FaultCounter]: ...

    @abstractmethod
    def _of(self, server: ServerId) -> SimulatedGuest: ...

    @abstractmethod
    async def _shut_down(self, guest: SimulatedGuest, graceful_s: float) -> None: ...

    @abstractmethod
    def _keep(self, guest: SimulatedGuest) -> PowerState: ...

    @abstractmethod
    def _keep_drive(self, spec: GuestSpec) -> GuestSpec: ...

    @abstractmethod
    def _refuse_beyond_truth(self, spec: GuestSpec) -> None: ...

    async def move_target(self) -> MoveTarget:
        async with self._trouble("move_target"):
            return MoveTarget("127.0.0.1", str(self._room.resolve()))

    async def send_guest(self, server: ServerId, to: MoveTarget, move: str, graceful_s: float) -> PowerState:
        async with self._trouble("send_guest"):
            guest = self._of(server)
            if guest.power is PowerState.RUNNING:
                await self._shut_down(guest, graceful_s)
            guest.power = PowerState.SHUTDOWN
            power = self._keep(guest)
            if Path(to.where) != self._room.resolve():
                await self._send(guest, Path(to.where), move)
            return power

    async def _send(self, guest: SimulatedGuest, to: Path, move: str) -> None:
        """Copy the disk before the guest's file, so that a guest that is found is complete."""
        record, disk = _arriving(to, guest.spec.server, move)
        try:
            record.parent.mkdir(exist_ok=True, mode=DIRECTORY_MODE)
        except FileNotFoundError as nowhere:
            raise HostFailed("the other host cannot be reached", private=str(to), code="host_unreachable") from nowhere
        mine = self._disks.file_of(guest.spec.server)
        if mine.exists():
            coming = disk.with_suffix(".coming")
            await asyncio.to_thread(shutil.copyfile, mine, private_file(coming))
            os.replace(coming, disk)
        coming = record.with_suffix(".coming")
        private_file(coming).write_bytes(msgspec.json.encode(guest))
        os.replace(coming, record)

    async def take_guest(self, spec: GuestSpec, move: str) -> PowerState:
        async with self._trouble("take_guest"):
            present = self._guests.get(spec.server)
            if present is not None and present.move == move:
                if present.left is None:  # it was sent again although it is here
                    self._drop_arriving(spec.server)
                return present.power
            before = self._arrived(spec.server, move) if present is None else present
            _refuse_shrinking(before.spec, spec)
            self._refuse_beyond_truth(spec)
            record, disk = _arriving(self._room, spec.server, move)
            if disk.exists():
                self._disks.adopt(spec.server, disk)
            guest = msgspec.structs.replace(
                before, spec=self._keep_drive(spec), power=PowerState.SHUTDOWN, move=move, left=present, snapshot=None
            )
            power = self._keep(guest)
            record.unlink(missing_ok=True)
            return power

    def _arrived(self, server: ServerId, move: str) -> SimulatedGuest:
        record, _ = _arriving(self._room, server, move)
        try:
            return msgspec.json.decode(record.read_bytes(), type=SimulatedGuest)
        except FileNotFoundError as nothing:
            raise HostFailed(
                "nothing of the guest has arrived", private=str(record), code="nothing_arrived"
            ) from nothing

    async def return_guest(self, server: ServerId, move: str) -> PowerState:
        async with self._trouble("return_guest"):
            self._return_departed(server, move)
            guest = self._of(server)
            if guest.move != move or guest.left is None:
                return guest.power
            guest.left.power = PowerState.SHUTDOWN
            return self._keep(guest.left)

    def _return_departed(self, server: ServerId, move: str) -> None:
        """Restore a guest that was live migrated away by this move, switched off, with the disk that stayed."""
        left = self._room / LEFT / server
        if self._departed.get(server) != move or server in self._guests or not left.exists():
            return
        guest = msgspec.json.decode(left.read_bytes(), type=SimulatedGuest)
        guest.power, guest.leaving, guest.stands_still = PowerState.SHUTDOWN, None, None
        self._keep(guest)
        self._forget_departed(server)

    def _forget_departed(self, server: ServerId) -> None:
        if self._departed.pop(server, None) is not None:
            for room in (LEFT, DEPARTED):
                (self._room / room / server).unlink(missing_ok=True)

    async def forget_left(self, server: ServerId, move: str) -> PowerState:
        async with self._trouble("forget_left"):
            guest = self._of(server)
            if guest.move == move:
                guest.left = None
            return self._keep(guest)

    async def arrivals(self) -> frozenset[ServerId]:
        arrived = (file.name.partition(".")[0] for file in (self._room / ARRIVING).glob("*.*"))
        return frozenset(
            ServerId(name) for name in (*arrived, *(file.name for file in (self._room / DEPARTED).glob("*")))
        )

    def _drop_arriving(self, server: ServerId) -> None:
        """Remove what arrived of a guest that does not belong here."""
        for file in (self._room / ARRIVING).glob(f"{server}.*"):
            file.unlink(missing_ok=True)


def _arriving(room: Path, server: ServerId, move: str) -> tuple[Path, Path]:
    if not move or "/" in move or "/" in server or server.startswith("."):
        raise HostFailed("not a move", private=f"{server} {move}", code="garbled")
    return room / ARRIVING / f"{server}.{move}.json", room / ARRIVING / f"{server}.{move}.disk"


def _refuse_shrinking(old: GuestSpec, new: GuestSpec) -> None:
    if why := old.shrinks(new):
        raise HostFailed("Unable to resize disk down.", private=why, code="disk_shrinks")
