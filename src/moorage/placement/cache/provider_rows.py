"""All providers in columns: one place for each, its facts in arrays, its inventories next to each other in two more
(docs/engine.md, P12).

What similar providers have in common (sets of traits and aggregates, inventories without usage) exists once, and has a
number. A `Provider` is made when it is needed (`provider_objects.py`).

A place stays its provider's: it is found again under its id, and others name their parent and root by it, also while
those were not read yet. Unused memory (places of deleted providers, inventories that moved) is counted in `waste`; the
engine loads everything again when it is too much.
"""

import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from moorage.model.ids import ProviderId
from moorage.placement.cache.provider import InventoryKind, InventoryRow, Layout, Provider

ALIKE_MAX = 20_000
NOT_READ = -1
NOWHERE = -1

T = TypeVar("T")


class Numbered(dict[T, int]):
    """Gives equal values one number."""

    def __init__(self, first: T) -> None:
        super().__init__()
        self.all: list[T] = []
        _ = self[first]

    def __missing__(self, key: T) -> int:
        number = self[key] = len(self.all)
        self.all.append(key)
        return number


class Kinds(Numbered[InventoryKind]):
    """May be asked with any tuple of a kind's numbers."""

    @override
    def __missing__(self, key: InventoryKind) -> int:
        return super().__missing__(InventoryKind(sys.intern(key[0]), *key[1:]))


class Layouts(dict[tuple[int, ...], int]):
    """Numbers of kinds, in order → the number of that layout."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = Kinds(InventoryKind("", 0, 0, 1.0, 1, 1, 1, 0))
        self.all: list[Layout] = []
        _ = self[()]

    def __missing__(self, key: tuple[int, ...]) -> int:
        number = self[key] = len(self.all)
        self.all.append(Layout(tuple(self.kinds.all[kind] for kind in key)))
        return number

    def of(self, kinds: Iterable[InventoryKind]) -> int:
        """The number of a layout; its class names are shared strings from then on."""
        return self[tuple(self.kinds[kind] for kind in kinds)]


class Rows:
    """The columns. `place` is a provider's index in all of them."""

    def __init__(self) -> None:
        self.index: dict[ProviderId, int] = {}
        self.ids: list[ProviderId] = []
        self.names: list[str] = []
        self.parent = array("i")
        self.root = array("i")
        self.generation = array("q")
        self.version = array("q")
        """NOT_READ: only others refer to it, or it was removed."""
        self.updated_at = array("q")
        self.traits = array("i")
        self.aggregates = array("i")
        self.layout = array("i")
        self.first = array("q")
        """Where its inventories begin in `used` and `stock_version`."""
        self.slot = array("i")
        """Its slot in the columns of providers below hosts; a root has none there."""
        self.head = array("i")
        """For a root: the first place of its tree."""
        self.next = array("i")
        """The next place of its tree."""
        self.used = array("q")
        self.stock_version = array("q")
        self.sets: Numbered[frozenset[str]] = Numbered(frozenset())
        self.layouts = Layouts()
        self.count = 0
        """Providers that were read."""
        self.trees_count = 0
        self.waste = 0
        self._alike: dict[tuple[int, bytes], Mapping[str, InventoryRow]] = {}
        self._blank = (
            *((each, -1) for each in (self.parent, self.root, self.slot, self.head, self.next, self.version)),
            *((each, 0) for each in (self.generation, self.updated_at, self.traits, self.aggregates)),
            *((each, 0) for each in (self.layout, self.first)),
        )

    # -------------------------------------------------------------------------------------------------- places

    def place(self, uuid: ProviderId) -> int:
        """The place of a provider; it gets one if it has none."""
        place = self.index.get(uuid)
        if place is None:
            place = self.index[uuid] = len(self.ids)
            self.ids.append(uuid)
            self._blanks(1)
        return place

    def places(self, uuids: Sequence[ProviderId]) -> list[int]:
        """The places of many providers; see `place`."""
        places: list[int | None] = list(map(self.index.get, uuids))
        if None not in places:
            return places  # type: ignore[return-value]
        before = len(self.ids)
        for number, uuid in enumerate(uuids):
            if places[number] is None:
                places[number] = place = self.index.setdefault(uuid, len(self.ids))
                if place == len(self.ids):
                    self.ids.append(uuid)
        self._blanks(len(self.ids) - before)
        return places  # type: ignore[return-value]

    def _blanks(self, number: int) -> None:
        self.names.extend(repeat("", number))
        for column, value in self._blank:
            column.extend(repeat(value, number)) if number == 1 else column.frombytes(
                np.full(number, value, dtype=column.typecode).tobytes()
            )

    def find(self, uuid: ProviderId) -> int | None:
        """Its place, if it was read."""
        place = self.index.get(uuid)
        return None if place is None or self.version[place] == NOT_READ else place

    def read(self) -> NDArray[np.intp]:
        """The places of all that were read."""
        return np.flatnonzero(np.frombuffer(self.version, dtype=np.int64) != NOT_READ)

    def forget(self, place: int) -> None:
        """The provider was removed."""
        self.leave_tree(place)
        self.version[place] = NOT_READ
        self.traits[place] = self.aggregates[place] = self.layout[place] = 0
        self.count -= 1
        self.waste += 1

    # --------------------------------------------------------------------------------------------------- trees

    def members(self, root: int) -> Iterator[int]:
        """The places of a tree; the root is the first when all was read at once."""
        row = self.head[root]
        while row != NOWHERE:
            yield row
            row = self.next[row]

    def join_tree(self, place: int, root: int) -> None:
        """Append it to its root's tree."""
        self.root[place] = root
        if (last := self.head[root]) == NOWHERE:
            self.head[root] = place
            self.trees_count += 1
        else:
            while (following := self.next[last]) != NOWHERE:
                last = following
            self.next[last] = place
        self.next[place] = NOWHERE

    def leave_tree(self, place: int) -> None:
        """Remove it from its root's tree."""
        root, before = self.root[place], NOWHERE
        if root == NOWHERE:
            return
        for member in self.members(root):
            if member == place:
                break
            before = member
        following = self.next[place]
        if before != NOWHERE:
            self.next[before] = following
        else:
            self.head[root] = following
            self.trees_count -= following == NOWHERE
        self.next[place], self.root[place] = NOWHERE, NOWHERE

    def join_all(self) -> None:
        """Build the trees of all that were read, at once."""
        rows = self.read()
        if not len(rows):
            return
        root, head, after = (np.frombuffer(each, dtype=np.int32) for each in (self.root, self.head, self.next))
        roots = root[rows]
        order = np.lexsort((rows, rows != roots, roots))
        rows, roots = rows[order], roots[order]
        last = np.append(roots[1:] != roots[:-1], True)
        after[rows[:-1]] = np.where(last[:-1], NOWHERE, rows[1:])
        after[rows[-1]] = NOWHERE
        first = np.append(True, last[:-1])
        head[roots[first]] = rows[first]
        self.trees_count = int(first.sum())

    # -------------------------------------------------------------------------------------------------- stocks

    def stocks(self, place: int) -> Iterator[tuple[InventoryKind, int]]:
        """Its inventories, with the usage of each."""
        first = self.first[place]
        for number, kind in enumerate(self.layouts.all[self.layout[place]].kinds, start=first):
            yield kind, self.used[number]

    def stock(self, place: int, resource: str) -> tuple[InventoryKind, int] | None:
        """The inventory of one class."""
        layout = self.layouts.all[self.layout[place]]
        at = layout.at.get(resource)
        return None if at is None else (layout.kinds[at], self.used[self.first[place] + at])

    def restock(self, place: int, read: Sequence[tuple[InventoryKind, int, int]]) -> None:
        """Set its inventories: kind, usage, and version; a newer known usage is kept."""
        old = self.layouts.all[self.layout[place]]
        first = self.first[place]
        known = {
            kind.resource: (self.stock_version[number], self.used[number])
            for number, kind in enumerate(old.kinds, start=first)
        }
        layout = self.layouts.of(kind for kind, _, _ in read)
        self.waste += bool(known) and layout != self.layout[place]
        self.layout[place] = layout
        if len(read) > len(known):
            first = self.first[place] = len(self.used)
            for column in (self.used, self.stock_version):
                column.extend(repeat(0, len(read)))
        for number, (kind, used, version) in enumerate(read, start=first):
            newest = max((version, used), known.get(kind.resource, (version, used)), key=lambda each: each[0])
            self.stock_version[number], self.used[number] = newest

    def use(self, place: int, resource: str, used: int, cap: int, version: int) -> int | None:
        """Set the usage of one inventory. Returns its earlier capacity; None: there is none, or an equal or newer
        version is known.
        """
        layout = self.layouts.all[self.layout[place]]
        at = layout.at.get(resource)
        if at is None:
            return None
        number = self.first[place] + at
        if version < self.stock_version[number]:
            return None
        same = self.used[number] == used and layout.kinds[at].cap == cap
        self.used[number], self.stock_version[number] = used, version
        if same:
            return None
        if cap != layout.kinds[at].cap:
            kinds = [kind if kind.resource != resource else kind._replace(cap=cap) for kind in layout.kinds]
            self.layout[place] = self.layouts.of(kinds)
            self.waste += 1
        return layout.kinds[at].cap

    # ------------------------------------------------------------------------------------------------- objects

    def parent_id(self, place: int) -> ProviderId | None:
        """The id of its parent."""
        parent = self.parent[place]
        return None if parent == NOWHERE else self.ids[parent]

    def made(self, place: int) -> Provider:
        """An object with all that is known of it."""
        sets = self.sets.all
        own, tied = sets[self.traits[place]], sets[self.aggregates[place]]
        return Provider(self, place, self.ids[place], self.ids[self.root[place]], own, tied, self.inventories(place))

    def fill(self, one: Provider) -> None:
        """Update an object with what is known now."""
        place, sets = one.place, self.sets.all
        one.root = self.ids[self.root[place]]
        one.traits, one.aggregates = sets[self.traits[place]], sets[self.aggregates[place]]
        one.stocks = self.inventories(place)
        one.shown = None

    def inventories(self, place: int) -> Mapping[str, InventoryRow]:
        """Its inventories by class; providers with equal usage share them."""
        layout, first = self.layout[place], self.first[place]
        kinds = self.layouts.all[layout].kinds
        each = self.used[first : first + len(kinds)]
        key = layout, each.tobytes()
        inventories = self._alike.get(key)
        if inventories is None:
            if len(self._alike) >= ALIKE_MAX:
                self._alike.clear()
            inventories = {kind.resource: InventoryRow(kind, used) for kind, used in zip(kinds, each, strict=True)}
            self._alike[key] = inventories
        return inventories
