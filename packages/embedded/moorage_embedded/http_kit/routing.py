"""Paths: their parts, and a table of routes.

Paths are split before they are decoded, because a name may hold a slash (`%2F`).  Starlette's router matches decoded paths, one
pattern after the other, and adds HEAD to every GET; this table finds its pattern by the path's first part and length.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.types import Scope

from moorage.model import tracing
from moorage_embedded.http_kit.answers import HttpFault

Handler = TypeVar("Handler")


def path_parts(scope: Scope) -> tuple[str, ...]:
    """The decoded parts of a request's path; empty parts are left out."""
    raw = scope.get("raw_path")
    text = raw.decode("latin-1") if raw else quote(scope["path"])
    text = text.partition("?")[0].removeprefix(quote(scope.get("root_path", "")))
    return tuple(unquote(part) for part in text.split("/") if part)


def no_such_path() -> HttpFault:
    return HttpFault(404, "The resource could not be found.")


@dataclass(frozen=True)
class _Pattern(Generic[Handler]):
    route: str
    """What spans and metrics call it."""
    words: tuple[tuple[int, str], ...]
    """Places of parts that are as they are written, and what they are."""
    names: tuple[tuple[int, str], ...]
    """Places of parts that may be anything, and how they are called."""
    handlers: Mapping[str, Handler]


def _pattern(prefix: str, template: str, handlers: Mapping[str, Handler]) -> _Pattern[Handler]:
    parts = list(enumerate(template.split("/")))
    words = tuple((place, part) for place, part in parts if not part.startswith("{"))
    names = tuple((place, part[1:-1]) for place, part in parts if part.startswith("{"))
    return _Pattern(f"{prefix}/{template}", words, names, handlers)


class RouteTable(Generic[Handler]):
    """Path template (`volumes/{id}/action`) → method → handler; what names a part is tried before what takes any."""

    def __init__(
        self,
        service: str,
        prefix: str,
        routes: Mapping[str, Mapping[str, Handler]],
        wrong_method: Callable[[str, list[str]], HttpFault] | None = None,
    ) -> None:
        """`service` and `prefix` are what spans and metrics say; `wrong_method` is given a method and those that the path has."""
        self._service = service
        self._wrong_method = wrong_method
        self._found: dict[tuple[str, int], list[_Pattern[Handler]]] = {}
        for template, handlers in routes.items():
            key = (template.partition("/")[0], template.count("/") + 1)
            self._found.setdefault(key, []).append(_pattern(prefix, template, handlers))
        for patterns in self._found.values():
            patterns.sort(key=lambda each: [part.startswith("{") for part in each.route.split("/")])
        self.first_parts = frozenset(first for first, _ in self._found)

    def _fitting(self, parts: Sequence[str]) -> Iterator[_Pattern[Handler]]:
        for pattern in self._found.get((parts[0], len(parts)), ()) if parts else ():
            if all(parts[place] == word for place, word in pattern.words):
                yield pattern

    def knows(self, parts: Sequence[str]) -> bool:
        return any(self._fitting(parts))

    def find(self, request: Request, parts: Sequence[str]) -> Handler:
        """The handler; named parts become the request's `path_params`, and its span learns the template.

        Raises HttpFault: 404 for an unknown path, what `wrong_method` answers for a method that the path does not have.
        """
        allowed: set[str] = set()
        for pattern in self._fitting(parts):
            handler = pattern.handlers.get(request.method)
            if handler is not None:
                request.scope["path_params"] = {name: parts[place] for place, name in pattern.names}
                tracing.request(self._service).annotate(route=pattern.route)
                return handler
            allowed.update(pattern.handlers)
        raise self._wrong_method(request.method, sorted(allowed)) if allowed and self._wrong_method else no_such_path()
