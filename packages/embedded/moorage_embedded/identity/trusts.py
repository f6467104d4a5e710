"""`/v3/OS-TRUST/trusts`, read-only: this service has no trusts, and none can be created."""

from starlette.responses import Response

from moorage.model.errors import NotBuilt, NotFound
from moorage_embedded.identity.request import IdentityCall, Routes, listing


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


ROUTES: Routes = {
    "OS-TRUST/trusts": {"GET": index, "POST": create},
    "OS-TRUST/trusts/{id}": {"GET": show, "DELETE": show},
}
