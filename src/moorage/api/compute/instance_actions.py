"""`/servers/{id}/os-instance-actions`: what was done to a server, and how each part of it went."""

import hashlib
from collections.abc import Sequence

from moorage.api.call import AnyCall, Response
from moorage.api.compute.server_filters import instant, last_instant
from moorage.api.compute.server_lookup import target_of, the_server
from moorage.api.cross_cell import find_server
from moorage.api.routes import NUMBER, Param, Params, Route
from moorage.api.timestamps import micros
from moorage.api.version_changes import v2_021_servers, v2_051_servers, v2_058_servers
from moorage.model.action import Action, ActionEvent
from moorage.model.errors import Invalid, NotFound
from moorage.model.json_types import JsonObject
from moorage.model.operation import Operation, OperationStatus
from moorage.model.server import Server
from moorage.operations.shown_records import READS_MAX
from moorage.store.cell import actions as cell_actions
from moorage.store.region import operations as region_operations

RULE = "os_compute_api:os-instance-actions:"
WHEN = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$"
LISTING = Params(
    {
        "limit": Param(since=(2, 58), form=NUMBER, many=False),
        "marker": Param(since=(2, 58), many=False),
        "changes-since": Param(since=(2, 58), form=WHEN, many=False, format="date-time"),
        "changes-before": Param(since=(2, 66), form=WHEN, many=False, format="date-time"),
    },
    strict=(2, 58),
)


def _row(action: Action) -> JsonObject:
    return {
        "action": action.action,
        "instance_uuid": action.server,
        "request_id": action.request_id,
        "user_id": action.user,
        "project_id": action.project,
        "start_time": micros(action.started_at),
        "message": action.message,
        "updated_at": micros(action.updated_at),
    }


async def _server(call: AnyCall, rule: str) -> Server:
    return await the_server(call, RULE + rule, deleted=call.version >= v2_021_servers.DELETED_TOO)


async def _actions(call: AnyCall, server: Server) -> Sequence[Action]:
    """From the server's cell; the actions before it had one are made from its operations.

    They go along when the server moves into another cell, so where there are none it is looked for again.
    """
    id = server.id
    for _ in range(READS_MAX):
        cell = server.cell or ""
        database = call.context.cells.get(cell)
        if database is None:
            break
        recorded = await database.read(lambda tx: cell_actions.of_server(tx, id))
        if recorded:
            return recorded
        server = await find_server(call.context, id, deleted=True)
        if server.cell == cell:
            break
    operations = await call.context.region.read(lambda tx: region_operations.of_server(tx, server.id))
    return [_action_of(each) for each in operations]


def _action_of(operation: Operation) -> Action:
    failed = operation.status in {OperationStatus.UNDONE, OperationStatus.CLEANING, OperationStatus.STUCK}
    return Action(
        server=operation.server,
        action="create" if operation.name == "boot" else operation.name,
        request_id=operation.request_id,
        user=operation.user,
        project=operation.project,
        started_at=operation.created_at,
        updated_at=operation.updated_at,
        finished_at=operation.ended_at,
        message="Error" if failed else None,
    )


async def index(call: AnyCall) -> Response:
    """List a server's actions. Raises Invalid for a period that ends before it begins, and for an unknown marker."""
    server = await _server(call, "list")
    actions = await _actions(call, server)
    if call.version < v2_058_servers.PAGED:
        return Response(200, {"instanceActions": [_row(each) for each in actions]})
    since, before = call.first("changes-since"), call.first("changes-before")
    low = instant(since, "changes-since") if since else None
    high = last_instant(before, "changes-before") if before and call.version >= (2, 66) else None
    if low is not None and high is not None and high < low:
        raise Invalid("The value of changes-since must be less than or equal to changes-before.")
    listed = [
        each
        for each in actions
        if (low is None or each.updated_at >= low) and (high is None or each.updated_at <= high)
    ]
    limit, marker = call.page()
    if marker:
        places = [place for place, each in enumerate(listed) if each.request_id == marker]
        if not places:
            raise Invalid(f"marker [{marker}] not found")
        listed = listed[places[0] + 1 :]
    page = listed[:limit]
    path = f"servers/{server.id}/os-instance-actions"
    links = call.next_links(path, page, page[-1].request_id, limit) if page and call.first("limit") else []
    body: JsonObject = {"instanceActions": [_row(each) for each in page]}
    return Response(200, {**body, "links": links} if links else body)


async def show(call: AnyCall) -> Response:
    """Show one action of a server, with its events. Raises NotFound when the server has no such action."""
    server = await _server(call, "show")
    wanted = call.path["request"]
    action = next((each for each in await _actions(call, server) if each.request_id == wanted), None)
    if action is None:
        raise NotFound(f"Action {wanted} not found")
    body = _row(action)
    whole = call.allows(RULE + "events", target_of(server))
    if whole or call.version >= v2_051_servers.EVENTS_FOR_OWNERS:
        details = call.allows(RULE + "events:details", target_of(server))
        body["events"] = [_event(each, action.project, whole=whole, details=details) for each in action.events]
    return Response(200, {"instanceAction": body})


def _event(event: ActionEvent, project: str, *, whole: bool, details: bool) -> JsonObject:
    row: JsonObject = {
        "event": event.name,
        "start_time": micros(event.started_at),
        "finish_time": micros(event.finished_at),
        "result": event.result,
        "hostId": hashlib.sha224((project + event.host).encode()).hexdigest() if event.host else "",
    }
    if whole:
        row["traceback"] = event.traceback
        row["host"] = event.host
    if details:
        row["details"] = event.details
    return row


ROUTES = (
    Route("GET", "/servers/{id}/os-instance-actions", index, params=LISTING),
    Route("GET", "/servers/{id}/os-instance-actions/{request}", show),
)
