"""One file of decision records: frames that are only appended, each with a digest that covers all before it.

A frame is its length (4 bytes), a digest of the digest before and of the payload, and the payload: some records, packed, as a part of
one compressed stream, for asks resemble one another.  What a killed process left half written, and what a disk has changed since, has
another digest: reading ends before it.
"""

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from moorage.model.decision_log import DecisionId, Header, Record
from moorage.model.errors import Invalid
from moorage.model.private_files import FILE_MODE

FORMAT = b"moorage-decisions/1\n"
SUFFIX = ".decisions"
DIGEST_BYTES = 16
LEVEL = 1
_LENGTH = struct.Struct("<I")
_HEAD_BYTES = _LENGTH.size + DIGEST_BYTES
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[Record]).decode


def path_of(directory: Path, recorder: str, segment: int) -> Path:
    return directory / f"{recorder}-{segment:09d}{SUFFIX}"


def file_of(directory: Path, decision: DecisionId) -> Path:
    return path_of(directory, decision.recorder, decision.segment)


def _chained(before: bytes, payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=DIGEST_BYTES, key=before).digest()


class SegmentWriter:
    """A new file. Raises OSError, also when there is one already."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)
        self._digest, self._stream = _chained(b"", FORMAT), zlib.compressobj(LEVEL)
        self.size_bytes = 0
        self._append(FORMAT)

    def write(self, records: Sequence[Record]) -> None:
        """One frame. Raises OSError: then the file ends, for whoever reads it, before this frame."""
        payload = self._stream.compress(_pack(records)) + self._stream.flush(zlib.Z_SYNC_FLUSH)
        digest = _chained(self._digest, payload)
        self._append(_LENGTH.pack(len(payload)) + digest + payload)
        self._digest = digest

    def _append(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._file, left) :]
        self.size_bytes += len(data)

    @property
    def removed(self) -> bool:
        """Another process, or a person, deleted the file."""
        return os.fstat(self._file).st_nlink == 0

    def close(self) -> None:
        os.close(self._file)


class SegmentReader:
    """Records of a file in their order, as far as they are whole; afterwards `problem` says whether something is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self.unread_bytes = 0
        self.header: Header | None = None

    def __iter__(self) -> Iterator[Record]:
        try:
            data = self.path.read_bytes()
        except OSError as failure:
            self.problem = f"{self.path} cannot be read: {failure.strerror or failure}"
            return
        if not data.startswith(FORMAT):
            self.problem = f"{self.path} does not begin as a file of decisions of this release does"
            self.unread_bytes = len(data)
            return
        at, digest, stream = len(FORMAT), _chained(b"", FORMAT), zlib.decompressobj()
        while at < len(data):
            self.unread_bytes = len(data) - at
            if len(data) < at + _HEAD_BYTES or len(data) < (end := self._end(data, at)):
                self.problem = f"{self.path} ends within a record: its process was killed, or writes it now"
                return
            payload = data[at + _HEAD_BYTES : end]
            stored, digest = data[at + _LENGTH.size : at + _HEAD_BYTES], _chained(digest, payload)
            if stored != digest:
                self.problem = f"{self.path} was changed after it was written: what follows byte {at} is passed over"
                return
            try:
                records = _unpack(stream.decompress(payload))
            except (zlib.error, msgspec.MsgspecError) as unknown:
                self.problem = f"{self.path} has a record that this release does not read: {unknown}"
                return
            at = end
            for record in records:
                if isinstance(record, Header):
                    self.header = record
                yield record
        self.unread_bytes = 0

    @staticmethod
    def _end(data: bytes, at: int) -> int:
        return at + _HEAD_BYTES + int(_LENGTH.unpack_from(data, at)[0])


def files_in(directories: Sequence[Path]) -> list[Path]:
    """All files of decisions, by recorder and in their order. Raises Invalid for what cannot be listed."""
    files: list[Path] = []
    for directory in directories:
        try:
            files += [each for each in directory.iterdir() if each.name.endswith(SUFFIX)]
        except OSError as failure:
            raise Invalid(f"no decisions can be read in {directory}: {failure.strerror or failure}") from failure
    return sorted(files, key=lambda each: (each.name, str(each)))
