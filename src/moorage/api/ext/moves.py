"""`/ext/servers/{id}/moves`: what a server's moves have at their two ends, and the cancel of one."""

import msgspec

from moorage.api.call import AnyCall, Response
from moorage.api.compute.server_lookup import not_locked, service_of, the_server
from moorage.api.routes import NUMBER, Param, Params, Route
from moorage.api.timestamps import micros
from moorage.model.json_types import JsonObject
from moorage.operations.moves.move_ends import (
    MOVES_MAX,
    AttachmentSeen,
    BindingSeen,
    EndSeen,
    MoveSeen,
    may_be_cancelled,
)


async def index(call: AnyCall) -> Response:
    """The newest first; the services beside us are asked about those that are open."""
    server = await the_server(call, "moorage:moves:show")
    limit, _ = call.page()
    moves = await service_of(call).moves_of(server, limit=min(limit, MOVES_MAX))
    return Response(200, {"moves": [_move(each) for each in moves]}, finished=True)


async def cancel(call: AnyCall) -> Response:
    """It is taken back as far as it came; one that its server has followed is reverted instead."""
    server = await the_server(call, "moorage:moves:cancel")
    not_locked(call, server)
    await service_of(call).cancel_move(call.principal, server, call.path["move"], request_id=call.request_id)
    return Response(202)


def _move(view: MoveSeen) -> JsonObject:
    move, doing = view.migration, view.doing
    return {
        "id": move.uuid,
        "number": move.number,
        "type": move.type.value,
        "status": move.status.value,
        "since": micros(move.created_at),
        "updated_at": micros(move.updated_at),
        "waiting": view.waiting,
        "may_be_cancelled": may_be_cancelled(view),
        "operation": None
        if doing is None
        else {**msgspec.to_builtins(doing), "since": micros(doing.since), "step": doing.step or None},
        "source": _end(view.source),
        "destination": _end(view.destination),
        "unbound_ports": list(view.unbound),
        "attachments_elsewhere": [_attachment(each) for each in view.held_only],
        "services_out": list(view.out),
    }


def _end(end: EndSeen) -> JsonObject:
    return {
        "host": end.host,
        "cell": end.cell,
        "node": end.node,
        "consumer": end.consumer,
        "claimed": [msgspec.to_builtins(each) for each in end.claimed],
        "addresses": end.addresses,
        "bindings": [_binding(each) for each in end.bindings],
        "attachments": [_attachment(each) for each in end.attachments],
    }


def _binding(binding: BindingSeen) -> JsonObject:
    return {
        "port": binding.port,
        "status": "ACTIVE" if binding.active else "INACTIVE",
        "vif_type": binding.vif_type,
        "addresses": list(binding.addresses),
    }


def _attachment(attachment: AttachmentSeen) -> JsonObject:
    return msgspec.to_builtins(attachment)  # type: ignore[no-any-return]  # a Struct becomes a dict


ROUTES = (
    Route("GET", "/ext/servers/{id}/moves", index, params=Params({"limit": Param(form=NUMBER)}, strict=(2, 1))),
    Route("POST", "/ext/servers/{id}/moves/{move}/action", cancel, action="cancel"),
)
