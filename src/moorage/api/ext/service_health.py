"""`/ext/neighbours`: which neighbours are left alone for now because they kept failing, by which process (N19)."""

from typing import Any

import msgspec

from moorage.api.call import Call, Response
from moorage.api.routes import Params, Route
from moorage.model.errors import Unavailable


async def show(call: Call[Any]) -> Response:
    call.require("moorage:neighbours:show")
    seen = call.context.nouns.get("neighbours")
    if seen is None:
        raise Unavailable("This front desk does not look at the neighbours.")
    return Response(200, {"left_alone": msgspec.to_builtins(seen())}, finished=True)


ROUTES = (Route("GET", "/ext/neighbours", show, params=Params({}, strict=(2, 1))),)
