"""Identity providers, mappings, service providers and OAuth consumers, to be read: there are none, and none can be made."""

from starlette.responses import Response
from starlette.routing import Route

from moorage.model.errors import NotBuilt, NotFound
from moorage_embedded.identity.context import IdentityContext
from moorage_embedded.identity.request import Handler, IdentityCall, listing, route

COLLECTIONS = {
    "OS-FEDERATION/identity_providers": "identity provider",
    "OS-FEDERATION/mappings": "mapping",
    "OS-FEDERATION/service_providers": "service provider",
    "OS-OAUTH1/consumers": "consumer",
}
"""Path → what one is called."""


def _index(many: str) -> Handler:
    async def index(call: IdentityCall) -> Response:
        call.require(call.may_read(), f"list_{many}")
        return listing(call, many, [])

    return index


def _one(one: str) -> Handler:
    async def show(call: IdentityCall) -> Response:
        call.require(call.may_read(), f"get_{one.replace(' ', '_')}")
        raise NotFound(f"Could not find {one}: {call.path('id')[:64]}.")

    return show


def _create(one: str) -> Handler:
    async def create(call: IdentityCall) -> Response:
        call.require(call.has("admin"), f"create_{one.replace(' ', '_')}")
        raise NotBuilt(f"The embedded identity service makes no {one}s.")

    return create


def routes(context: IdentityContext) -> list[Route]:
    found: list[Route] = []
    for place, one in COLLECTIONS.items():
        path = f"/v3/{place}"
        found += [
            route(context, "GET", path, _index(place.rpartition("/")[2])),
            route(context, "POST", path, _create(one)),
            route(context, "PUT", path + "/{id}", _create(one)),
            *(route(context, method, path + "/{id}", _one(one)) for method in ("GET", "PATCH", "DELETE")),
        ]
    return found
