"""A host's records of its guests, as files, so that an agent that starts again finds everything.

    <host's directory>/
        owner                       the owner of the guests; it is written into each domain, so that no other domain is changed
        agent.lock                  locked by the running agent
        images/                     base images of disks (images.py)
        arriving/<server>.<move>/   a guest that another host sends (moves.py)
        carrier.*                   key and certificate of this host for other hosts (carrier.py)
        guests/<server>/
            guest.json              the record, replaced atomically
            snapshot.qcow2          the copy of its disk that waits for its upload
            d1/, d2/ …              one generation of its disks: disk, disk.eph0, disk.swap, disk.config, nvram.fd, console.log …

A record is written before anything else is made, so that the remains of an interrupted start are found and removed.
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
from moorage.model.private_files import private_file
from moorage.model.rescue import RescueSpec

_log = logging.getLogger(__name__)


UNREADABLE = "record_unreadable"


class GuestRecord(msgspec.Struct):
    spec: GuestSpec
    place: str = "d1"
    """The directory of its disks."""
    made: bool = False
    """Whether its disks are complete."""
    base: str = ""
    """The file in `images/` that is the base of its disk."""
    kernel: bool = False
    ramdisk: bool = False
    """Whether it boots from a separate kernel."""
    rescue: RescueSpec | None = None
    rescue_base: str = ""
    rescue_kernel: bool = False
    rescue_ramdisk: bool = False
    targets: dict[str, str] = {}
    """Volume → its device name on the bus."""
    serial_port: int = 0
    on_since: float = 0.0
    snapshot: ImageId | None = None
    """The image for which its disk was copied last; if the copy is missing, it was uploaded."""
    move: str = ""
    """The last move that brought it here, or resized it."""
    left: "GuestRecord | None" = None
    """The guest before that move, with its disks, if it was here already; kept until the move is confirmed."""
    incoming: bool = False
    """Whether it is a place that waits for a guest of another host; its move is `move`."""
    leaving: MoveTarget | None = None
    """The target of its live migration."""
    leaving_by: str = ""
    """The move of that live migration."""
    held: bool = False
    """Whether we paused it so that its memory is sent sooner: it must run again afterwards."""
    paused: bool = False
    """Whether its owner paused it: also QEMU does, when it cannot write."""
    stopped_at_source: bool = False
    """Whether QEMU stopped it at its source, since its disk had no space: it must go on when it has arrived."""
    frozen_for: str = ""
    """The purpose for which its file systems are still, or may be."""
    frozen_until: float = 0.0
    """When it writes again, in seconds since the epoch."""
    thawed_for: str = ""
    """The purpose for which it was still last."""
    unreleased: dict[str, str] = {}
    """MAC → tap of interfaces that were detached while it stood still: it has them, on no network, until it releases them."""
    departed: bool = False
    """Whether it has left by that move; its disks stay until they may be removed."""


class GuestDirectory:
    """The records of one host."""

    def __init__(self, room: Path) -> None:
        self.room = room
        self.owner = ""
        self.set_aside: tuple[str, ...] = ()
        """Guests whose records could not be read, for an operator."""
        self._guests: dict[ServerId, GuestRecord] = {}
        self._lock: IO[str] | None = None

    def open(self) -> None:
        """Read all records. Raises Invalid when another agent uses this directory."""
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
            if file.exists() or _has_disks(each):
                try:
                    self._guests[ServerId(each.name)] = msgspec.json.decode(file.read_bytes(), type=GuestRecord)
                except (OSError, msgspec.MsgspecError) as unreadable:
                    _log.error("%s cannot be read, and its guest is left as it is: %s", file, unreadable)
                    self.set_aside = (*self.set_aside, each.name)
            elif each.is_dir():
                shutil.rmtree(each)  # its record was never written, so nothing was made
        for server, record in self._guests.items():
            self.tidy(server, record)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def find(self, server: ServerId) -> GuestRecord | None:
        """Return a guest's record; None: it is not here. Raises HostFailed (`record_unreadable`) for one that is set aside:
        it is not known what is its own, and it may run."""
        if server in self.set_aside:
            raise HostFailed(
                "the host cannot read its record of the guest", private=str(self.directory(server)), code=UNREADABLE
            )
        return self._guests.get(server)

    def of(self, server: ServerId) -> GuestRecord:
        """Return the record of a guest that is here, neither awaited nor gone. Raises HostFailed (`guest_not_found`, or
        `record_unreadable`)."""
        record = self.find(server)
        if record is None or record.incoming or record.departed:
            raise HostFailed("the host has no such guest", private=server, code="guest_not_found")
        return record

    def every(self) -> dict[ServerId, GuestRecord]:
        return dict(self._guests)

    def bases(self) -> set[str]:
        """Return the files in `images/` that are the base of a disk."""
        return {
            base for record in self._guests.values() for each in _generations(record) for base in _bases(each) if base
        }

    def keep(self, record: GuestRecord) -> GuestRecord:
        """Write a record. Raises HostFailed when the disk is full."""
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
        """Remove everything of a guest; the record is last, so that an interrupted removal can be continued."""
        directory = self.directory(server)
        if directory.is_dir():
            for each in directory.iterdir():
                if each.name != "guest.json":
                    shutil.rmtree(each) if each.is_dir() else each.unlink()
            shutil.rmtree(directory)
        self._guests.pop(server, None)
        self.set_aside = tuple(each for each in self.set_aside if each != server)

    def tidy(self, server: ServerId, record: GuestRecord) -> None:
        """Remove directories of disks that no record names."""
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
    """Check that an id is a UUID, as libvirt requires, before it becomes part of a path. Raises HostFailed if it is not."""
    try:
        if str(uuid.UUID(server)) == server:
            return server
    except ValueError:
        pass
    raise HostFailed("the host has no such guest", private=repr(server), code="guest_not_found")


def _has_disks(directory: Path) -> bool:
    """Whether something was made for a guest, as its record would have said before."""
    return directory.is_dir() and any(each.is_dir() for each in directory.iterdir())


def _generations(record: GuestRecord) -> Iterator[GuestRecord]:
    each: GuestRecord | None = record
    while each is not None:
        yield each
        each = each.left


def _bases(record: GuestRecord) -> tuple[str, str]:
    return record.base, record.rescue_base


def _replace(file: Path, content: bytes) -> None:
    """Replace a file atomically, also for a loss of power."""
    coming = file.with_name(f"{file.name}.new")
    with private_file(coming).open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    os.replace(coming, file)
