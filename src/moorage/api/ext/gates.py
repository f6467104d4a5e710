"""`/ext/gates`: which behaviour the fleet's levels allow, and which hosts block the next (N14)."""

from typing import Any

import msgspec

from moorage.api.call import Call, Reply
from moorage.api.routes import Params, Route
from moorage.model.errors import Unavailable
from moorage.operations.gates import report


async def show(call: Call[Any]) -> Reply:
    call.require("moorage:gates:show")
    facts = call.desk.nouns.get("gates")
    if facts is None:
        raise Unavailable("This front desk does not look at the gates.")
    return Reply(200, {"gates": msgspec.to_builtins(report(facts()), str_keys=True)}, finished=True)


ROUTES = (Route("GET", "/ext/gates", show, params=Params({}, strict=(2, 1))),)
