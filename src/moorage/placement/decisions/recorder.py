"""Keeps the decisions of one process: what differs of the columns since the decision before, the ask, and a digest of the answer.

`decided` compares columns and returns; a thread of its own packs and writes, so that no boot waits for a disk.  When the thread
is too far behind, or the disk fails, records are left out and counted, and the next file begins with all columns again.
"""

import asyncio
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from moorage import __version__
from moorage.model.column_changes import ColumnChanges
from moorage.model.decision_log import (
    ClaimReleased,
    ClaimTaken,
    Decided,
    DecisionId,
    Event,
    Header,
    Members,
    MoveReverted,
    Place,
    Subject,
    digest_of,
    encoded_ask,
)
from moorage.model.private_files import private_directory
from moorage.model.verdict import Verdict
from moorage.model.world import Ask, World
from moorage.model.world_columns import WorldColumns
from moorage.placement.cache.cache import ProviderCache
from moorage.placement.decisions.segment_file import SUFFIX, SegmentWriter, path_of

log = logging.getLogger(__name__)

FILES = 16
"""The room is for so many files of equal size: the oldest goes when the next is begun."""
FULL_STATES_MIN = 4
"""A file is at least so many times as long as the columns with which it begins."""
QUEUE_MAX = 5_000
GATHERED_FOR_S = 0.1
"""Records that come within that time are one frame: a thread that wakes for each costs more than the record."""
COMPARED_AGAIN_EVERY = 100
"""Decisions after which all columns are compared, whether or not the cache counted a change."""
AGAIN_AFTER_S = 10.0
"""After a failure of the disk."""
CLOSE_WITHIN_S = 10.0


class RecorderLimits(NamedTuple):
    """How much is kept, and how long."""

    bytes_max: int
    age_max_s: float

    @property
    def file_bytes(self) -> int:
        return max(1, self.bytes_max // FILES)


class _Pending(NamedTuple):
    """A decision that is not encoded yet."""

    number: int
    at: float
    subject: Subject
    ask: Ask
    verdict: Verdict
    changes: ColumnChanges
    group: Members | None
    claims: tuple[tuple[str, str, int], ...]

    def record(self) -> Decided:
        best = self.verdict.best
        return Decided(
            self.number,
            self.at,
            *self.subject,
            ask=encoded_ask(self.ask),
            changes=self.changes,
            digest=digest_of(self.verdict),
            place=Place.of(best[0]) if best else None,
            group=self.group,
            pending=self.claims,  # type: ignore[arg-type]
        )


class DecisionRecorder:
    """One life of one process; its thread begins with the first record."""

    def __init__(
        self,
        directory: Path,
        *,
        multipliers: Mapping[str, float],
        limits: RecorderLimits,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = os.urandom(6).hex()
        self._clock = clock
        self._state = WorldColumns()
        self._world: World | None = None
        self._versions = (-1, -1)
        self._devices_of: World | None = None
        self._devices_version = -1
        self._lock = threading.Lock()
        self._segment, self._begun_at = 0, clock()
        self._number, self._full_in = 0, -1
        self._places: dict[str, Place] = {}
        self._writer = _Writer(directory, self.name, dict(multipliers), limits)
        self._limits = limits

    def decided(self, picture: ProviderCache, ask: Ask, verdict: Verdict, subject: Subject) -> str:
        """Called before the next await, so that the columns are those that were decided on; the decision's id."""
        now, world = self._clock(), picture.world()
        changes = self._changes(picture, world, devices=bool(ask.groups))
        group = None if ask.group is None else picture.groups.get(ask.group.id)
        pending = tuple((*key, held) for key, held in picture.pending.items()) if ask.groups else ()
        with self._lock:
            self._advance(now)
            if self._full_in != self._segment:
                changes, self._full_in = self._state.everything(), self._segment
            self._number += 1
            number, segment = self._number, self._segment
            members = None if group is None else Members.of(group)
            record = _Pending(number, now, subject, ask, verdict, changes, members, pending)
            self._writer.put(segment, record)
        if verdict.best:
            self._remember(subject.consumer, Place.of(verdict.best[0]))
        return str(DecisionId(self.name, segment, number))

    def taken(self, consumer: str, place: Place) -> None:
        """A claim was committed; written where it is not where the decision said."""
        if self._places.pop(consumer, None) != place:
            self._put(ClaimTaken(self._clock(), consumer, place))

    def released(self, consumer: str, *, addresses_stay: bool = False) -> None:
        """A consumer gives back what it held. From any thread."""
        self._put(ClaimReleased(self._clock(), consumer, addresses_stay))

    def reverted(self, consumer: str, migration: str) -> None:
        """A move's source is the server's again. From any thread."""
        self._put(MoveReverted(self._clock(), consumer, migration))

    @property
    def stored(self) -> int:
        """Records that are in a file, of decisions and of what became of them."""
        return self._writer.stored

    @property
    def lost(self) -> int:
        """Records that are in none: there were too many at once, or the directory could not be written."""
        return self._writer.lost

    async def close(self) -> None:
        """Write what is waiting."""
        await asyncio.to_thread(self._writer.close)

    def _put(self, event: Event) -> None:
        with self._lock:
            self._advance(event.at)
            self._writer.put(self._segment, event)

    def _remember(self, consumer: str, place: Place) -> None:
        self._places.pop(consumer, None)
        if len(self._places) >= QUEUE_MAX:
            del self._places[next(iter(self._places))]
        self._places[consumer] = place

    def _advance(self, now: float) -> None:
        """To the next file, when this one is long or old enough, or could not be written."""
        old = now - self._begun_at > self._limits.age_max_s / FILES
        if self._writer.ended(self._segment) or (old and self._writer.written(self._segment)):
            self._segment, self._begun_at, self._number = self._segment + 1, now, 0

    def _changes(self, picture: ProviderCache, world: World, *, devices: bool) -> ColumnChanges:
        versions = picture.columns_version, picture.names_version
        names = world is not self._world or versions[1] != self._versions[1]
        of_devices = devices and (world is not self._devices_of or versions[1] != self._devices_version)
        if names or of_devices or versions != self._versions or self._number % COMPARED_AGAIN_EVERY == 0:
            changes = self._state.follow(world, names=names, devices=of_devices)
        else:
            changes = self._state.follow_amounts(world)
        self._world, self._versions = world, versions
        if of_devices:
            self._devices_of, self._devices_version = world, versions[1]
        return changes


class _Writer:
    """The thread, its queue, and the files."""

    def __init__(self, directory: Path, name: str, multipliers: dict[str, float], limits: RecorderLimits) -> None:
        self._directory, self._name, self._multipliers, self._limits = directory, name, multipliers, limits
        self._queue: queue.SimpleQueue[tuple[int, _Pending | Event] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._file: SegmentWriter | None = None
        self._segment = -1
        self._file_bytes = limits.file_bytes
        self._ended = -1
        """The last file that is to be followed by another."""
        self._gap = self._failed = -1
        """The last file in which a record is missing because the queue was full, or because it could not be written."""
        self._again_at = 0.0
        self._refused = self._dropped = self._counted = 0
        """Records that the queue did not take, that the thread could not write, and those of both that a file's header has."""
        self.accepted = self.handled = 0
        """Records that were put into the queue, and those that were taken from it and written, or lost."""

    # ------------------------------------------------------------------------------------ whoever decides calls

    def put(self, segment: int, record: _Pending | Event) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="decision-recorder", daemon=True)
            self._thread.start()
        if self._gap >= segment:  # later changes would be of a state that nobody can read
            self._refused += 1
            return
        if self._queue.qsize() >= QUEUE_MAX:
            self._refused += 1
            self._gap = self._ended = segment
            return
        self.accepted += 1
        self._queue.put((segment, record))

    def ended(self, segment: int) -> bool:
        """Nothing more is to be put into this file, and the next may be begun."""
        return self._ended >= segment and self._queue.qsize() < QUEUE_MAX and time.monotonic() >= self._again_at

    @property
    def lost(self) -> int:
        """Records that were not written."""
        return self._refused + self._dropped

    @property
    def stored(self) -> int:
        """Records that were written."""
        return self.handled - self._dropped

    def written(self, segment: int) -> bool:
        """There is something in this file."""
        return self._segment == segment

    def close(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(CLOSE_WITHIN_S)

    # --------------------------------------------------------------------------------------- in the thread only

    def _run(self) -> None:
        waiting: list[tuple[int, _Pending | Event]] = []
        while (item := self._queue.get()) is not None:
            time.sleep(GATHERED_FOR_S)
            waiting.append(item)
            over = self._gather(waiting)
            count = len(waiting)
            self._write(waiting)
            self.handled += count
            if over:
                break
        self._close_file()

    def _gather(self, waiting: list[tuple[int, _Pending | Event]]) -> bool:
        """What else is in the queue; whether it is the end."""
        while len(waiting) < QUEUE_MAX:
            try:
                more = self._queue.get_nowait()
            except queue.Empty:
                return False
            if more is None:
                return True
            waiting.append(more)
        return False

    def _write(self, waiting: list[tuple[int, _Pending | Event]]) -> None:
        """Those of one file in one frame."""
        while waiting:
            segment = waiting[0][0]
            count = next((place for place, each in enumerate(waiting) if each[0] != segment), len(waiting))
            mine = [record for _, record in waiting[:count]]
            del waiting[:count]
            if segment <= self._failed:
                self._dropped += len(mine)
                continue
            try:
                self._write_to(segment, mine)
            except OSError as failure:
                self._dropped += len(mine)
                self._fail(segment, failure.strerror or str(failure))
            except Exception as failure:  # noqa: BLE001  what cannot be encoded must not end the thread: a boot goes on without
                self._dropped += len(mine)
                self._fail(segment, str(failure))

    def _write_to(self, segment: int, mine: list[_Pending | Event]) -> None:
        if self._file is None or segment != self._segment:
            self._begin(segment)
        assert self._file is not None
        if self._file.removed:
            raise FileNotFoundError(None, "its file was deleted")
        records = [each.record() if isinstance(each, _Pending) else each for each in mine]
        before = self._file.size_bytes
        self._file.write(records)
        if any(isinstance(each, Decided) and each.changes.full for each in records):
            self._make_room_for(self._file.size_bytes - before)
        if self._file.size_bytes >= self._file_bytes:
            self._ended = max(self._ended, segment)

    def _make_room_for(self, full_bytes: int) -> None:
        """The file begins with all columns, which took so much."""
        most = self._limits.bytes_max // 2
        if full_bytes > most:
            raise OSError(
                None, f"the columns of the fleet take {full_bytes} bytes, and no more than {most} may be kept"
            )
        self._file_bytes = min(max(self._limits.file_bytes, FULL_STATES_MIN * full_bytes), most)
        self._prune()

    def _begin(self, segment: int) -> None:
        self._close_file()
        private_directory(self._directory)
        self._prune()
        self._file, self._segment = SegmentWriter(path_of(self._directory, self._name, segment)), segment
        lost = self.lost
        self._file.write([Header(self._name, segment, __version__, self._multipliers, lost - self._counted)])
        self._counted = lost

    def _prune(self) -> None:
        """The oldest files go: those too old, and as many as the next file needs room."""
        mine = None if self._file is None else path_of(self._directory, self._name, self._segment)
        others = [each for each in self._directory.iterdir() if each.name.endswith(SUFFIX) and each != mine]
        files = [(each.stat(), each) for each in others]
        files.sort(key=lambda pair: pair[0].st_mtime)
        room = self._limits.bytes_max - self._file_bytes
        total, oldest = sum(status.st_size for status, _ in files), time.time() - self._limits.age_max_s
        for status, path in files:
            if total > room or status.st_mtime < oldest:
                path.unlink(missing_ok=True)
                total -= status.st_size

    def _fail(self, segment: int, why: str) -> None:
        self._ended, self._failed = max(self._ended, segment), segment
        self._again_at = time.monotonic() + AGAIN_AFTER_S
        self._close_file()
        log.warning("decisions are not recorded for %g s: %s: %s", AGAIN_AFTER_S, self._directory, why)

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # what it said of earlier writes is known by their digests
                file.close()
