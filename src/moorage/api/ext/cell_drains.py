"""`/ext/cell-drains`: cells that are emptied: the plan first, then how far it is; the conductor that leads does it (N7)."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_lookup import service_of
from moorage.api.ext.drains import server_row
from moorage.api.routes import NUMBER, TEXT, Param, Params, Route
from moorage.api.schema import Body
from moorage.api.timestamps import micros, now_us
from moorage.model.cell_drain import HOSTS_AT_ONCE_MAX, CellDrain, CellDrainRequest, CellPlan, HostPart, RecordRow
from moorage.model.drain import CONCURRENCY_MAX, DrainProgress, DrainServer, DrainStatus
from moorage.model.errors import Conflict, NotFound
from moorage.model.ids import CellId, new_uuid
from moorage.model.json_types import JsonObject
from moorage.store.region import cell_drains

LISTED_MAX = 100
NAMED_MAX = 5
"""Servers without another place that a refusal names."""


class CellDrainFields(Body):
    cell: Annotated[str, Meta(min_length=1, max_length=64)]
    hosts: Annotated[int, Meta(ge=1, le=HOSTS_AT_ONCE_MAX)] = CellDrainRequest().hosts
    concurrency: Annotated[int, Meta(ge=1, le=CONCURRENCY_MAX)] = CellDrainRequest().concurrency
    confirm: bool = True
    partial: bool = False
    live: bool = True
    dry_run: bool = False


class CreateCellDrainBody(Body):
    cell_drain: CellDrainFields


async def create(call: Call[CreateCellDrainBody]) -> Response:
    """Plan the drain of a cell. Unless it is a dry run, or a server has no place elsewhere, begin it and answer 202;
    soon the cell takes no new servers.

    Raises NotFound for an unknown cell, and Conflict when servers have no other place.
    """
    call.require("moorage:cell_drains:create")
    wanted = call.body.cell_drain
    if wanted.cell not in call.context.cells:
        raise NotFound(f"Cell {wanted.cell} could not be found.")
    cell, project = CellId(wanted.cell), call.project
    plan = await service_of(call).cell_drain_plan(call.principal, cell, live=wanted.live)
    request = CellDrainRequest(wanted.hosts, wanted.concurrency, wanted.confirm, wanted.partial, wanted.live)
    new = CellDrain(
        id=new_uuid(),
        cell=cell,
        asked_at=now_us(call.context.clock),
        asked_by=call.principal.user,
        project=project,
        asked=request,
        status=DrainStatus.WAITING,
        hosts=tuple(HostPart(each.host, servers=_counts(each.servers)) for each in plan.hosts),
    )
    if wanted.dry_run:
        shown = msgspec.structs.replace(new, records=plan.records)
        return Response(
            200, {"cell_drain": _with_servers(shown, plan) | {"id": None, "status": "planned"}}, finished=True
        )
    stays = _stays(plan)
    if stays and not wanted.partial:
        raise Conflict(_refusal(cell, stays))
    if (refused := await call.context.region.write(lambda tx: cell_drains.ask(tx, new))) is not None:
        raise refused
    return Response(202, {"cell_drain": _with_servers(new, plan)}, finished=True)


def _stays(plan: CellPlan) -> list[DrainServer | RecordRow]:
    every: list[DrainServer | RecordRow] = [row for each in plan.hosts for row in each.servers]
    every += plan.records
    return [each for each in every if each.progress is DrainProgress.LEFT]


def _counts(rows: Sequence[DrainServer]) -> dict[str, int]:
    return {each.value: n for each in DrainProgress if (n := sum(row.progress is each for row in rows))}


def _refusal(cell: CellId, left: Sequence[DrainServer | RecordRow]) -> str:
    named = "; ".join(f"{each.name or each.server} ({each.server}): {each.why}" for each in left[:NAMED_MAX])
    more = f"; and {len(left) - NAMED_MAX} more" if len(left) > NAMED_MAX else ""
    return f"{len(left)} servers of cell {cell} cannot be moved: {named}{more}"


async def index(call: AnyCall) -> Response:
    """The newest, without their hosts."""
    call.require("moorage:cell_drains:show")
    limit, _ = call.page()
    cell = call.first("cell")
    rows = await call.context.region.read(lambda tx: cell_drains.listed(tx, cell, min(limit, LISTED_MAX)))
    return Response(200, {"cell_drains": [_row(each) for each in rows]}, finished=True)


async def show(call: AnyCall) -> Response:
    call.require("moorage:cell_drains:show")
    return Response(200, {"cell_drain": _with_servers(await _drain(call))}, finished=True)


async def cancel(call: AnyCall) -> Response:
    """Cancel a drain: moves under way are completed, no further one is begun, and the cell stays disabled.

    Raises Conflict when the drain is over.
    """
    call.require("moorage:cell_drains:cancel")
    drain = await _drain(call)
    if not await call.context.region.write(lambda tx: cell_drains.cancel(tx, drain.id)):
        raise Conflict(f"Drain {drain.id} is over: it is {drain.status.value}.")
    return Response(202)


async def _drain(call: AnyCall) -> CellDrain:
    wanted = call.path["id"]
    drain = await call.context.region.read(lambda tx: cell_drains.get(tx, wanted))
    if drain is None:
        raise NotFound(f"Drain {wanted} could not be found.")
    return drain


def _with_servers(drain: CellDrain, plan: CellPlan | None = None) -> JsonObject:
    """With the plan's servers, host by host, where there is one; later each host's drain has them."""
    planned = {} if plan is None else {each.host: [server_row(row) for row in each.servers] for each in plan.hosts}
    hosts = [
        {
            "host": each.host,
            "drain": each.drain or None,
            "progress": each.progress.value,
            "counts": each.servers,
            "why": each.why,
        }
        | ({"servers": planned[each.host]} if each.host in planned else {})
        for each in drain.hosts
    ]
    records = drain.records if plan is None else plan.records
    return _row(drain) | {"hosts": hosts, "offloaded": [_record(each) for each in records]}


def _record(row: RecordRow) -> JsonObject:
    return {
        "server": row.server,
        "name": row.name,
        "cell": row.to or None,
        "progress": row.progress.value,
        "attempts": row.attempts,
        "why": row.why,
    }


def _row(drain: CellDrain) -> JsonObject:
    return {
        "id": drain.id,
        "cell": drain.cell,
        "status": drain.status.value,
        "why": drain.why,
        "cancel": drain.cancel,
        "asked": msgspec.to_builtins(drain.asked),
        "asked_by": drain.asked_by,
        "asked_at": micros(drain.asked_at),
        "began_at": micros(drain.began_at),
        "ended_at": micros(drain.ended_at),
        "counts": drain.counts(),
    }


NONE = Params({}, strict=(2, 1))

ROUTES = (
    Route("POST", "/ext/cell-drains", create, takes=CreateCellDrainBody, params=NONE),
    Route("GET", "/ext/cell-drains", index, params=Params({"limit": Param(form=NUMBER), "cell": TEXT}, strict=(2, 1))),
    Route("GET", "/ext/cell-drains/{id}", show, params=NONE),
    Route("POST", "/ext/cell-drains/{id}/action", cancel, action="cancel"),
)
