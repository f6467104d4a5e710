"""Plans moves between cells that balance their use of memory and addresses; the scheduler chooses the host of each move.

The search is greedy: it repeatedly takes the move that helps most (of equal ones the cheapest), until no move helps enough.  Each move
takes its resources from a copy of the world, and releases nothing there.  So no move needs room that another one frees, and all
moves fit in any order, whenever they are confirmed.  The measure of balance does count what moves release.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from moorage.model.ids import CellId, ProviderId, ServerId
from moorage.model.verdict import Verdict
from moorage.model.world import Ask, Choice, World
from moorage.scheduler.trial import Trial

MEMORY = "MEMORY_MB"
GAIN_LEAST = 0.01
"""The least gain of a move, as a part of the unevenness at the beginning."""
REFUSED_MAX = 5
"""After a cell has refused this many servers of one kind, it is not tried for further ones of that kind."""

Amounts = NDArray[np.float64]
Addresses = tuple[tuple[ProviderId, int], ...]


class MovableServer(NamedTuple):
    """A server that may be moved."""

    server: ServerId
    cell: CellId
    memory_mib: int
    addresses: Addresses
    """Segment → how many of its addresses the server has."""
    cost: int
    """Bytes that a move of the server would copy."""


class Level(msgspec.Struct, frozen=True):
    """How full one cell is."""

    cell: CellId
    memory_mib: int
    memory_used_mib: int
    addresses: int
    addresses_used: int
    """A segment that reaches several cells counts for each in proportion to its hosts on the segment."""


class Levels:
    """How full the cells are that are enabled and answer, counted over their hosts that are in service."""

    def __init__(self, world: World, out: Collection[CellId] = ()) -> None:
        usable = world.present & world.enabled & world.alive & ~world.cell_disabled
        index = world.cell
        self.cells = tuple(
            cell
            for number, cell in enumerate(world.cell_names)
            if cell not in out and np.any(usable & (index == number))
        )
        self._at = {cell: place for place, cell in enumerate(self.cells)}
        numbers = [list(world.cell_names).index(cell) for cell in self.cells]
        self.memory, self.memory_used = self._none(), self._none()
        if MEMORY in world.capacity:
            for place, number in enumerate(numbers):
                mine = usable & (index == number)
                self.memory[place] = world.capacity[MEMORY][mine].sum()
                self.memory_used[place] = self.memory[place] - world.free[MEMORY][mine].sum()
        self._parts: dict[ProviderId, Amounts] = {}
        self.addresses, self.addresses_used = self._none(), self._none()
        for id, segment in world.segments.items():
            wired = usable & segment.wired
            hosts = np.array([np.count_nonzero(wired & (index == number)) for number in numbers], dtype=np.float64)
            if total := hosts.sum():
                part = self._parts[id] = hosts / total
                self.addresses += part * segment.total
                self.addresses_used += part * (segment.total - segment.free)

    def _none(self) -> Amounts:
        return np.zeros(len(self.cells), dtype=np.float64)

    def rounded(self) -> tuple[Level, ...]:
        numbers = zip(
            self.cells,
            *(np.rint(each).astype(int).tolist() for each in (self.memory, self.memory_used)),
            *(np.rint(each).astype(int).tolist() for each in (self.addresses, self.addresses_used)),
            strict=True,
        )
        return tuple(Level(*each) for each in numbers)

    def unevenness(self) -> float:
        """Return 0 if all cells are equally full: the variance of the used part of memory and of addresses, weighted by the cells' size."""
        return _variance(self.memory_used, self.memory) + _variance(self.addresses_used, self.addresses)

    def has(self, cell: CellId) -> bool:
        return cell in self._at

    def moved(self, memory_mib: int, source: CellId, target: CellId, left: Addresses, taken: Addresses) -> "Levels":
        """Return the levels after a move."""
        after: Levels = object.__new__(Levels)
        after.__dict__.update(self.__dict__)
        after.memory_used, after.addresses_used = self.memory_used.copy(), self.addresses_used.copy()
        for cell, sign in ((source, -1), (target, +1)):
            if cell in self._at:
                after.memory_used[self._at[cell]] += sign * memory_mib
        for addresses, sign in ((left, -1), (taken, +1)):
            for segment, amount in addresses:
                if segment in self._parts:
                    after.addresses_used += sign * amount * self._parts[segment]
        return after

    def elsewhere(self, addresses: Addresses, target: CellId) -> Addresses:
        """Return those addresses that would have to be of other segments in that cell, because its hosts are not on theirs."""
        at = self._at[target]
        return tuple(each for each in addresses if each[0] in self._parts and not self._parts[each[0]][at])

    def guess(self, one: MovableServer, target: CellId) -> float:
        """Estimate the unevenness after a move, before its segments are known."""
        left = self.elsewhere(one.addresses, target)
        after = self.moved(one.memory_mib, one.cell, target, left, ())
        after.addresses_used[self._at[target]] += sum(amount for _, amount in left)
        return after.unevenness()


def _variance(used: Amounts, total: Amounts) -> float:
    stocked = total > 0
    if np.count_nonzero(stocked) < 2:
        return 0.0
    part, weight = used[stocked] / total[stocked], total[stocked] / total[stocked].sum()
    mean = float((part * weight).sum())
    return float((weight * (part - mean) ** 2).sum())


class MoveRequest(NamedTuple):
    """The asks for a move of one server, which are tried in order; and for each NIC the addresses that it would leave."""

    asks: Sequence[Ask]
    held: Sequence[tuple[ProviderId, int] | None]


class ProposedMove(NamedTuple):
    """One move of the plan."""

    resident: MovableServer
    choice: Choice
    unevenness: float
    """The unevenness after this move and those before it."""


@dataclass
class Balance:
    """A plan that grows: `best` names the server whose move would help most, `place` adds the move, `leave` drops the server."""

    trial: Trial
    residents: Sequence[MovableServer]
    out: Collection[CellId] = ()
    """Cells whose databases do not answer."""
    moves: list[ProposedMove] = field(default_factory=list[ProposedMove])

    def __post_init__(self) -> None:
        self.levels = Levels(self.trial.world, self.out)
        self.before = self.levels.rounded()
        self.start = self.levels.unevenness()
        self._left: dict[tuple[CellId, int, Addresses], list[MovableServer]] = {}
        for each in sorted(self.residents, key=lambda each: (each.cost, each.server), reverse=True):
            if self.levels.has(each.cell):
                self._left.setdefault((each.cell, each.memory_mib, each.addresses), []).append(each)
        self._refused: dict[tuple[object, CellId], int] = {}
        self._passed: set[tuple[ServerId, CellId]] = set()

    def best(self) -> tuple[MovableServer, CellId] | None:
        """Return the server that should move next, and its target cell; None: no move helps enough."""
        best: tuple[float, int, MovableServer, CellId] | None = None
        most = self.levels.unevenness() - GAIN_LEAST * self.start
        for kind, alike in self._left.items():
            for target in self.levels.cells:
                if target == kind[0] or self._refused.get((kind, target), 0) >= REFUSED_MAX:
                    continue
                one = next((each for each in reversed(alike) if (each.server, target) not in self._passed), None)
                if one is None or (after := self.levels.guess(one, target)) >= most:
                    continue
                if best is None or (after, one.cost, one.server) < (best[0], best[1], best[2].server):
                    best = after, one.cost, one, target
        return None if best is None else (best[2], best[3])

    def place(self, one: MovableServer, target: CellId, wish: MoveRequest) -> ProposedMove | Verdict | None:
        """Add the server's move if the cell has a place and it helps; else return the verdict that rejects it, or None: it does not help."""
        verdict: Verdict | None = None
        for ask in wish.asks:
            narrowed = msgspec.structs.replace(ask, cells=(target,), host=None)
            verdict = self.trial.decide(narrowed)
            if verdict.best:
                return self._placed(one, target, narrowed, verdict.best[0], wish)
        self._pass(one, target)
        kind = one.cell, one.memory_mib, one.addresses
        self._refused[kind, target] = self._refused.get((kind, target), 0) + 1
        return verdict

    def _placed(
        self, one: MovableServer, target: CellId, ask: Ask, choice: Choice, wish: MoveRequest
    ) -> ProposedMove | None:
        left: list[tuple[ProviderId, int]] = []
        taken: list[tuple[ProviderId, int]] = []
        for nic, segment, held in zip(ask.nics, choice.segments, wish.held, strict=False):
            if segment is not None and nic.addresses:
                taken.append((segment, nic.addresses))
                left += [] if held is None else [held]
        after = self.levels.moved(one.memory_mib, one.cell, target, tuple(left), tuple(taken))
        if after.unevenness() >= self.levels.unevenness() - GAIN_LEAST * self.start:
            self._pass(one, target)
            return None
        self.trial.take(ask, choice)
        self.levels = after
        self.leave(one)
        move = ProposedMove(one, choice, after.unevenness())
        self.moves.append(move)
        return move

    def leave(self, one: MovableServer) -> None:
        """Remove the server from the candidates: it is moved, or cannot be moved."""
        self._left[one.cell, one.memory_mib, one.addresses].remove(one)

    def _pass(self, one: MovableServer, target: CellId) -> None:
        self._passed.add((one.server, target))
