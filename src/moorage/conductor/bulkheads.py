"""Limits how many operations are executed at once: a bulkhead for each kind, and within it for each project and cell.

Operations wait for services, for minutes and, when they unwind, for an hour. Without bulkheads a thousand boots that
wait for the network service would keep all stops and deletes from being executed. So each kind has places of its own,
and one project, or one cell, gets only a part of them.

An operation without a place waits in a queue: served in turn by (kind, project, cell), oldest first within each. The
queue is bounded; what does not fit waits in the table, which the conductor polls every second.

An operation that waits for others of its kind (a queued live migration) steps aside: the one for which it waits may
need a place.

A conductor that lost its lease may have executed more than its machine can carry; if it took up everything again, it
would lose the next lease too. So it begins with half of what it had under way, and each renewal in time adds a quarter
(multiplicative decrease, slow increase), until it has all its places again.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from moorage.model.ids import OperationId

KINDS = ("boot", "delete", "live_migrate", "action")
FEWER, MORE = 0.5, 1.25
"""Factors for the places of a kind: when a lease is lost, and at each renewal after that."""
QUEUE_MAX = 5_000
"""Operations that wait in memory, in one conductor."""
ASIDE_MAX = 2_000
"""Operations of one conductor that wait for one another without a place."""


@dataclass(frozen=True)
class Places:
    """How many operations one conductor executes at once."""

    boots: int = 500
    deletes: int = 250
    live_migrations: int = 250
    """They wait while the memory of a guest is sent, which may take hours."""
    actions: int = 250
    """All other kinds together: power, attach, detach."""
    project_part: float = 0.5
    """The part of a kind's places that one project may have."""
    cell_part: float = 0.5
    """The part of a kind's places that the servers of one cell may have. A boot counts for no cell: it has none when it
    begins.
    """

    def of(self, kind: str) -> int:
        """The places of this kind."""
        own = {"boot": self.boots, "delete": self.deletes, "live_migrate": self.live_migrations}
        return own.get(kind, self.actions)


@dataclass(frozen=True)
class Berth:
    """The kind, project and cell with which an operation takes a place."""

    kind: str
    project: str
    cell: str = ""
    """Empty: no cell."""


def berth_of(saga: str, project: str, cell: str | None) -> Berth:
    """The kind follows from the saga's name without its version."""
    kind = saga.partition("/")[0]
    kind = kind if kind in KINDS else "action"
    return Berth(kind, project, "" if kind == "boot" or cell is None else cell)


class Bulkheads:
    """The places that are taken, and the queue for places."""

    def __init__(self, places: Places, queue_max: int = QUEUE_MAX) -> None:
        self.places = places
        self._queue_max = queue_max
        self._taken: dict[OperationId, Berth] = {}
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._queues: OrderedDict[Berth, deque[OperationId]] = OrderedDict()
        self._waiting: set[OperationId] = set()
        self._aside: set[OperationId] = set()
        self._fewer: dict[str, int] = {}
        """Kind → its places for now, after a lost lease."""

    def __contains__(self, operation: OperationId) -> bool:
        return operation in self._taken

    def knows(self, operation: OperationId) -> bool:
        """Whether it has a place, or is in the queue."""
        return operation in self._taken or operation in self._waiting

    @property
    def waiting(self) -> int:
        """How many operations are in the queue."""
        return len(self._waiting)

    def standing(self, kind: str) -> tuple[int, int, int]:
        """For one kind: places for now, taken ones, and operations in the queue."""
        places = self.places.of(kind)
        queued = sum(len(queue) for berth, queue in self._queues.items() if berth.kind == kind)
        return self._fewer.get(kind, places), self._counts[kind,], queued

    def has_place(self, berth: Berth) -> bool:
        """Whether one more operation of this kind, project and cell may begin."""
        places = self.places.of(berth.kind)
        now = self._fewer.get(berth.kind, places)
        project_most = max(1, int(places * self.places.project_part))
        cell_most = max(1, int(places * self.places.cell_part))
        return (
            self._counts[berth.kind,] < now
            and self._counts[berth.kind, "project", berth.project] < min(places, project_most)
            and (not berth.cell or self._counts[berth.kind, "cell", berth.cell] < min(places, cell_most))
        )

    def give_fewer(self) -> None:
        """The lease was lost: the limit becomes half of what is under way. A kind with nothing under way keeps its
        limit.
        """
        for kind in KINDS:
            if under_way := self._counts[kind,]:
                self._fewer[kind] = max(1, int(under_way * FEWER))

    def give_more(self) -> bool:
        """The lease was renewed in time; returns whether there are more places now."""
        grown = {kind: max(places + 1, int(places * MORE)) for kind, places in self._fewer.items()}
        self._fewer = {kind: places for kind, places in grown.items() if places < self.places.of(kind)}
        return bool(grown)

    def enter(self, operation: OperationId, berth: Berth) -> None:
        """Take a place; the caller has checked `has_place`."""
        self._taken[operation] = berth
        for key in _keys(berth):
            self._counts[key] += 1

    def leave(self, operation: OperationId) -> bool:
        """Release the place; returns whether operations wait in the queue."""
        for key in _keys(self._taken.pop(operation)):
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]
        return bool(self._waiting)

    def step_aside(self, operation: OperationId) -> bool:
        """Release the place while it waits for others. Returns False when it has no place, or too many have stepped
        aside; then it keeps its place.
        """
        if operation not in self._taken or len(self._aside) >= ASIDE_MAX:
            return False
        for key in _keys(self._taken[operation]):
            self._counts[key] -= 1
        self._aside.add(operation)
        return True

    def step_back(self, operation: OperationId) -> None:
        """Its turn has come: it goes on even when no place is free, because others wait for it."""
        self._aside.discard(operation)
        for key in _keys(self._taken[operation]):
            self._counts[key] += 1

    @contextmanager
    def aside(self, operation: OperationId, freed: Callable[[], None]) -> Iterator[None]:
        """A context manager: while it waits for its turn, others may have its place. `freed`: called when a place
        becomes free.
        """
        if not self.step_aside(operation):
            yield
            return
        freed()
        try:
            yield
        finally:
            self.step_back(operation)

    def wait(self, operation: OperationId, berth: Berth) -> bool:
        """Join the queue. Returns False when it is full."""
        if operation in self._waiting or operation in self._taken:
            return True
        if len(self._waiting) >= self._queue_max:
            return False
        self._waiting.add(operation)
        self._queues.setdefault(berth, deque()).append(operation)
        return True

    def next_ones(self, most: int) -> list[OperationId]:
        """Take from the queue operations that have a place now, at most `most`, in turn among the queues."""
        chosen: list[OperationId] = []
        served = True
        while served and len(chosen) < most:
            served = False
            for berth in list(self._queues):
                if len(chosen) >= most or not self.has_place(berth):
                    continue
                queue = self._queues[berth]
                operation = queue.popleft()
                self._waiting.discard(operation)
                self._queues.move_to_end(berth)  # a queue that was served goes behind the others
                if not queue:
                    del self._queues[berth]
                self.enter(operation, berth)
                chosen.append(operation)
                served = True
        return chosen

    def forget_waiting(self) -> None:
        """Empty the queue: its operations are in the table."""
        self._queues.clear()
        self._waiting.clear()


def _keys(berth: Berth) -> list[tuple[str, ...]]:
    keys: list[tuple[str, ...]] = [(berth.kind,), (berth.kind, "project", berth.project)]
    if berth.cell:
        keys.append((berth.kind, "cell", berth.cell))
    return keys
