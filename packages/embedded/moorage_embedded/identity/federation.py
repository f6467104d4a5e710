"""Identity providers, mappings, service providers and OAuth consumers, to be read: there are none, and none can be made."""

from starlette.responses import Response

from moorage.model.errors import NotBuilt, NotFound
from moorage_embedded.identity.request import Handler, IdentityCall, Routes, listing

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


def _routes(path: str, one: str) -> Routes:
    make, find = _create(one), _one(one)
    return {
        path: {"GET": _index(path.rpartition("/")[2]), "POST": make},
        f"{path}/{{id}}": {"PUT": make, "GET": find, "PATCH": find, "DELETE": find},
    }


ROUTES: Routes = {
    path: handlers for place, one in COLLECTIONS.items() for path, handlers in _routes(place, one).items()
}
