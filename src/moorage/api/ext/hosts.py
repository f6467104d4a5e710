"""`/ext/hosts`: hosts that a person should look at: what they put aside, what is left alone there, who else spoke for them, and
what they could not wire of their ports.
"""

import asyncio
from collections.abc import Collection

from moorage.api.call import AnyCall, Response
from moorage.api.routes import Params, Route
from moorage.api.timestamps import micros, now_us
from moorage.model.errors import Unavailable
from moorage.model.host import NAMED_MAX, NO_TROUBLES, Host, HostTroubles
from moorage.model.ids import CellId, ServerId
from moorage.model.json_types import JsonObject
from moorage.operations.missing_servers import missing_in
from moorage.sql import Database, Tx
from moorage.store.cell import hosts as cell_hosts

REFUSAL_SHOWN_US = 120_000_000
"""A second agent asks again every few seconds; who has not for so long is gone."""


async def show(call: AnyCall) -> Response:
    call.require("moorage:hosts:show")
    now = now_us(call.context.clock)
    cells = call.context.cells
    answers = await asyncio.gather(*(_of_cell(call.context.region, CellId(cell), cells[cell], now) for cell in cells))
    rows = [row for rows in answers if rows is not None for row in rows]
    out = [cell for cell, rows in zip(cells, answers, strict=True) if rows is None]
    return Response(200, {"hosts": rows, "cells_out": out}, finished=True)


async def _of_cell(region: Database, cell: CellId, database: Database, now: int) -> list[JsonObject] | None:
    """None: it does not answer."""

    def with_troubles(tx: Tx) -> list[tuple[Host, HostTroubles]]:
        troubles = cell_hosts.troubles(tx)
        return [(each, troubles.get(each.host, NO_TROUBLES)) for each in cell_hosts.listed(tx)]

    try:
        looked = await database.read(with_troubles)
        missing = set(await missing_in(region, cell, database)) if any(each.left_alone for _, each in looked) else set()
    except Unavailable:
        return None
    rows = [_row(host, troubles, missing, now) for host, troubles in looked]
    return [row for row in rows if row["set_aside"] or row["left_alone"] or row["refused_agent"] or row["not_wired"]]


def _row(host: Host, troubles: HostTroubles, missing: Collection[ServerId], now: int) -> JsonObject:
    refused = troubles.refused_agent if now - troubles.refused_at < REFUSAL_SHOWN_US else ""
    return {
        "host": host.host,
        "cell": host.cell,
        "set_aside": list(host.set_aside[:NAMED_MAX]),
        "left_alone": troubles.left_alone_count,
        "missing_guests": [each for each in troubles.left_alone if each in missing],
        "unknown_guests": [each for each in troubles.left_alone if each not in missing],
        "refused_agent": refused,
        "refused_at": micros(troubles.refused_at) if refused else None,
        "not_wired": list(troubles.not_wired),
    }


ROUTES = (Route("GET", "/ext/hosts", show, params=Params({}, strict=(2, 1))),)
