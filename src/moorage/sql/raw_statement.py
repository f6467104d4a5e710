"""Statements in the databases' own words, for the busiest paths: handed to the driver as they are.

SQLAlchemy spends longer on a small statement than SQLite does: finding its compiled form, its parameters, its result's columns.
Where a transaction runs half a dozen of them for every request, that is most of the request.  Such a statement is written down
once, for each database in its own way, and its rows are plain tuples.  Everything else stays in Core.

`:name` stands for a parameter in both; on PostgreSQL it becomes `$1`, `$2`, … in the order of `names`.
"""

import re
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(r"(?<![:\w]):([a-z_]+)")


class RawStatement:
    """One statement; `writes` says whether it changes anything. A text that is missing is not to be run there."""

    __slots__ = ("names", "numbered", "postgresql", "sqlite", "writes")

    def __init__(self, *, sqlite: str = "", postgresql: str = "", writes: bool) -> None:
        self.sqlite = sqlite
        self.postgresql = postgresql
        self.writes = writes
        self.names = tuple(dict.fromkeys(_NAME.findall(postgresql)))
        places = {name: f"${place}" for place, name in enumerate(self.names, 1)}
        self.numbered = _NAME.sub(lambda found: places[found[1]], postgresql)

    def values(self, parameters: Mapping[str, Any]) -> tuple[Any, ...]:
        """In the order in which PostgreSQL counts them."""
        return tuple(parameters[name] for name in self.names)
