"""Volumes and snapshots on disk: one sparse file each, so unwritten space uses no disk."""

import contextlib
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

from moorage.model.private_files import private_directory, private_file

PIECE_BYTES = 1024 * 1024
GIB = 1024**3
_ZEROES = bytes(2 * PIECE_BYTES)


class VolumeTooLong(Exception):
    """More came than the volume holds."""


class VolumeFiles:
    """One directory; hosts open the files of their connected volumes, and only this service writes there otherwise."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def directory(self) -> Path:
        return self._directory

    def volume(self, id: str) -> Path:
        return self._directory / f"volume-{id}"

    def snapshot(self, id: str) -> Path:
        return self._directory / f"snapshot-{id}"

    @staticmethod
    def part(path: Path) -> Path:
        """Where a copy is until it is whole."""
        return path.with_name(f"{path.name}.part")

    @staticmethod
    def partial_path(path: Path) -> Path:
        """Where an image is until its content is in the volume."""
        return path.with_name(f"{path.name}.image")

    def make(self, path: Path, size_gib: int) -> None:
        """Zeroes, whatever was there before."""
        with private_file(path).open("wb") as file:
            file.truncate(size_gib * GIB)

    def grow(self, path: Path, size_gib: int) -> None:
        """Zeroes are added; a file that is as large already stays as it is."""
        with path.open("ab") as file:
            if file.tell() < size_gib * GIB:
                file.truncate(size_gib * GIB)

    def copy(self, source: Path, target: Path, size_gib: int) -> None:
        """The source's data, without its holes, in a file of this size; it has its name when it is whole."""
        part = self.part(target)
        with source.open("rb") as read, private_file(part).open("wb") as written:
            for start, end in _extents(read.fileno()):
                _copy(read.fileno(), written.fileno(), start, end)
            written.truncate(size_gib * GIB)
        part.replace(target)

    async def fill(self, path: Path, size_gib: int, pieces: AsyncIterator[bytes]) -> int:
        """What comes, at the beginning of a new file of this size; how many bytes that were. Raises VolumeTooLong."""
        self.make(path, size_gib)
        at = 0
        with path.open("r+b") as file:
            async for piece in pieces:
                if at + len(piece) > size_gib * GIB:
                    raise VolumeTooLong
                if piece != _ZEROES[: len(piece)]:
                    os.pwrite(file.fileno(), piece, at)
                at += len(piece)
        return at

    async def read(self, path: Path) -> AsyncIterator[bytes]:
        """All of it."""
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    def forget(self, path: Path) -> None:
        """Remove it, if it is there."""
        for each in (path, self.part(path), self.partial_path(path)):
            with contextlib.suppress(FileNotFoundError):
                each.unlink()

    def sweep(self, keep: set[str]) -> None:
        """At start: make the directory, remove what belongs to no volume and no snapshot."""
        private_directory(self._directory)
        for path in self._directory.iterdir():
            if path.is_file() and path.name not in keep:
                path.unlink()


def _extents(file: int) -> list[tuple[int, int]]:
    """Where data is; a file system that does not know says that all is data."""
    found: list[tuple[int, int]] = []
    end = os.fstat(file).st_size
    at = 0
    while at < end:
        try:
            start = os.lseek(file, at, os.SEEK_DATA)
        except OSError as none_left:
            if none_left.errno == errno.ENXIO:
                break
            raise
        at = os.lseek(file, start, os.SEEK_HOLE)
        found.append((start, at))
    return found


def _copy(source: int, target: int, start: int, end: int) -> None:
    while start < end:
        piece = os.pread(source, min(PIECE_BYTES, end - start), start)
        if not piece:
            return
        os.pwrite(target, piece, start)
        start += len(piece)
