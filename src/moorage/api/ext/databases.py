"""`/ext/databases`: which cells' databases answer, and which servers of the region they do not know (RULES
§22), or know otherwise than the region (§26)."""

import asyncio

from moorage.api.call import AnyCall, Response
from moorage.api.routes import Params, Route
from moorage.model.errors import Unavailable
from moorage.model.ids import CellId
from moorage.model.json_types import JsonObject
from moorage.operations.doubtful_servers import doubtful_in
from moorage.operations.missing_servers import missing_in
from moorage.sql import Database

NAMED_MAX = 100
"""Missing and doubtful servers that are named; all are counted."""
NOTHING_KNOWN: JsonObject = {"missing": None, "missing_servers": [], "doubtful": None, "doubtful_servers": []}


async def show(call: AnyCall) -> Response:
    call.require("moorage:databases:show")
    cells = call.context.cells
    rows = await asyncio.gather(*(_row(call.context.region, name, database) for name, database in cells.items()))
    return Response(200, {"databases": rows}, finished=True)


async def _row(region: Database, name: str, database: Database) -> JsonObject:
    try:
        missing = await missing_in(region, CellId(name), database)
        doubtful = await doubtful_in(region, CellId(name), database)
    except Unavailable as out:
        return {"cell": name, "answers": False, "why": out.named or out.public, **NOTHING_KNOWN}
    return {
        "cell": name,
        "answers": True,
        "why": "",
        "missing": len(missing),
        "missing_servers": missing[:NAMED_MAX],
        "doubtful": len(doubtful),
        "doubtful_servers": [
            {"server": each.server, "why": each.doubt.value, "record": each.record, "known": each.known}
            for each in doubtful[:NAMED_MAX]
        ],
    }


ROUTES = (Route("GET", "/ext/databases", show, params=Params({}, strict=(2, 1))),)
