"""What the picture knows of one provider, as it was last read."""

from typing import Any

from moorage.model.ids import CellId, ProviderId


class Stock:
    """One inventory: what is there, and what of it is used."""

    __slots__ = ("cap", "max_unit", "min_unit", "ratio", "reserved", "step", "total", "used", "version")

    def __init__(self, row: Any) -> None:
        self.total: int = row.total
        self.reserved: int = row.reserved
        self.ratio: float = row.ratio
        self.min_unit: int = row.min_unit
        self.max_unit: int = row.max_unit
        self.step: int = row.step
        self.cap: int = row.cap
        self.used: int = row.used
        self.version: int = row.version


class Provider:
    """One resource provider as it was last read."""

    __slots__ = (
        "aggregates",
        "generation",
        "name",
        "parent",
        "root",
        "shown",
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
        self.shown: dict[object, bytes] = {}
        """What was written of it in answers, by their kind; emptied when anything of it changes."""
        self.stocks: dict[str, Stock] = {}
        self.traits: frozenset[str] = frozenset()
        self.aggregates: frozenset[str] = frozenset()


class HostFacts:
    """What a compute host reported about itself, besides amounts."""

    __slots__ = ("cell", "host", "level", "node", "physnets", "zone")

    def __init__(self, row: Any) -> None:
        self.host: str = row.host
        self.node: str = row.node
        self.cell = CellId(row.cell)
        self.zone: str = row.zone
        self.level: int = row.level
        self.physnets: tuple[str, ...] | None = (
            None if row.physnets is None else tuple(n for n in row.physnets.split(",") if n)
        )
