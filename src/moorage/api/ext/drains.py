"""`/ext/drains`: hosts that are emptied: the plan first, then how far it is; the conductor that leads does it (N13)."""

from typing import Annotated

import msgspec
from msgspec import Meta

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_lookup import service_of
from moorage.api.host_view import host_named
from moorage.api.routes import NUMBER, TEXT, Param, Params, Route
from moorage.api.schema import Body
from moorage.api.timestamps import micros, now_us
from moorage.model.drain import CONCURRENCY_MAX, Drain, DrainRequest, DrainServer, DrainStatus
from moorage.model.errors import Conflict, NotFound
from moorage.model.ids import CellId, new_uuid
from moorage.model.json_types import JsonObject
from moorage.operations.drains.drain_moves import stays
from moorage.store.region import drains

LISTED_MAX = 100
NAMED_MAX = 5
"""Servers without another place that a refusal names."""


class DrainFields(Body):
    host: Annotated[str, Meta(min_length=1, max_length=255)]
    concurrency: Annotated[int, Meta(ge=1, le=CONCURRENCY_MAX)] = DrainRequest().concurrency
    confirm: bool = True
    partial: bool = False
    live: bool = True
    dry_run: bool = False


class CreateDrainBody(Body):
    drain: DrainFields


async def create(call: Call[CreateDrainBody]) -> Response:
    """Plan the drain of a host. Unless it is a dry run, or a server has no other place, begin it and answer 202; soon
    the host takes no new servers.

    Raises Conflict when servers have no other place.
    """
    call.require("moorage:drains:create")
    wanted = call.body.drain
    host, _ = await host_named(call, wanted.host)
    rows = await service_of(call).drain_plan(call.principal, host, live=wanted.live)
    request = DrainRequest(wanted.concurrency, wanted.confirm, wanted.partial, wanted.live)
    new = Drain(
        id=new_uuid(),
        host=host.host,
        cell=CellId(host.cell),
        asked_at=now_us(call.context.clock),
        asked_by=call.principal.user,
        project=call.project,
        asked=request,
        status=DrainStatus.WAITING,
        servers=rows,
    )
    if wanted.dry_run:
        return Response(200, {"drain": _with_servers(new) | {"id": None, "status": "planned"}}, finished=True)
    if not wanted.partial and (left := stays(rows)):
        raise Conflict(_refusal(host.host, left))
    if (refused := await call.context.region.write(lambda tx: drains.ask(tx, new))) is not None:
        raise refused
    return Response(202, {"drain": _with_servers(new)}, finished=True)


def _refusal(host: str, left: list[DrainServer]) -> str:
    named = "; ".join(f"{each.name or each.server} ({each.server}): {each.why}" for each in left[:NAMED_MAX])
    more = f"; and {len(left) - NAMED_MAX} more" if len(left) > NAMED_MAX else ""
    return f"{len(left)} servers of host {host} cannot be moved: {named}{more}"


async def index(call: AnyCall) -> Response:
    """The newest, without their servers."""
    call.require("moorage:drains:show")
    limit, _ = call.page()
    host = call.first("host")
    rows = await call.context.region.read(lambda tx: drains.listed(tx, host, min(limit, LISTED_MAX)))
    return Response(200, {"drains": [_row(each) for each in rows]}, finished=True)


async def show(call: AnyCall) -> Response:
    call.require("moorage:drains:show")
    return Response(200, {"drain": _with_servers(await _drain(call))}, finished=True)


async def cancel(call: AnyCall) -> Response:
    """Cancel a drain: moves under way are completed, no further one is begun, and the host stays disabled.

    Raises Conflict when the drain is over.
    """
    call.require("moorage:drains:cancel")
    drain = await _drain(call)
    if not await call.context.region.write(lambda tx: drains.cancel(tx, drain.id)):
        raise Conflict(f"Drain {drain.id} is over: it is {drain.status.value}.")
    return Response(202)


async def _drain(call: AnyCall) -> Drain:
    wanted = call.path["id"]
    drain = await call.context.region.read(lambda tx: drains.get(tx, wanted))
    if drain is None:
        raise NotFound(f"Drain {wanted} could not be found.")
    return drain


def _with_servers(drain: Drain) -> JsonObject:
    return _row(drain) | {"servers": [server_row(each) for each in drain.servers]}


def _row(drain: Drain) -> JsonObject:
    return {
        "id": drain.id,
        "host": drain.host,
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


def server_row(row: DrainServer) -> JsonObject:
    return {
        "server": row.server,
        "name": row.name,
        "way": row.way.value,
        "progress": row.progress.value,
        "planned": row.planned or None,
        "host": row.host or None,
        "attempts": row.attempts,
        "why": row.why,
    }


ROUTES = (
    Route("POST", "/ext/drains", create, takes=CreateDrainBody, params=Params({}, strict=(2, 1))),
    Route("GET", "/ext/drains", index, params=Params({"limit": Param(form=NUMBER), "host": TEXT}, strict=(2, 1))),
    Route("GET", "/ext/drains/{id}", show, params=Params({}, strict=(2, 1))),
    Route("POST", "/ext/drains/{id}/action", cancel, action="cancel"),
)
