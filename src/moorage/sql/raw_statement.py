"""Statements in the databases' own dialects, for the busiest paths: they are passed to the driver unchanged.

SQLAlchemy needs longer for a small statement than SQLite: it looks up the compiled form, the parameters and the result's columns.
If a transaction runs several such statements for every request, this is most of the request's time.  Such a statement is written
once for each database, and its rows are plain tuples.  All other statements use Core.

`:name` is a parameter in both dialects; on PostgreSQL it becomes `$1`, `$2`, … in the order of `names`.
"""

import re
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(r"(?<![:\w]):([a-z_]+)")


class RawStatement:
    """One statement; `writes`: whether it changes anything. A statement without a text for a database must not run there."""

    __slots__ = ("names", "numbered", "postgresql", "sqlite", "writes")

    def __init__(self, *, sqlite: str = "", postgresql: str = "", writes: bool) -> None:
        self.sqlite = sqlite
        self.postgresql = postgresql
        self.writes = writes
        self.names = tuple(dict.fromkeys(_NAME.findall(postgresql)))
        places = {name: f"${place}" for place, name in enumerate(self.names, 1)}
        self.numbered = _NAME.sub(lambda match: places[match[1]], postgresql)

    def values(self, parameters: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the parameters in the order in which PostgreSQL numbers them."""
        return tuple(parameters[name] for name in self.names)
