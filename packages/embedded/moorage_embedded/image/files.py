"""Image data on disk: written to a temporary file, synced, then renamed, so that a file under an image's id is always complete."""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from moorage.model.private_files import private_directory, private_file

PIECE_BYTES = 1024 * 1024
PART = ".part"
STAGED = ".staged"
"""After an image's id: data that waits to be imported."""
_ZEROES = bytes(2 * PIECE_BYTES)


class ImageTooLong(Exception):
    """More came than is allowed."""


@dataclass(frozen=True)
class Received:
    """What was written, before it has its name."""

    path: Path
    size: int
    checksum: str
    sha512: str


class _Sink:
    """Writes and digests one piece; runs in a thread, for digesting is slow."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.md5 = hashlib.md5(usedforsecurity=False)
        self.sha512 = hashlib.sha512()
        self.size = 0

    def take(self, piece: bytes) -> None:
        """What is zeroes is left out: the file has a hole there, and reads the same."""
        if piece == _ZEROES[: len(piece)]:
            self.file.seek(len(piece), os.SEEK_CUR)
        else:
            self.file.write(piece)
        self.md5.update(piece)
        self.sha512.update(piece)
        self.size += len(piece)

    def sync(self) -> None:
        self.file.truncate(self.size)
        self.file.flush()
        os.fsync(self.file.fileno())


async def _pieces(chunks: AsyncIterable[bytes], limit: int) -> AsyncIterator[bytes]:
    """Chunks, gathered to a size worth a thread."""
    gathered = bytearray()
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise ImageTooLong
        gathered += chunk
        if len(gathered) >= PIECE_BYTES:
            yield bytes(gathered)
            gathered.clear()
    if gathered:
        yield bytes(gathered)


class ImageDirectory:
    """One directory, in which only this service writes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, image: str) -> Path:
        return self._directory / image

    async def receive(self, image: str, chunks: AsyncIterable[bytes], limit: int) -> Received:
        """Write the incoming data to a partial file next to the final name. Raises TooLong when it exceeds the limit; the partial file is then deleted."""
        part = self._directory / f"{image}{PART}"
        file = await asyncio.to_thread(private_file(part).open, "wb")
        sink = _Sink(file)
        try:
            async for piece in _pieces(chunks, limit):
                await asyncio.to_thread(sink.take, piece)
            await asyncio.to_thread(sink.sync)
        except BaseException:
            file.close()
            part.unlink(missing_ok=True)
            raise
        file.close()
        return Received(part, sink.size, sink.md5.hexdigest(), sink.sha512.hexdigest())

    async def keep(self, image: str, received: Received) -> bool:
        """Give what was received its name; False when the image was deleted meanwhile, and the part with it."""
        try:
            await asyncio.to_thread(self._rename, received.path, self.path(image))
        except FileNotFoundError:
            return False
        return True

    def _rename(self, part: Path, final: Path) -> None:
        part.replace(final)
        handle = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    async def forget(self, image: str) -> None:
        """Remove an image's data and what is left of an upload, if any."""
        for end in ("", PART, STAGED, STAGED + PART):
            with contextlib.suppress(FileNotFoundError):
                await asyncio.to_thread((self._directory / f"{image}{end}").unlink)

    async def unstage(self, image: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            await asyncio.to_thread((self._directory / f"{image}{STAGED}").unlink)

    async def send(self, file: BinaryIO, first: int, length: int) -> AsyncIterator[bytes]:
        """`length` bytes from `first`; the file is closed at the end."""
        try:
            while length > 0:
                piece = await asyncio.to_thread(os.pread, file.fileno(), min(PIECE_BYTES, length), first)
                if not piece:
                    return
                first += len(piece)
                length -= len(piece)
                yield piece
        finally:
            file.close()

    def sweep(self, keep: set[str]) -> None:
        """At start: make the directory, remove parts and the data of images that are no more."""
        private_directory(self._directory)
        for path in self._directory.iterdir():
            if path.is_file() and path.name not in keep:
                path.unlink()
