"""The table of routes, and a router that costs a few dictionary look-ups.

The module of a resource makes a tuple of `Route`s; `TABLE` in api/route_table.py joins them.  A route's lifetime (since, until) comes
from the past: a `Change` that lists it under `begins` or `ends`.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from moorage.api.call import AnyCall, Response
from moorage.api.microversions import OLDEST, Query, Version, VersionAdapter, VersionChange, compile_bridge, lifetime
from moorage.model import pattern
from moorage.model.errors import Internal, Invalid

Handler: TypeAlias = Callable[[AnyCall], Awaitable[Response]]


@dataclass(frozen=True)
class Param:
    """One query parameter a route knows."""

    since: tuple[int, int] = (2, 1)
    until: tuple[int, int] | None = None
    form: str | None = None
    """A regular expression each value must match."""
    many: bool = True
    """False: given more than once is refused."""
    format: str | None = None
    """A named format for the message of a refusal (`uuid`, `date-time`)."""
    regex: bool = False
    """Each value must be a regular expression as `model/pattern.py` understands them, and none is empty (Nova's format `regex`)."""
    searched: bool = True
    """False: such a value must have that form and is not searched for."""

    def refusal(self, value: str) -> str | None:
        """Return what is wrong with one value, with Nova's message; None: it is valid."""
        if self.form is not None:
            if not value:
                return "should be non-empty"
            if not re.search(self.form, value) or value.endswith("\n") or len(value) > CHARS_MAX:
                return f"is not a '{self.format}'" if self.format else f"does not match '{self.form}'"
        if self.regex and (why := pattern.refusal(value, searched=self.searched) if value else "it is empty"):
            return f"is not a 'regex': {why}"
        return None


NUMBER = "^[0-9]*$"
CHARS_MAX = 1000
"""Of a value that has a form: Python reads no number of more than 4,300 digits."""
LIMIT = Param(form=NUMBER)
TEXT = Param()


@dataclass(frozen=True)
class Params:
    """The query a route knows; unknown names are left out below `strict`, refused from it on (None: never)."""

    known: Mapping[str, Param] = field(default_factory=dict)
    strict: tuple[int, int] | None = (2, 102)

    def check(self, query: Query, version: Version) -> Query:
        """Return the parameters that this version knows.  Raises Invalid with Nova's message."""
        kept: Query = {}
        for name, values in query.items():
            param = self.known.get(name)
            if param is None or version < param.since or (param.until is not None and version >= param.until):
                if self.strict is not None and version >= self.strict:
                    raise Invalid(f"Additional properties are not allowed ('{name}' was unexpected)")
                continue
            if not param.many and len(values) > 1:
                raise Invalid(f"Invalid input for query parameters {name}. Value: {values}. {values!r} is too long")
            for value in values:
                if why := param.refusal(value):
                    raise Invalid(f"Invalid input for query parameters {name}. Value: {value}. {value!r} {why}")
            kept[name] = values
        return kept


@dataclass(frozen=True)
class Route:
    """One method and path (after `/v2.1`), or one action of a path that takes actions."""

    method: str
    path: str
    handler: Handler
    takes: type[Any] | None = None
    """The Struct of the newest version's body; None: the route does not read a body."""
    rule: str | None = None
    """A policy rule checked before the handler, with the caller's own project as target; None: the handler checks."""
    params: Params = field(default_factory=Params)
    action: str | None = None
    """The one key of the body that names an action."""

    alias_of: str | None = None
    """The key of the route whose past this one shares, in its requests and answers; its lifetime is its own."""

    @property
    def key(self) -> str:
        """How changes name it."""
        return f"{self.base_key}:{self.action}" if self.action else self.base_key

    @property
    def base_key(self) -> str:
        """The same without the action: a change may end all actions of a path at once."""
        return f"{self.method} {self.path}"


class _Node:
    __slots__ = ("any", "literal", "routes")

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.any: _Node | None = None
        self.routes: dict[str, dict[str | None, CompiledRoute]] = {}


class CompiledRoute:
    """A route with its lifetime, and its bridges, compiled when a version is first asked for."""

    def __init__(self, route: Route, changes: tuple[VersionChange, ...]) -> None:
        self.route = route
        self.names = tuple(part[1:-1] for part in route.path.split("/") if part.startswith("{"))
        self.since, self.until = lifetime(route.key, changes)
        self.until = self.until or lifetime(route.base_key, changes)[1]
        if route.alias_of is not None:
            self.since = max(self.since, lifetime(route.alias_of, changes)[0])
        self._changes = changes
        self._bridges: dict[Version, VersionAdapter] = {}

    def lives_at(self, version: Version) -> bool:
        return self.since <= version and (self.until is None or version < self.until)

    def bridge(self, version: Version) -> VersionAdapter:
        adapter = self._bridges.get(version)
        if adapter is None:
            adapter = self._bridges[version] = compile_bridge(
                self.route.alias_of or self.route.key, version, self._changes
            )
        return adapter


@dataclass(frozen=True)
class Match:
    """Where a path led: for each action (None: no actions) a route, and the values of the path's parameters."""

    by_action: Mapping[str | None, CompiledRoute]
    values: tuple[str, ...]


class Router:
    """Literal names win over parameters; nothing is scanned."""

    def __init__(self, routes: Iterable[Route], changes: tuple[VersionChange, ...]) -> None:
        self._root = _Node()
        self.keys: set[str] = set()
        for route in routes:
            if route.key in self.keys:
                raise Internal(f"the route {route.key} is in the table twice")
            self.keys.add(route.key)
            self._add(route, changes)
        known = self.keys | {key.split(":")[0] for key in self.keys}
        unknown = sorted({key for change in changes for key in change.routes()} - known)
        self.unknown_in_changes = unknown
        """Routes that changes name and the table lacks: a test looks that there are none."""

    def _add(self, route: Route, changes: tuple[VersionChange, ...]) -> None:
        node = self._root
        for part in route.path.strip("/").split("/"):
            if part.startswith("{"):
                node.any = node.any or _Node()
                node = node.any
            else:
                node = node.literal.setdefault(part, _Node())
        node.routes.setdefault(route.method, {})[route.action] = CompiledRoute(route, changes)

    def is_first_segment(self, first: str) -> bool:
        """Whether a path's first segment is one of ours, not a project's id."""
        return first in self._root.literal

    def find(self, method: str, segments: tuple[str, ...]) -> Match | None:
        match = self._walk(self._root, segments, 0, method)
        if match is None:
            return None
        node, values = match
        return Match(node.routes[method], values)

    def _walk(
        self, node: _Node, segments: tuple[str, ...], at: int, method: str
    ) -> tuple[_Node, tuple[str, ...]] | None:
        if at == len(segments):
            return (node, ()) if method in node.routes else None
        child = node.literal.get(segments[at])
        if child is not None and (match := self._walk(child, segments, at + 1, method)) is not None:
            return match
        if node.any is not None and (match := self._walk(node.any, segments, at + 1, method)) is not None:
            return match[0], (segments[at], *match[1])
        return None


__all__ = [
    "LIMIT",
    "NUMBER",
    "OLDEST",
    "TEXT",
    "CompiledRoute",
    "Handler",
    "Match",
    "Param",
    "Params",
    "Route",
    "Router",
]
