"""Guests of a simulated host as files: one JSON file for each, replaced atomically.

A kill at any moment leaves the old guest or the new one; a new small file is written in one call, and an empty file counts as no guest.
"""

import logging
import os
from pathlib import Path

import msgspec

from moorage.drivers.simulated_guest import SimulatedGuest
from moorage.model.errors import HostFailed
from moorage.model.ids import ServerId
from moorage.model.private_files import private_directory

_log = logging.getLogger(__name__)

ONE_WRITE_BYTES = 4096
"""A write of at most one page is done completely or not at all if the process is killed."""
SET_ASIDE = "set-aside"
SET_ASIDE_SAID_MAX = 100


class GuestRecords:
    """The files of one host's guests."""

    def __init__(self, room: Path) -> None:
        """`room`: the host's directory."""
        self._room = room
        self._guests = room / "guests"

    def load(self) -> dict[ServerId, SimulatedGuest]:
        """Read all records; those that cannot be read are moved aside."""
        private_directory(self._guests)
        guests: dict[ServerId, SimulatedGuest] = {}
        for file in sorted(self._guests.glob("*.json")):
            if not file.stat().st_size:
                file.unlink()  # killed between making the file and writing it: that guest was never answered for
                continue
            try:
                guest = msgspec.json.decode(file.read_bytes(), type=SimulatedGuest)
            except (msgspec.MsgspecError, OSError) as unreadable:
                self._put_aside(file, unreadable)
                continue
            guests[guest.spec.server] = guest
        return guests

    def set_aside(self) -> tuple[str, ...]:
        """Return the names of files that were moved aside, at most `SET_ASIDE_SAID_MAX`."""
        room = self._room / SET_ASIDE
        return tuple(sorted(each.name for each in room.iterdir()))[:SET_ASIDE_SAID_MAX] if room.is_dir() else ()

    def _put_aside(self, file: Path, unreadable: Exception) -> None:
        """Move a record aside that cannot be read, so that the host and its other guests work; an operator may repair it."""
        room = self._room / SET_ASIDE
        try:
            private_directory(room)
            names = (file.name, *(f"{file.name}.{number}" for number in range(1, SET_ASIDE_SAID_MAX)))
            os.replace(file, next((room / each for each in names if not (room / each).exists()), room / names[-1]))
        except OSError as failure:
            _log.error("%s cannot be read (%s), nor be put aside: %s", file, unreadable, failure)
        else:
            _log.error("%s cannot be read and was put aside in %s: %s", file, room, unreadable)

    def write(self, guest: SimulatedGuest, *, new: bool) -> None:
        """Write the guest's file. `new`: it has none yet. Raises HostFailed when the disk is full, or the id is not valid."""
        file = str(self._file(guest.spec.server))
        whole = msgspec.json.encode(guest)
        if not new or len(whole) > ONE_WRITE_BYTES:
            coming = f"{file}.new"
            _write(coming, whole)
            os.replace(coming, file)
        else:
            _write(file, whole)

    def drop(self, server: ServerId) -> None:
        """Remove the file; a missing one is success."""
        self._file(server).unlink(missing_ok=True)

    def _file(self, server: ServerId) -> Path:
        if not server or "/" in server or server.startswith("."):
            raise HostFailed("not a server's id", private=repr(server), code="guest_not_found")
        return self._guests / f"{server}.json"


def _write(file: str, whole: bytes) -> None:
    made = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        if os.write(made, whole) != len(whole):
            raise HostFailed("the host's disk is full", private=file, code="host_full")
    finally:
        os.close(made)
