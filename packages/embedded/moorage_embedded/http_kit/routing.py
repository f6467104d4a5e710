"""Paths: their parts, and a table of routes.

Paths are split before they are decoded, because a name may hold a slash (`%2F`).  Starlette's router matches decoded paths and
adds HEAD to every GET, so services whose names may hold a slash use this table.
"""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar
from urllib.parse import quote, unquote

from starlette.types import Scope

Handler = TypeVar("Handler")
ANY = "*"
"""One part of a path, whatever it is."""


def path_parts(scope: Scope) -> tuple[str, ...]:
    """The decoded parts of a request's path; empty parts are left out."""
    raw = scope.get("raw_path")
    text = raw.decode("latin-1") if raw else quote(scope["path"])
    text = text.partition("?")[0].removeprefix(quote(scope.get("root_path", "")))
    return tuple(unquote(part) for part in text.split("/") if part)


class RouteTable(Generic[Handler]):
    """Path pattern (`volumes/*/action`) → method → handler; what names a part is tried before what takes any."""

    def __init__(self, routes: Mapping[str, Mapping[str, Handler]]) -> None:
        self.first_parts = frozenset(path.partition("/")[0] for path in routes)
        self._found: dict[tuple[str, int], list[tuple[tuple[str, ...], Mapping[str, Handler]]]] = {}
        for path, handlers in routes.items():
            pattern = tuple(path.split("/"))
            self._found.setdefault((pattern[0], len(pattern)), []).append((pattern, handlers))
        for patterns in self._found.values():
            patterns.sort(key=lambda each: [part == ANY for part in each[0]])

    def matching(self, parts: tuple[str, ...]) -> Iterator[tuple[str, Mapping[str, Handler]]]:
        """The patterns that fit, the most exact first, each with its handlers by method."""
        for pattern, handlers in self._found.get((parts[0], len(parts)), ()) if parts else ():
            if all(one in (ANY, part) for one, part in zip(pattern, parts, strict=True)):
                yield "/".join(pattern), handlers
