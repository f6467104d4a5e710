"""Reads and uploads the data of images for a host (`model.image.ImageStore`); a host needs nothing else of the image service.

A host shows the tickets that its orders brought (`model/image_ticket.py`).  At a service that knows no tickets it has an account
(docs/decisions/0015), which reads any image, and uploads data into images that were made for it.

What a host has read is cached in a directory that all hosts of a machine share, with one file for each image, because an image's data
never changes.
Each use sets the file's modification time, so every agent knows which files were not used for longest, also after a restart.

Calls are repeated here while the image service is out, because a command to a host has one answer; the command's deadline ends
this.  A repeat is safe: a complete image is not uploaded again, and data is uploaded only into an image that is `queued`.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote
from uuid import uuid4
from weakref import WeakValueDictionary

import msgspec

from moorage.clients.http import Json, ServiceClient
from moorage.clients.replies import CREDENTIALS
from moorage.model.errors import Conflict, Gone, HostFailed, NotFound, Refusal, Unauthenticated, Unavailable
from moorage.model.ids import ImageId
from moorage.model.image import ImageFile
from moorage.model.image_inspection import Inspected, Unsafe, check_use
from moorage.model.image_ticket import HEADER, Direction, TicketBox
from moorage.model.private_files import private_directory, private_file
from moorage.model.retry import Backoff, jittered

T = TypeVar("T")
PIECE_BYTES = 1024 * 1024
KEPT_MAX = 64
"""Limit of cached images of all agents; the least recently used one is removed."""
USED_LATELY_S = 600.0
"""A file that was used within this time is kept in any case: the agent that uses it may not have linked it yet."""
DATA_DEADLINE_S = 4 * 3600.0
"""Deadline for all the data of one image."""
AGAIN_FIRST_S, AGAIN_MOST_S = 0.5, 10.0
COMING = ".new"
"""Suffix of files that are being read or removed."""
LOCK = ".lock"
UPLOADS_AT_ONCE = 5
REFUSED_MAX = 2
"""How often our credentials may be refused: the first refusal may be caused by an expired token."""
TICKETS_MAX = 5
"""How often a ticket may be refused."""
UNUSABLE = "image_unusable"
WHOLE, WAITS = "active", "queued"
UNDER_WAY = frozenset({"saving", "uploading", "importing"})
PATCH = "application/openstack-images-v2.1-json-patch"


class _Facts(msgspec.Struct, frozen=True):
    disk_format: str
    container_format: str


class ImageData:
    def __init__(self, image: ServiceClient, directory: Path, tickets: TicketBox | None = None) -> None:
        """`tickets`: what conductors' orders brought; None: the client has an account of its own."""
        self._image, self._room, self._tickets = image, directory, tickets
        self._known: OrderedDict[str, _Facts] = OrderedDict()
        self._fetching: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock for each image that is being read; it exists while somebody holds it or waits for it."""
        self._uploads = asyncio.Semaphore(UPLOADS_AT_ONCE)

    # ---- reading ---------------------------------------------------------------------------------------------------

    async def fetch(self, image: ImageId) -> ImageFile:
        """Return the file with the image's data, which is read once and linked by each guest. It is inspected each time, because the
        checks improve with each release.
        """
        lock = self._fetching.setdefault(image, asyncio.Lock())
        async with lock:
            facts = self._known.get(image)
            was_read = facts is None or not self._use(image)
            if facts is None or was_read:
                facts = await self._patiently(lambda: self._fetch(image))
            self._known[image] = facts
            self._known.move_to_end(image)
            while len(self._known) > KEPT_MAX:
                self._known.popitem(last=False)
            if was_read:
                await asyncio.to_thread(_remove, self._let_old_go())
        inspected = await asyncio.to_thread(_inspect, image, self._path(image), facts.disk_format)
        return ImageFile(self._path(image), facts.disk_format, facts.container_format, inspected.virtual_size)

    async def _fetch(self, image: str) -> _Facts:
        record = await self._record(image, "read")
        if record.get("status") != WHOLE:
            raise HostFailed(
                f"image {image} cannot be read: it is {record.get('status')}", private=image, code=UNUSABLE
            )
        private_directory(self._room)
        self._drop_leftovers()
        coming = self._room / f"{quote(image, safe='')}.{uuid4().hex}{COMING}"  # another agent may read the same one
        try:
            with await asyncio.to_thread(private_file(coming).open, "wb") as file:
                ticket = self._ticket(image, "read")
                async for piece in self._image.read_data(
                    f"{_path(image)}/file", deadline_s=DATA_DEADLINE_S, headers=ticket
                ):
                    await asyncio.to_thread(file.write, piece)
            await asyncio.to_thread(_compare, image, record, coming)
            _touch(coming)
            with self._alone():
                os.replace(coming, self._path(image))
        finally:
            coming.unlink(missing_ok=True)
        return _Facts(record.get("disk_format") or "raw", record.get("container_format") or "bare")

    def _drop_leftovers(self) -> None:
        """Remove incomplete files of processes that ended."""
        oldest = time.time() - DATA_DEADLINE_S
        for each in self._room.glob(f"*{COMING}"):
            with contextlib.suppress(FileNotFoundError):
                if each.stat().st_mtime < oldest:
                    each.unlink()

    def _path(self, image: str) -> Path:
        return self._room / quote(image, safe="")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the cache against all other agents of this machine. Hold it only briefly, because the event loop waits meanwhile."""
        with (self._room / LOCK).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _use(self, image: str) -> bool:
        """Whether the file exists; it is then kept until it is linked."""
        try:
            with self._alone():
                _touch(self._path(image))
        except FileNotFoundError:
            return False
        return True

    def _let_old_go(self) -> list[Path]:
        """Rename the files that are to be removed; the caller removes them, because a large file takes time."""
        gone: list[Path] = []
        lately = time.time() - USED_LATELY_S
        with self._alone(), os.scandir(self._room) as room:
            kept = [each for each in room if each.name != LOCK and not each.name.endswith(COMING) and each.is_file()]
            used = sorted((each.stat().st_mtime, each.name) for each in kept)
            for when, name in used[: max(len(used) - KEPT_MAX, 0)]:
                if when < lately:
                    gone.append(self._room / f"{name}.{uuid4().hex}{COMING}")
                    os.rename(self._room / name, gone[-1])
        return gone

    # ---- writing ---------------------------------------------------------------------------------------------------

    async def send(self, image: ImageId, data: ImageFile) -> None:
        """Check the image, set its format and upload the data; check again whenever an answer was lost."""
        async with self._uploads:
            await self._patiently(lambda: self._send(image, data))

    async def _send(self, image: str, data: ImageFile) -> None:
        record = await self._record(image, "fill")
        while record.get("status") in UNDER_WAY:  # an upload whose answer was lost, perhaps ours
            await asyncio.sleep(jittered(AGAIN_FIRST_S))
            record = await self._record(image, "fill")
        if record.get("status") == WHOLE:
            return
        if record.get("status") != WAITS:
            raise HostFailed(
                f"image {image} takes no data: it is {record.get('status')}", private=image, code="image_refused"
            )
        await self._put_formats(record, data)
        size = data.path.stat().st_size
        await self._image.write_data(
            f"{_path(image)}/file",
            _pieces(data.path),
            size_bytes=size,
            deadline_s=DATA_DEADLINE_S,
            headers=self._ticket(image, "fill"),
        )

    async def _put_formats(self, record: Json, data: ImageFile) -> None:
        wanted = {"disk_format": data.disk_format, "container_format": data.container_format}
        changes = [
            {"op": "replace", "path": f"/{name}", "value": value}
            for name, value in wanted.items()
            if record.get(name) != value
        ]
        if changes:
            headers = {"Content-Type": PATCH, **self._ticket(record["id"], "fill")}
            await self._image.call("PATCH", _path(record["id"]), body=changes, headers=headers)

    # ---- both ------------------------------------------------------------------------------------------------------

    async def _record(self, image: str, direction: Direction) -> Json:
        return (await self._image.call("GET", _path(image), headers=self._ticket(image, direction))).body

    def _ticket(self, image: str, direction: Direction) -> dict[str, str]:
        """Return the header with the newest ticket. Raises HostFailed when the orders brought none."""
        if self._tickets is None:
            return {}
        if not (text := self._tickets.find(image, direction)):
            raise HostFailed(
                "the host may not use the image: its order came without a ticket", private=image, code="image_refused"
            )
        return {HEADER: text}

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Repeat the work while the image service is out, until the command's deadline. Raises HostFailed for all other failures."""
        pauses, refused = Backoff(AGAIN_FIRST_S, AGAIN_MOST_S), 0
        while True:
            try:
                return await work()
            except Conflict:  # another upload is under way: check again later
                pass
            except (NotFound, Gone) as missing:
                raise HostFailed(
                    "the image could not be found", private=missing.public, code="image_not_found"
                ) from missing
            except Unauthenticated as old:  # a newer ticket comes with the order, which is sent again
                refused += 1
                self._check_refused(refused, old.private)
            except Refusal as no:
                reason = f"the image service refused: {no.public}"
                raise HostFailed(reason, private=no.private, code="image_refused") from no
            except Unavailable as out:
                refused += out.code == CREDENTIALS
                self._check_refused(refused, out.private)
            await asyncio.sleep(pauses.next_s())

    def _check_refused(self, count: int, private: str) -> None:
        if count >= (REFUSED_MAX if self._tickets is None else TICKETS_MAX):
            what = "credentials" if self._tickets is None else "ticket"
            raise HostFailed(
                f"the image service does not accept the host's {what}", private=private, code="image_refused"
            )


def _path(image: str) -> str:
    return f"/v2/images/{quote(image, safe='')}"


def _touch(path: Path) -> None:
    now = time.time()
    os.utime(path, (now, now))


def _remove(files: Iterable[Path]) -> None:
    for each in files:
        each.unlink(missing_ok=True)


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            yield piece


def _inspect(image: str, path: Path, disk_format: str) -> Inspected:
    """Check the data. Raises HostFailed if they do not have the format that the image names, or if they refer to other files."""
    try:
        return check_use(path, disk_format)
    except Unsafe as why:
        raise HostFailed(f"image {image} cannot be used: {why}", private=image, code=UNUSABLE) from None


def _compare(image: str, record: Json, path: Path) -> None:
    """Compare the data with size and digest of the image's record. Raises Unavailable when they differ: then they are read again.

    Call this in a thread: the digest of a large image takes minutes, and the host must send heartbeats meanwhile.
    """
    size, algorithm, digest = record.get("size"), record.get("os_hash_algo"), record.get("os_hash_value")
    came = path.stat().st_size
    if isinstance(size, int) and size != came:
        raise Unavailable("the image's data arrived incomplete", private=f"{image}: {came} of {size} bytes")
    if not algorithm or not digest:
        return
    with contextlib.suppress(ValueError), path.open("rb") as file:  # this machine does not know the digest's algorithm
        if hashlib.file_digest(file, algorithm).hexdigest() != digest:
            raise Unavailable("the image's data arrived damaged", private=f"{image}: {algorithm} differs")


__all__ = ["ImageData"]
