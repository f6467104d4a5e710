"""`/ext/cells`: the cells of the region, as `nova-manage cell_v2` lists, disables and deletes them (N7)."""

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_lookup import service_of
from moorage.api.routes import Param, Params, Route
from moorage.api.schema import Body
from moorage.api.timestamps import micros, now_us
from moorage.model.errors import Invalid, NotFound, Unavailable
from moorage.model.ids import CellId
from moorage.model.json_types import JsonObject
from moorage.operations.rebalance import MOVES, MOVES_MAX
from moorage.operations.records import cells as nouns
from moorage.operations.records.cells import CellSummary
from moorage.sql import Database
from moorage.store.cell import identity as cell_identities
from moorage.store.region.placement.cells import CellStatus

BOOLEAN = "^(?i:true|false)$"


class ChangedCell(Body):
    disabled: bool
    disabled_reason: Annotated[str, Meta(max_length=255)] = ""


class UpdateCellBody(Body):
    cell: ChangedCell


class WantedBalance(Body):
    dry_run: bool
    moves: Annotated[int, Meta(ge=1, le=MOVES_MAX)] = MOVES


class BalanceBody(Body):
    balance: WantedBalance


async def index(call: AnyCall) -> Response:
    """All cells that the region knows, and those of this API's configuration."""
    call.require("moorage:cells:show")
    return Response(200, {"cells": await _rows(call)}, finished=True)


async def show(call: AnyCall) -> Response:
    call.require("moorage:cells:show")
    return Response(200, {"cell": await _row(call)}, finished=True)


async def update(call: Call[UpdateCellBody]) -> Response:
    """Disabled: no server comes from elsewhere, from the answer on. Its own servers stay, and move about in it."""
    call.require("moorage:cells:update")
    wanted, cell = call.body.cell, CellId(call.path["cell"])
    await nouns.set_disabled(
        call.context.region,
        cell,
        now_us(call.context.clock),
        disabled=wanted.disabled,
        reason=wanted.disabled_reason,
        by=call.principal.user,
        configured=cell in call.context.cells,
    )
    return Response(200, {"cell": await _row(call)}, finished=True)


async def delete(call: AnyCall) -> Response:
    """204: the region has forgotten it, and it is to be taken out of the configuration."""
    call.require("moorage:cells:delete")
    force = (call.first("force") or "").lower() == "true"
    await nouns.delete(call.context.region, CellId(call.path["cell"]), force=force)
    return Response(204)


async def balance(call: Call[BalanceBody]) -> Response:
    """Plan which moves would balance the cells, with the cost of each. Nothing is begun.

    Raises Invalid when it is not a dry run.
    """
    call.require("moorage:cells:balance")
    wanted = call.body.balance
    if not wanted.dry_run:
        raise Invalid("Only a plan is made: dry_run must be true.")
    plan = await service_of(call).balance_plan(call.principal, wanted.moves)
    return Response(200, {"balance": msgspec.to_builtins(plan)}, finished=True)


async def _row(call: AnyCall) -> JsonObject:
    wanted = call.path["cell"]
    row = next((row for row in await _rows(call) if row["name"] == wanted), None)
    if row is None:
        raise NotFound(f"Cell {wanted} could not be found.")
    return row


async def _rows(call: AnyCall) -> list[JsonObject]:
    databases = call.context.cells
    summaries = {each.cell: each for each in await call.context.region.read(nouns.listed)}
    names = sorted({*summaries, *databases})
    whys = await asyncio.gather(*(_why_out(databases.get(name)) for name in names))
    return [
        _shown(summaries.get(CellId(name)) or _new(CellId(name)), name in databases, why)
        for name, why in zip(names, whys, strict=True)
    ]


def _new(cell: CellId) -> CellSummary:
    return CellSummary(cell, CellStatus(cell), None, 0, 0, 0)


async def _why_out(database: Database | None) -> str | None:
    """None: it answers."""
    if database is None:
        return "it is not in the configuration of this API"
    try:
        await database.read(cell_identities.get)
    except Unavailable as out:
        return out.named or out.public
    return None


def _shown(summary: CellSummary, configured: bool, why: str | None) -> JsonObject:
    status = summary.status
    return {
        "name": summary.cell,
        "uuid": summary.uuid,
        "configured": configured,
        "answers": why is None,
        "why": why or "",
        "disabled": status.disabled,
        "disabled_reason": status.reason,
        "changed_by": status.said_by or None,
        "changed_at": micros(status.said_at) if status.said_by else None,
        "hosts": summary.hosts,
        "servers": summary.servers,
        "deleted_servers": summary.deleted_servers,
    }


FORCE = Params({"force": Param(form=BOOLEAN, many=False)}, strict=(2, 1))
NONE = Params({}, strict=(2, 1))

ROUTES = (
    Route("GET", "/ext/cells", index, params=NONE),
    Route("GET", "/ext/cells/{cell}", show, params=NONE),
    Route("PUT", "/ext/cells/{cell}", update, takes=UpdateCellBody, params=NONE),
    Route("POST", "/ext/balances", balance, takes=BalanceBody, params=NONE),
    Route("DELETE", "/ext/cells/{cell}", delete, params=FORCE),
)
