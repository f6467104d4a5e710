"""One provider of the cache as an object, made from the columns (provider_rows.py) when needed, a few at a time."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

import msgspec
from typing_extensions import override

from moorage.model.ids import CellId, ProviderId
from moorage.model.image_requirements import HostKind


class InventoryKind(NamedTuple):
    """One inventory without its usage: similar hosts share these numbers."""

    resource: str
    total: int
    reserved: int
    ratio: float
    min_unit: int
    max_unit: int
    step: int
    cap: int


class Layout:
    """The inventories of one provider, without their usage; similar providers share it."""

    __slots__ = ("at", "kinds")

    def __init__(self, kinds: tuple[InventoryKind, ...]) -> None:
        self.kinds = kinds
        self.at = {kind.resource: place for place, kind in enumerate(kinds)}


class InventoryRow:
    """One inventory and its usage. Providers with equal values share it, so it is never changed."""

    __slots__ = ("cap", "max_unit", "min_unit", "ratio", "reserved", "step", "total", "used")

    def __init__(self, kind: InventoryKind, used: int) -> None:
        self.total: int
        self.reserved: int
        self.ratio: float
        self.min_unit: int
        self.max_unit: int
        self.step: int
        self.cap: int
        _, self.total, self.reserved, self.ratio, self.min_unit, self.max_unit, self.step, self.cap = kind
        self.used = used


NO_SLOT = -1
KINDS_KEPT = 1024


class ProviderFacts(Protocol):
    """The columns of rarely used facts, by a provider's place (provider_rows.py)."""

    @property
    def ids(self) -> Sequence[ProviderId]: ...
    @property
    def names(self) -> Sequence[str]: ...
    @property
    def generation(self) -> Sequence[int]: ...
    @property
    def updated_at(self) -> Sequence[int]: ...
    def parent_id(self, place: int) -> ProviderId | None: ...


class Provider:
    """One resource provider as it was last read: a search needs the facts here, the rest is read from its row."""

    __slots__ = ("_rows", "aggregates", "place", "root", "shown", "stocks", "traits", "uuid")

    def __init__(
        self,
        rows: ProviderFacts,
        place: int,
        uuid: ProviderId,
        root: ProviderId,
        traits: frozenset[str],
        aggregates: frozenset[str],
        stocks: Mapping[str, InventoryRow],
    ) -> None:
        self._rows = rows
        self.place = place
        self.uuid = uuid
        self.root = root
        self.traits = traits
        self.aggregates = aggregates
        self.stocks = stocks
        self.shown: dict[object, bytes] | None = None
        """Parts of answers about it, by kind; dropped when anything of it changes."""

    @property
    def name(self) -> str:
        return self._rows.names[self.place]

    @property
    def parent(self) -> ProviderId | None:
        return self._rows.parent_id(self.place)

    @property
    def generation(self) -> int:
        return self._rows.generation[self.place]

    @property
    def updated_at(self) -> int:
        return self._rows.updated_at[self.place]


class HostFacts:
    """What a compute host reported about itself, besides amounts."""

    __slots__ = ("cell", "cell_disabled", "forced_down", "host", "kind", "level", "node", "physnets", "zone")

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostFacts) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        host: str,
        node: str,
        cell: str,
        zone: str,
        physnets: str | None,
        level: int,
        kind: str | None,
        *off: bool,
    ) -> None:
        """`off`: whether the host is forced down, and whether its cell is disabled."""
        self.host = host
        self.node = node if node != host else host
        self.cell = CellId(cell)
        self.zone = zone
        self.level = level
        self.kind = kind_of(kind)
        self.forced_down, self.cell_disabled = map(bool, off or (False, False))
        self.physnets: tuple[str, ...] | None = None if physnets is None else tuple(n for n in physnets.split(",") if n)


@lru_cache(KINDS_KEPT)
def kind_of(text: str | None) -> HostKind:
    """What a host said that it is; one that nobody can read is as if it had said nothing."""
    if not text:
        return HostKind()
    try:
        return msgspec.json.decode(text.encode(), type=HostKind)
    except msgspec.MsgspecError:
        return HostKind()


def facts_of(row: Any) -> HostFacts:
    """The facts in one row of the table."""
    overrides = row.forced_down, row.cell_disabled
    return HostFacts(row.host, row.node, row.cell, row.zone, row.physnets, row.level, row.kind, *overrides)


def inventory_of(row: Any) -> tuple[InventoryKind, int, int]:
    """The kind, the usage, and the version of the usage."""
    portions = row.min_unit, row.max_unit, row.step
    return InventoryKind(row.resource, row.total, row.reserved, row.ratio, *portions, row.cap), row.used, row.version


def gathered(rows: Sequence[Any], column: str) -> dict[str, list[str]]:
    """Provider → the values of this column in its rows."""
    by_provider: dict[str, list[str]] = {}
    name_of = attrgetter(column)
    for row in rows:
        by_provider.setdefault(row.provider, []).append(name_of(row))
    return by_provider
