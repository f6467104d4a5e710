"""Providers and their trees as objects, each made from its rows when it is needed (docs/engine.md, P12).

A cloud has a million of them and an answer needs a few. Recently made ones are kept and follow the changes; when there
are `KEPT_MAX`, all are dropped.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from typing_extensions import override

from moorage.model.ids import ProviderId
from moorage.placement.cache.provider import Provider
from moorage.placement.cache.provider_rows import NOT_READ, NOWHERE, Rows

KEPT_MAX = 120_000


class Providers(dict[ProviderId, Provider]):
    """All providers by id: a dict of the objects that were made, which makes missing ones."""

    def __init__(self, rows: Rows, drop_objects: Callable[[], None]) -> None:
        super().__init__()
        self._rows = rows
        self._drop_objects = drop_objects

    def __missing__(self, uuid: ProviderId) -> Provider:
        rows = self._rows
        place = rows.index.get(uuid)
        if place is None or rows.version[place] == NOT_READ:
            raise KeyError(uuid)
        if super().__len__() >= KEPT_MAX:
            self._drop_objects()
        one = self[rows.ids[place]] = rows.made(place)
        return one

    @property
    def object_count(self) -> int:
        """How many were made."""
        return super().__len__()

    def make_room(self, more: int) -> None:
        """Drop all objects when `more` further ones would be too many."""
        if self.object_count and self.object_count + more > KEPT_MAX:
            self._drop_objects()

    def made(self, uuid: ProviderId) -> Provider | None:
        """The object, if it exists already."""
        return super().get(uuid)

    def named(self, name: str) -> list[Provider]:
        """The providers with this name."""
        rows, providers, at = self._rows, [], -1
        for _ in range(rows.names.count(name)):
            at = rows.names.index(name, at + 1)
            if rows.version[at] != NOT_READ:
                providers.append(self[rows.ids[at]])
        return providers

    @override
    def get(self, uuid: str, default: Any = None) -> Any:
        return default if self._rows.find(ProviderId(uuid)) is None else self[ProviderId(uuid)]

    @override
    def __contains__(self, uuid: object) -> bool:
        return isinstance(uuid, str) and self._rows.find(ProviderId(uuid)) is not None

    @override
    def __len__(self) -> int:
        return self._rows.count

    @override
    def __iter__(self) -> Iterator[ProviderId]:
        return (self._rows.ids[place] for place in self._rows.read())

    @override
    def values(self) -> Any:
        """One after the other; objects that are made for this are not kept."""
        for place in self._rows.read():
            yield self.made(self._rows.ids[place]) or self._rows.made(place)


class Trees(dict[ProviderId, dict[ProviderId, Provider]]):
    """All trees by their root: a dict of those that were made, which makes missing ones."""

    def __init__(self, rows: Rows, providers: Providers) -> None:
        super().__init__()
        self._rows = rows
        self._providers = providers

    def __missing__(self, root: ProviderId) -> dict[ProviderId, Provider]:
        place = self._rows.index.get(root)
        if place is None or self._rows.head[place] == NOWHERE:
            raise KeyError(root)
        rows, providers = self._rows, self._providers
        ids = [rows.ids[each] for each in rows.members(place)]
        providers.make_room(len(ids))
        tree = self[rows.ids[place]] = {uuid: providers[uuid] for uuid in ids}
        return tree

    @override
    def __len__(self) -> int:
        return self._rows.trees_count

    @override
    def __contains__(self, root: object) -> bool:
        place = self._rows.index.get(root)  # type: ignore[call-overload]
        return place is not None and self._rows.head[place] != NOWHERE

    @override
    def get(self, root: ProviderId, default: Any = None) -> Any:
        known = root in self
        return self[root] if known else default

    @override
    def __iter__(self) -> Iterator[ProviderId]:
        heads = np.frombuffer(self._rows.head, dtype=np.int32)
        return (self._rows.ids[place] for place in np.flatnonzero(heads != NOWHERE))

    @override
    def items(self) -> Any:
        return ((root, self[root]) for root in self)
