"""The routes of the Placement API: path and method → handler, policy rule and version."""

import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from moorage.api.placement import allocations, candidates, classes_and_traits, inventories, providers
from moorage.api.placement.http import Rep, Req, Version
from moorage.model import errors
from moorage.model.tracing import request as current_request

SERVICE = "placement"

Handler = Callable[[Req], Awaitable[Rep]]


class RouteEntry(msgspec.Struct, frozen=True):
    """A method of a path: its handler, policy rule, and the version that brought it (405 where the path is older)."""

    handler: Handler
    rule: str
    since: int = 0
    hidden_status: int = 404
    takes_json: bool = False
    bare: bool = False
    """It answers without a body, so it does not matter which kind is accepted."""


RP = "/resource_providers/{uuid}"
_P = "placement:resource_providers:"
ROUTES: dict[str, dict[str, RouteEntry]] = {
    "/resource_classes": {
        "GET": RouteEntry(classes_and_traits.list_classes, "placement:resource_classes:list", 2),
        "POST": RouteEntry(classes_and_traits.create_class, "placement:resource_classes:create", 2, takes_json=True),
    },
    "/resource_classes/{name}": {
        "GET": RouteEntry(classes_and_traits.show_class, "placement:resource_classes:show", 2),
        "PUT": RouteEntry(classes_and_traits.update_class, "placement:resource_classes:update", 2),
        "DELETE": RouteEntry(classes_and_traits.delete_class, "placement:resource_classes:delete", 2),
    },
    "/resource_providers": {
        "GET": RouteEntry(providers.index, _P + "list"),
        "POST": RouteEntry(providers.create, _P + "create", takes_json=True),
    },
    RP: {
        "GET": RouteEntry(providers.show, _P + "show"),
        "PUT": RouteEntry(providers.update, _P + "update", takes_json=True),
        "DELETE": RouteEntry(providers.delete, _P + "delete"),
    },
    RP + "/inventories": {
        "GET": RouteEntry(inventories.index, _P + "inventories:list"),
        "POST": RouteEntry(inventories.create, _P + "inventories:create", takes_json=True),
        "PUT": RouteEntry(inventories.replace, _P + "inventories:update", takes_json=True),
        "DELETE": RouteEntry(inventories.clear, _P + "inventories:delete", 5, 405),
    },
    RP + "/inventories/{resource_class}": {
        "GET": RouteEntry(inventories.show, _P + "inventories:show"),
        "PUT": RouteEntry(inventories.update, _P + "inventories:update", takes_json=True),
        "DELETE": RouteEntry(inventories.delete, _P + "inventories:delete"),
    },
    RP + "/usages": {"GET": RouteEntry(inventories.usages, _P + "usages")},
    RP + "/aggregates": {
        "GET": RouteEntry(providers.aggregates, _P + "aggregates:list", 1),
        "PUT": RouteEntry(providers.set_aggregates, _P + "aggregates:update", 1, takes_json=True),
    },
    RP + "/allocations": {"GET": RouteEntry(allocations.of_provider, _P + "allocations:list")},
    RP + "/traits": {
        "GET": RouteEntry(classes_and_traits.provider_traits, _P + "traits:list", 6),
        "PUT": RouteEntry(classes_and_traits.set_provider_traits, _P + "traits:update", 6, takes_json=True),
        "DELETE": RouteEntry(classes_and_traits.clear_provider_traits, _P + "traits:delete", 6),
    },
    "/allocations": {"POST": RouteEntry(allocations.post, "placement:allocations:manage", 13, takes_json=True)},
    "/allocations/{consumer}": {
        "GET": RouteEntry(allocations.show, "placement:allocations:list"),
        "PUT": RouteEntry(allocations.put, "placement:allocations:update", takes_json=True),
        "DELETE": RouteEntry(allocations.delete, "placement:allocations:delete"),
    },
    "/allocation_candidates": {"GET": RouteEntry(candidates.index, "placement:allocation_candidates:list", 10)},
    "/traits": {"GET": RouteEntry(classes_and_traits.list_traits, "placement:traits:list", 6)},
    "/traits/{name}": {
        "GET": RouteEntry(classes_and_traits.show_trait, "placement:traits:show", 6, bare=True),
        "PUT": RouteEntry(classes_and_traits.put_trait, "placement:traits:update", 6),
        "DELETE": RouteEntry(classes_and_traits.delete_trait, "placement:traits:delete", 6),
    },
    "/usages": {"GET": RouteEntry(allocations.total_usages, "placement:usages", 9)},
    "/reshaper": {"POST": RouteEntry(allocations.reshape, "placement:reshaper:reshape", 30, takes_json=True)},
}


class _Pattern(NamedTuple):
    """A path as it is written and as it is matched, and its methods."""

    path: str
    match: Callable[[str], re.Match[str] | None]
    entries: dict[str, RouteEntry]


def _patterns() -> dict[tuple[str, int], list[_Pattern]]:
    """Routes by first segment and number of segments, so that only two or three are tried."""
    patterns: dict[tuple[str, int], list[_Pattern]] = {}
    for path, entries in ROUTES.items():
        pattern = re.compile("^" + re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path) + "$")
        patterns.setdefault(_place(path), []).append(_Pattern(path, pattern.match, entries))
    return patterns


def _place(path: str) -> tuple[str, int]:
    segments = path.split("/", 2)
    return (segments[1] if len(segments) > 1 else ""), path.count("/")


_PATTERNS = _patterns()


class MethodNotAllowed(errors.WrongMethod):
    """Names the methods that the path does know."""

    def __init__(self, method: str, methods: str) -> None:
        super().__init__(f"The method {method} is not allowed for this resource.")
        self.methods = methods


def find_route(method: str, path: str, version: Version) -> tuple[RouteEntry, dict[str, str]]:
    """The route and the parameters of its path. Raises NotFound and MethodNotAllowed."""
    for route, match, entries in _PATTERNS.get(_place(path), ()):
        if (matched := match(path)) is None:
            continue
        current_request(SERVICE).annotate(route=route)
        entry = entries.get(method)
        if entry is None:
            raise MethodNotAllowed(method, ", ".join(entries))
        if version < (1, entry.since):
            raise (
                errors.NotFound("The resource could not be found.")
                if entry.hidden_status == 404
                else MethodNotAllowed(method, ", ".join(entries))
            )
        return entry, matched.groupdict()
    raise errors.NotFound("The resource could not be found.")
