"""`/v3/OS-TRUST/trusts`, read-only: this service has no trusts, and none can be created."""

from starlette.responses import Response
from starlette.routing import Route

from moorage.model.errors import NotBuilt, NotFound
from moorage_embedded.identity.context import IdentityContext
from moorage_embedded.identity.request import IdentityCall, listing, route


async def index(call: IdentityCall) -> Response:
    """The caller's own, or for callers who may read the system, all."""
    whose = call.query("trustor_user_id") or call.query("trustee_user_id")
    call.require(whose == call.user_id or call.may_read())
    return listing(call, "trusts", [])


async def show(call: IdentityCall) -> Response:
    """Raises NotFound: this service has no trusts."""
    raise NotFound(f"Could not find trust: {call.path('id')[:64]}.")


async def create(call: IdentityCall) -> Response:
    """Raises NotBuilt: this service creates no trusts."""
    raise NotBuilt("The embedded identity service makes no trusts.")


def routes(context: IdentityContext) -> list[Route]:
    path = "/v3/OS-TRUST/trusts"
    return [
        route(context, "GET", path, index),
        route(context, "POST", path, create),
        route(context, "GET", path + "/{id}", show),
        route(context, "DELETE", path + "/{id}", show),
    ]
