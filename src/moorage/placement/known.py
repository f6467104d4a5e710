"""What the picture knows of one provider, as it was last read."""

from typing import Any, TypeAlias

from typing_extensions import override

from moorage.model.ids import CellId, ProviderId

Shape: TypeAlias = tuple[int, int, float, int, int, int, int]
"""Total, reserved, ratio, smallest and largest portion, step and capacity: most hosts are alike, and share these numbers."""


class Stock:
    """One inventory: what is there, and what of it is used."""

    __slots__ = ("cap", "max_unit", "min_unit", "ratio", "reserved", "step", "total", "used", "version")

    def __init__(self, row: Any, shapes: dict[Shape, Shape] | None = None) -> None:
        shape: Shape = (row.total, row.reserved, row.ratio, row.min_unit, row.max_unit, row.step, row.cap)
        if shapes is not None:
            shape = shapes.setdefault(shape, shape)
        self.total: int
        self.reserved: int
        self.ratio: float
        self.min_unit: int
        self.max_unit: int
        self.step: int
        self.cap: int
        self.total, self.reserved, self.ratio, self.min_unit, self.max_unit, self.step, self.cap = shape
        self.used: int = row.used
        self.version: int = row.version


NO_SLOT = -1
NOTHING: frozenset[str] = frozenset()


class Provider:
    """One resource provider as it was last read."""

    __slots__ = (
        "aggregates",
        "generation",
        "name",
        "parent",
        "root",
        "shown",
        "slot",
        "stocks",
        "traits",
        "updated_at",
        "uuid",
        "version",
    )

    def __init__(self, uuid: ProviderId) -> None:
        self.uuid = uuid
        self.name = ""
        self.parent: ProviderId | None = None
        self.root = uuid
        self.generation = 0
        self.version = -1
        self.updated_at = 0
        self.shown: dict[object, bytes] | None = None
        """What was written of it in answers, by their kind; forgotten when anything of it changes."""
        self.slot = NO_SLOT
        """Its place in the columns of what is below hosts; a root has none there."""
        self.stocks: dict[str, Stock] = {}
        self.traits: frozenset[str] = NOTHING
        self.aggregates: frozenset[str] = NOTHING


class HostFacts:
    """What a compute host reported about itself, besides amounts."""

    __slots__ = ("cell", "host", "level", "node", "physnets", "zone")

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostFacts) and all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, row: Any) -> None:
        self.host: str = row.host
        self.node: str = row.node
        self.cell = CellId(row.cell)
        self.zone: str = row.zone
        self.level: int = row.level
        self.physnets: tuple[str, ...] | None = (
            None if row.physnets is None else tuple(n for n in row.physnets.split(",") if n)
        )
