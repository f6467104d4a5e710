"""Loads everything, table by table, into an empty cache (P12).

The facts are the same as those that `ProviderCache.apply` takes provider by provider, but every step is one operation
for all providers, or as little work for each as possible. Rows come in any order, so columns are written only after
everything was read.
"""

import gc
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moorage.model.ids import ProviderId
from moorage.model.resources import DISABLED_TRAIT
from moorage.placement.cache.cache import ProviderCache
from moorage.placement.cache.columns import Alike, Amounts
from moorage.placement.cache.provider import HostFacts
from moorage.placement.cache.provider_rows import NOWHERE, Rows
from moorage.sql import Tx
from moorage.store.region.placement.change_feed import NEVER, ROWS_AT_ONCE, Everything, Plain

Places = NDArray[np.intp]


@contextmanager
def no_search_for_garbage() -> Iterator[None]:
    """A million objects come to stay: looking through them again and again while they come is half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Loading:
    """One load of everything: `read` runs in a transaction, which is over before `finish`."""

    def __init__(self, picture: ProviderCache) -> None:
        self.picture = picture
        self.horizon = NEVER
        """The horizon from which the change feed continues."""
        self._stocks = _Stocks(picture.rows)

    @classmethod
    def read(cls, successor: Callable[[], ProviderCache], tx: Tx) -> "Loading":
        """Read everything for a new cache."""
        everything, self = Everything(tx), cls(successor())
        picture, rows = self.picture, self.picture.rows
        self.horizon = everything.horizon()
        for batch in everything.providers():
            _providers(rows, batch)
        for batch in everything.stocks():
            self._stocks.take(batch)
        for batch in everything.traits():
            _sets(rows, rows.traits, batch)
        for batch in everything.aggregates():
            for place in _sets(rows, rows.aggregates, batch):
                for aggregate in rows.sets.all[rows.aggregates[place]]:
                    picture.members.setdefault(aggregate, set()).add(rows.ids[place])
        for batch in everything.hosts():
            _hosts(picture, batch)
        picture.apply(everything.groups())
        return self

    def finish(self) -> ProviderCache:
        """Build inventories, trees and columns."""
        self._stocks.settle()
        self.picture.rows.join_all()
        _draw(self.picture, self._stocks)
        return self.picture


# ------------------------------------------------------------------------------------------------------- the rows


def _providers(rows: Rows, read: Plain) -> None:
    uuids, names, parents, roots, generations, versions, updated = zip(*read, strict=True)
    places = np.array(rows.places(uuids), dtype=np.intp)
    root_places = rows.places(roots)
    children = [number for number, uuid in enumerate(parents) if uuid is not None]
    parent_places = np.full(len(read), NOWHERE, dtype=np.int32)
    parent_places[children] = rows.places([parents[number] for number in children])
    for place, name in zip(places.tolist(), names, strict=True):
        rows.names[place] = name
    for column, values in (
        (rows.parent, parent_places),
        (rows.root, root_places),
        (rows.generation, generations),
        (rows.version, versions),
        (rows.updated_at, updated),
    ):
        np.frombuffer(column, dtype=column.typecode)[places] = values
    rows.count += len(places)


def _sets(rows: Rows, column: "array[int]", read: Plain) -> list[int]:
    """Sets of names, which each provider has in one text; returns their providers."""
    numbers: dict[str, int] = {}
    places: list[int] = []
    for uuid, text in read:
        if (place := rows.find(uuid)) is None:
            continue
        number = numbers.get(text)
        if number is None:
            number = numbers[text] = rows.sets[frozenset(text.split(","))]
        column[place] = number
        places.append(place)
    return places


def _hosts(picture: ProviderCache, read: Plain) -> None:
    ids, names = picture.rows.ids, picture.rows.names
    for uuid, host, *facts in read:
        if (place := picture.rows.find(ProviderId(uuid))) is not None:
            picture.know(ids[place], HostFacts(names[place] if host == names[place] else host, *facts))


class _Stocks:
    """Inventories in the order in which they were read, then sorted by provider and class."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._place, self._kind = array("i"), array("i")

    def take(self, read: Plain) -> None:
        rows = self._rows
        whose, *columns = zip(*read, strict=True)
        places: list[int | None] = list(map(rows.index.get, whose))
        if None in places:
            known = [row for row, place in zip(read, places, strict=True) if place is not None]
            if known:
                self.take(known)
            return
        kind_of: Callable[[Any], int] = rows.layouts.kinds.__getitem__
        self._place.extend(places)  # type: ignore[arg-type]
        self._kind.extend(map(kind_of, zip(*columns[:8], strict=True)))
        rows.used.extend(columns[8])
        rows.stock_version.extend(columns[9])

    def settle(self) -> None:
        rows = self._rows
        classes, _ = self.classes()
        self.place = np.array(self._place, dtype=np.int32)
        self.kind = np.array(self._kind, dtype=np.int32)
        del self._place, self._kind
        order = np.lexsort((classes[self.kind], self.place))
        self.place, self.kind = self.place[order], self.kind[order]
        self.used = np.array(rows.used, dtype=np.int64)[order]
        rows.used = array("q", self.used.tobytes())
        rows.stock_version = array("q", np.array(rows.stock_version, dtype=np.int64)[order].tobytes())
        if not len(order):
            return
        begin = np.flatnonzero(np.append(True, self.place[1:] != self.place[:-1]))
        np.frombuffer(rows.first, dtype=np.int64)[self.place[begin]] = begin
        end = np.append(begin[1:], len(order))
        for first in range(0, len(begin), ROWS_AT_ONCE):  # as Python's own numbers they would need the memory once more
            self._lay_out(begin[first : first + ROWS_AT_ONCE], end[first : first + ROWS_AT_ONCE])

    def _lay_out(self, begin: Places, end: Places) -> None:
        """The layout of each provider whose inventories begin and end here."""
        first, layouts = begin[0], self._rows.layouts
        kinds = self.kind[first : end[-1]].tolist()
        bounds = zip((begin - first).tolist(), (end - first).tolist(), strict=True)
        numbers = [layouts[tuple(kinds[a:b])] for a, b in bounds]
        np.frombuffer(self._rows.layout, dtype=np.int32)[self.place[begin]] = numbers

    def classes(self) -> tuple[NDArray[np.intp], list[str]]:
        """For each kind of inventory the number of its class, in the order of names; and the names."""
        kinds = self._rows.layouts.kinds.all
        names = sorted({kind.resource for kind in kinds})
        number_of = {name: number for number, name in enumerate(names)}
        return np.array([number_of[kind.resource] for kind in kinds], dtype=np.intp), names


# ---------------------------------------------------------------------------------------------------- the columns


def _draw(picture: ProviderCache, stocks: _Stocks) -> None:
    rows = picture.rows
    places = rows.read()
    is_root = np.frombuffer(rows.root, dtype=np.int32)[places] == places
    roots, others = places[is_root], places[~is_root]
    slot_of = np.full(len(rows.ids), NOWHERE, dtype=np.intp)
    for columns, mine, slots in (
        (picture.columns, roots, picture.take_slots(roots)),
        (picture.devices.columns, others, picture.devices.take_slots(others)),
    ):
        slot_of[:] = NOWHERE
        slot_of[mine] = slots
        _amounts(columns, slot_of[stocks.place], stocks, rows)
        for traits, with_traits in _by_traits(rows, mine, slots):
            columns.set_traits(with_traits, traits)
            if columns is picture.columns:
                picture.columns.masks["enabled"][with_traits] = DISABLED_TRAIT not in traits
    picture.devices.put_all(picture.root_places)
    picture.draw_hosts()


def _amounts(columns: Amounts, slots: Places, stocks: _Stocks, rows: Rows) -> None:
    """The numbers of the providers with a slot here, class by class."""
    classes, names = stocks.classes()
    alike, placed = Alike.of(rows.layouts.kinds.all), slots != NOWHERE
    of_class = classes[stocks.kind]
    for number, name in enumerate(names):
        chosen = np.flatnonzero(placed & (of_class == number))
        if len(chosen):
            columns.draw_many(name, slots[chosen], alike[stocks.kind[chosen].astype(np.intp)], stocks.used[chosen])


def _by_traits(rows: Rows, places: Places, slots: Places) -> Iterator[tuple[frozenset[str], Places]]:
    """Slots of providers with equal traits."""
    numbers = np.frombuffer(rows.traits, dtype=np.int32)[places]
    order = np.argsort(numbers, kind="stable")
    ends = np.flatnonzero(np.append(numbers[order][1:] != numbers[order][:-1], True)) + 1 if len(order) else order
    for first, end in zip([0, *ends.tolist()], ends.tolist(), strict=False):
        yield rows.sets.all[numbers[order[first]]], slots[order[first:end]]
