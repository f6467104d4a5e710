"""`/os-volumes_boot`: until 2.102 another name of `/servers`, with the same handlers and the same past."""

from collections.abc import Iterable
from dataclasses import replace

from moorage.api.routes import Route

NAME = "/os-volumes_boot"
SHARED = frozenset({"/servers", "/servers/detail", "/servers/{id}", "/servers/{id}/action"})


def aliases(routes: Iterable[Route]) -> tuple[Route, ...]:
    """The routes of servers, under the old name."""
    return tuple(
        replace(route, path=route.path.replace("/servers", NAME, 1), alias_of=route.key)
        for route in routes
        if route.path in SHARED
    )
