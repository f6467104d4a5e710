"""`/ext/neighbours`: the services that a process does not call for now, because they kept failing (N19)."""

import msgspec

from moorage.api.call import AnyCall, Response
from moorage.api.routes import Params, Route
from moorage.model.errors import Unavailable


async def show(call: AnyCall) -> Response:
    """Show which services answer. Raises Unavailable when this API process does not watch them."""
    call.require("moorage:neighbours:show")
    open_circuits = call.context.open_circuits
    if open_circuits is None:
        raise Unavailable("This API process does not watch other services.")
    return Response(200, {"left_alone": msgspec.to_builtins(open_circuits())}, finished=True)


ROUTES = (Route("GET", "/ext/neighbours", show, params=Params({}, strict=(2, 1))),)
