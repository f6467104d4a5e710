"""Resizes, and moves of guests that are switched off.

A guest that is resized on its host keeps its old disks beside the new ones until the move is confirmed.  A guest that moves is sent as
complete disks without a base image: over the network to a host that listens (carrier.py), or into the directory of a host on the
same machine that does not listen.

    <host's directory>/arriving/<server>.<move>/    its disks; `guest.json` is written last, so that a guest with it is complete
"""

import asyncio
import os
import shutil
from pathlib import Path

import msgspec

from moorage.drivers.libvirt import carrier, disks, machine_features
from moorage.drivers.libvirt.carrier import MigrationAddress
from moorage.drivers.libvirt.core import Core
from moorage.drivers.libvirt.domain_xml import seat_volumes
from moorage.drivers.libvirt.host_facts import machine_id
from moorage.drivers.libvirt.records import GuestRecord, checked
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, MoveTarget, PowerState
from moorage.model.ids import ServerId
from moorage.model.image_inspection import Unsafe, check_use
from moorage.model.private_files import private_file

ARRIVING, SENDING = "arriving", "sending"
BEGIN, FILE, END = "begin_cold", "cold_file", "end_cold"
"""Verbs between two hosts (carrier.py)."""
AS_THEY_ARE = (disks.DRIVE, disks.KERNEL, disks.RAMDISK, disks.CONSOLE, disks.NVRAM)


class MovesPart(Core):
    """Moves of `LibvirtDriver`."""

    async def move_target(self) -> MoveTarget:
        return self._place().target()

    async def send_guest(self, server: ServerId, to: MoveTarget, move: str, graceful_s: float) -> PowerState:
        async with self._alone(server):
            record, place = self._records.of(server), MigrationAddress.of(to)
            if not place.port and place.machine != machine_id():
                raise carrier.unreachable(f"{to.where} takes no guests from other machines")
            power = await self._shut_down(server, graceful_s)
            await self._settle_overlay(record)
            if place.machine == machine_id() and Path(place.room) == self._room:
                return power
            if place.port:
                await self._send_far(record, place, move)
            else:
                await self._send(record, Path(place.room), move)
            return power

    async def _send_far(self, record: GuestRecord, to: MigrationAddress, move: str) -> None:
        """Send to a host that listens: each disk is first made complete here, and then sent."""
        server, place = record.spec.server, self._records.place(record)
        sending = self._records.directory(server) / SENDING
        await carrier.ask(to, BEGIN, server, move, None, bool)
        try:
            for name in disks.WHOLE:
                if (place / name).exists():
                    sending.mkdir(exist_ok=True)
                    await disks.copy_flat(place / name, sending / name)
                    await carrier.send_file(to, FILE, server, move, sending / name)
        finally:
            await asyncio.to_thread(shutil.rmtree, sending, ignore_errors=True)
        for name in AS_THEY_ARE:
            if (place / name).exists():
                await carrier.send_file(to, FILE, server, move, place / name)
        await carrier.ask(to, END, server, move, record, bool)

    def begin_arrival(self, server: ServerId, move: str) -> None:
        """Begin an arrival, and remove what an earlier try sent."""
        arriving = _arriving(self._room, server, move)
        shutil.rmtree(arriving, ignore_errors=True)
        arriving.mkdir(parents=True)

    def arriving_file(self, server: ServerId, move: str, name: str) -> Path:
        """Return the path of an arriving file. Raises HostFailed when it is not the name of a guest's file."""
        if name not in (*disks.WHOLE, *AS_THEY_ARE):
            raise HostFailed("the guest has no such file", private=name, code="garbled")
        return _arriving(self._room, server, move) / name

    def end_arrival(self, server: ServerId, move: str, record: GuestRecord) -> None:
        """End an arrival: everything is here."""
        arriving = _arriving(self._room, server, move)
        coming = private_file(arriving / "guest.json.coming")
        coming.write_bytes(msgspec.json.encode(record))
        os.replace(coming, arriving / "guest.json")

    async def _send(self, record: GuestRecord, to: Path, move: str) -> None:
        if not (to / "guests").is_dir():
            raise HostFailed("the other host cannot be reached", private=str(to), code="host_unreachable")
        arriving, place = _arriving(to, record.spec.server, move), self._records.place(record)
        shutil.rmtree(arriving, ignore_errors=True)
        arriving.mkdir(parents=True)
        for name in disks.WHOLE:
            if (place / name).exists():
                await disks.copy_flat(place / name, arriving / name)
        for name in AS_THEY_ARE:
            if (place / name).exists():
                await disks.copy_file(place / name, arriving / name)
        coming = arriving / "guest.json.coming"
        coming.write_bytes(msgspec.json.encode(record))
        os.replace(coming, arriving / "guest.json")

    async def take_guest(self, spec: GuestSpec, move: str) -> PowerState:
        """Make a guest of what arrived; where nothing did it is resized here.

        Raises HostFailed when an earlier guest is still here: its old disks are not those that were sent.
        """
        server = spec.server
        self._records.directory(server)
        async with self._alone(server):
            present = self._records.find(server)
            if present is not None and present.departed:
                await asyncio.to_thread(self._records.forget, server)
                present = None
            if present is not None and present.move != move and _arriving(self._room, server, move).exists():
                raise HostFailed("an earlier guest is in the way", private=present.move, code="guest_in_the_way")
            if present is not None and present.move == move and present.made:
                if present.left is None:
                    await asyncio.to_thread(self._drop_arriving, server)
                return await self._power(server)
            if present is not None and present.move == move:  # cut off while it was made
                present = present.left
            before = await self._arrived(server, move) if present is None else present
            _refuse_shrinking(before.spec, spec)
            machine_features.refuse_new_features(before.spec, spec, self._machine)
            if present is not None:
                await self._switch_off(server)
                await self._settle_overlay(present)
            record = msgspec.structs.replace(
                before,
                spec=msgspec.structs.replace(spec, drive=None),
                place="d1" if present is None else self._records.next_place(present),
                made=False,
                base="" if present is None else before.base,
                rescue=None,
                rescue_base="",
                snapshot=None,
                move=move,
                left=present,
            )
            self._records.keep(record)
            await self._fill(
                record, _arriving(self._room, server, move) if present is None else self._records.place(present)
            )
            if spec.drive is not None:
                self._keep_drive(record, spec.drive)
            seat_volumes(record)
            record.made = True
            self._records.keep(record)
            await asyncio.to_thread(self._drop_arriving, server)
            return PowerState.SHUTDOWN

    async def _fill(self, record: GuestRecord, source: Path) -> None:
        """Copy the disks, so that their sources are not changed."""
        place, spec = self._records.place(record), record.spec
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for name in (*disks.WHOLE, *AS_THEY_ARE):
            if (source / name).exists():
                await disks.copy_file(source / name, place / name)
        if (place / disks.ROOT).exists() and spec.root_gib:
            await disks.grow(place / disks.ROOT, spec.root_gib * disks.GIB)
        await disks.make_ephemerals(place, spec)
        if spec.swap_mib:
            await disks.make_swap(place / disks.SWAP, spec.swap_mib * disks.MIB)

    async def _arrived(self, server: ServerId, move: str) -> GuestRecord:
        """Return the record of a guest that has arrived. Raises HostFailed when none has, or when a disk names other files: QEMU would
        open those of this host."""
        arriving = _arriving(self._room, server, move)
        try:
            record = msgspec.json.decode((arriving / "guest.json").read_bytes(), type=GuestRecord)
            for name in disks.WHOLE:
                if (arriving / name).exists():
                    await asyncio.to_thread(check_use, arriving / name, "qcow2")
        except FileNotFoundError as nothing:
            raise HostFailed(
                "nothing of the guest has arrived", private=str(arriving), code="nothing_arrived"
            ) from nothing
        except Unsafe as why:
            raise HostFailed(
                "what arrived is no disk of a guest", private=f"{arriving}: {why}", code="garbled"
            ) from why
        return record

    async def return_guest(self, server: ServerId, move: str) -> PowerState:
        async with self._alone(server):
            found = self._records.find(server)
            if found is not None and found.departed and found.leaving_by == move:
                found.departed, found.leaving, found.leaving_by = False, None, ""
                self._records.keep(found)
                return PowerState.SHUTDOWN
            record = self._records.of(server)
            if record.move != move or record.left is None:
                return await self._power(server)
            await self._switch_off(server)
            self._records.keep(record.left)
            await asyncio.to_thread(self._records.tidy, server, record.left)
            return await self._power(server)

    async def forget_left(self, server: ServerId, move: str) -> PowerState:
        async with self._alone(server):
            record = self._records.of(server)
            if record.move == move and record.left is not None:
                record.left = None
                self._records.keep(record)
                await asyncio.to_thread(self._records.tidy, server, record)
            return await self._power(server)

    async def arrivals(self) -> frozenset[ServerId]:
        sent = {ServerId(each.name.partition(".")[0]) for each in (self._room / ARRIVING).glob("*.*")}
        kept = {server for server, record in self._records.every().items() if record.departed or record.incoming}
        return frozenset(sent | kept)

    def _drop_arriving(self, server: ServerId) -> None:
        """Remove what arrived of a guest that does not belong here."""
        for each in (self._room / ARRIVING).glob(f"{checked(server)}.*"):
            shutil.rmtree(each, ignore_errors=True)


def _arriving(room: Path, server: ServerId, move: str) -> Path:
    if not move or "/" in move or move.startswith("."):
        raise HostFailed("not a move", private=f"{server} {move}", code="garbled")
    return room / ARRIVING / f"{checked(server)}.{move}"


def _refuse_shrinking(old: GuestSpec, now: GuestSpec) -> None:
    if why := old.shrinks(now):
        raise HostFailed("Unable to resize disk down.", private=why, code="disk_shrinks")
