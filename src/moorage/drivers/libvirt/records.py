"""What a host keeps of its guests, as files, so that an agent that starts again finds everything.

    <host's directory>/
        owner                       who made the guests: written into each domain, so that no other domain is ever touched
        agent.lock                  held by the agent that runs
        images/                     what disks are made over (images.py)
        arriving/<server>.<move>/   a guest that another host sends (moves.py)
        carrier.*                   how other hosts know this one (carrier.py)
        guests/<server>/
            guest.json              the record, replaced whole
            snapshot.qcow2          the copy of its disk that waits to be sent
            d1/, d2/ …              one generation of its disks: disk, disk.eph0, disk.swap, disk.config, console.log …

A record is written before anything else is made, so that whatever is left of a start that was cut off is found and destroyed.
"""

import fcntl
import logging
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from moorage.model.errors import HostFailed, Invalid
from moorage.model.guest import GuestSpec, MoveTarget
from moorage.model.ids import ImageId, ServerId
from moorage.model.rescue import RescueSpec

_log = logging.getLogger(__name__)


class GuestRecord(msgspec.Struct):
    spec: GuestSpec
    place: str = "d1"
    """The directory of its disks."""
    made: bool = False
    """Its disks are whole."""
    base: str = ""
    """The file in `images/` that its disk is made over."""
    kernel: bool = False
    ramdisk: bool = False
    """It boots from a kernel of its own, beside the disk."""
    rescue: RescueSpec | None = None
    rescue_base: str = ""
    rescue_kernel: bool = False
    rescue_ramdisk: bool = False
    targets: dict[str, str] = {}
    """Volume → the name of its place on the bus."""
    serial_port: int = 0
    on_since: float = 0.0
    snapshot: ImageId | None = None
    """For which image a copy of its disk was taken last; without the copy, it was sent."""
    move: str = ""
    """The last move that brought it here, or made it another size."""
    left: "GuestRecord | None" = None
    """As it was before that, with its disks, where it was here already; until the move is confirmed."""
    incoming: bool = False
    """A place that waits for a guest that runs elsewhere; its move is `move`."""
    leaving: MoveTarget | None = None
    """Where it is sent while it runs."""
    leaving_by: str = ""
    """By which move."""
    held: bool = False
    """We stopped it, so that what it writes is sent sooner: it is to run again."""
    departed: bool = False
    """It has left by that move; its disks stay until somebody says that they may go."""


class Records:
    """Of one host."""

    def __init__(self, room: Path) -> None:
        self.room = room
        self.owner = ""
        self.set_aside: tuple[str, ...] = ()
        """Guests whose records could not be read: an operator looks at them."""
        self._guests: dict[ServerId, GuestRecord] = {}
        self._lock: IO[str] | None = None

    def open(self) -> None:
        """Read all. Raises Invalid when another agent has this directory."""
        (self.room / "guests").mkdir(parents=True, exist_ok=True)
        self._lock = (self.room / "agent.lock").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as held:
            self.close()
            raise Invalid(f"another agent runs with the directory {self.room}: stop it first") from held
        owner = self.room / "owner"
        if not owner.exists():
            _replace(owner, f"{uuid.uuid4()}\n".encode())
        self.owner = owner.read_text().strip()
        self._guests, self.set_aside = {}, ()
        for each in sorted((self.room / "guests").iterdir()):
            file = each / "guest.json"
            if file.exists():
                try:
                    self._guests[ServerId(each.name)] = msgspec.json.decode(file.read_bytes(), type=GuestRecord)
                except (OSError, msgspec.MsgspecError) as unreadable:
                    _log.error("%s cannot be read, and its guest is left as it is: %s", file, unreadable)
                    self.set_aside = (*self.set_aside, each.name)
            else:
                shutil.rmtree(each)  # its record was never written, so nothing was made
        for server, record in self._guests.items():
            self.tidy(server, record)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def find(self, server: ServerId) -> GuestRecord | None:
        return self._guests.get(server)

    def of(self, server: ServerId) -> GuestRecord:
        """Of a guest that is here: neither one that is awaited nor one that has left. Raises HostFailed (`guest_not_found`)."""
        record = self._guests.get(server)
        if record is None or record.incoming or record.departed:
            raise HostFailed("the host has no such guest", private=server, code="guest_not_found")
        return record

    def every(self) -> dict[ServerId, GuestRecord]:
        return dict(self._guests)

    def bases(self) -> set[str]:
        """Files in `images/` that some disk is made over."""
        return {
            base for record in self._guests.values() for each in _generations(record) for base in _bases(each) if base
        }

    def keep(self, record: GuestRecord) -> GuestRecord:
        """Raises HostFailed when the disk is full."""
        server = record.spec.server
        directory = self.directory(server)
        try:
            directory.mkdir(exist_ok=True, mode=0o755)
            _replace(directory / "guest.json", msgspec.json.encode(record))
        except OSError as failure:
            raise HostFailed("the host's disk is full", private=str(failure), code="host_full") from failure
        self._guests[server] = record
        return record

    def forget(self, server: ServerId) -> None:
        """All that is here of it; the record last, so that a cut leaves something to find."""
        directory = self.directory(server)
        if directory.is_dir():
            for each in directory.iterdir():
                if each.name != "guest.json":
                    shutil.rmtree(each) if each.is_dir() else each.unlink()
            shutil.rmtree(directory)
        self._guests.pop(server, None)

    def tidy(self, server: ServerId, record: GuestRecord) -> None:
        """Generations of disks that no record names go."""
        kept = {each.place for each in _generations(record)}
        for each in self.directory(server).iterdir():
            if each.is_dir() and each.name not in kept:
                shutil.rmtree(each)

    def directory(self, server: ServerId) -> Path:
        return self.room / "guests" / checked(server)

    def place(self, record: GuestRecord) -> Path:
        return self.directory(record.spec.server) / record.place

    def next_place(self, record: GuestRecord) -> str:
        return f"d{max(int(each.place[1:]) for each in _generations(record)) + 1}"


def checked(server: ServerId) -> str:
    """Its id is a UUID, as libvirt wants it; nothing else gets near a path. Raises HostFailed."""
    try:
        if str(uuid.UUID(server)) == server:
            return server
    except ValueError:
        pass
    raise HostFailed("the host has no such guest", private=repr(server), code="guest_not_found")


def _generations(record: GuestRecord) -> Iterator[GuestRecord]:
    each: GuestRecord | None = record
    while each is not None:
        yield each
        each = each.left


def _bases(record: GuestRecord) -> tuple[str, str]:
    return record.base, record.rescue_base


def _replace(file: Path, content: bytes) -> None:
    """Whole, also after a power cut."""
    coming = file.with_name(f"{file.name}.new")
    with coming.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    os.replace(coming, file)
