"""`/ext/servers/{id}/explain` and `/ext/operations`: administrators see hosts and numbers, owners causes and counts."""

from moorage.api.call import AnyCall, Response
from moorage.api.compute.server_lookup import target_of, the_server
from moorage.api.ext.waiting import described
from moorage.api.routes import NUMBER, Param, Params, Route
from moorage.api.timestamps import seconds
from moorage.model.errors import Invalid, NotFound
from moorage.model.ids import OperationId, ServerId
from moorage.model.json_types import JsonObject
from moorage.model.operation import Operation, OperationStatus
from moorage.operations.explain import About, explained
from moorage.operations.timeline import timeline
from moorage.saga import decode_lines
from moorage.store.region import operations as region_operations
from moorage.store.region import waiting

LISTING = Params(
    {
        "limit": Param(form=NUMBER),
        "marker": Param(),
        "status": Param(),
        "server": Param(),
        "all_projects": Param(),
    },
    strict=(2, 1),
)


async def explain(call: AnyCall) -> Response:
    server = await the_server(call, "moorage:explain:show", deleted=True)
    whole = call.allows("moorage:explain:details", target_of(server))
    operations, waits = await call.context.region.read(
        lambda tx: (region_operations.of_server(tx, server.id), waiting.of_server(tx, server.id))
    )
    about = None
    engine = call.context.placement
    if whole and engine is not None and (host := call.first("host")):
        roll = engine.world().roll()
        about = About(host, roll.names, roll.digest)
    explanation = explained(operations, whole=whole, about=about)
    explanation["waits"] = None if waits is None else described(waits)
    return Response(200, {"explain": {"server": server.id, **explanation}}, finished=True)


def _row(operation: Operation, *, whole: bool) -> JsonObject:
    row: JsonObject = {
        "id": operation.id,
        "name": operation.name,
        "server": operation.server,
        "status": operation.status.value,
        "created_at": seconds(operation.created_at),
        "updated_at": seconds(operation.updated_at),
        "ended_at": seconds(operation.ended_at),
        "waiting": operation.waiting_named if whole else operation.waiting,
        "fault": operation.fault,
        "cancel": operation.cancel,
        "after": operation.after,
        "request_id": operation.request_id,
    }
    if whole:
        row |= {
            "saga": operation.saga,
            "project_id": operation.project,
            "user_id": operation.user,
            "owner": operation.owner,
            "epoch": operation.epoch,
            "head": operation.head,
        }
    return row


async def index(call: AnyCall) -> Response:
    """List operations. Raises Invalid for an unknown status."""
    call.require("moorage:operations:list")
    whole = call.allows("moorage:operations:details")
    everywhere = call.first("all_projects") in {"", "1", "true", "True"} and "all_projects" in call.query
    if everywhere:
        call.require("moorage:operations:list:all_projects")
    limit, marker = call.page()
    server = call.first("server")
    statuses = []
    for word in call.query.get("status", []):
        if word not in {each.value for each in OperationStatus}:
            raise Invalid(f"'{word}' is not a status of operations")
        statuses.append(OperationStatus(word))
    operations = await call.context.region.read(
        lambda tx: region_operations.listed(
            tx,
            project=None if everywhere else call.project,
            statuses=statuses,
            server=None if server is None else ServerId(server),
            marker=OperationId(marker) if marker else None,
            limit=limit,
        )
    )
    return Response(200, {"operations": [_row(each, whole=whole) for each in operations]}, finished=True)


async def show(call: AnyCall) -> Response:
    """Show one operation. Raises NotFound."""
    wanted = OperationId(call.path["id"])
    operation = await call.context.region.read(lambda tx: region_operations.get(tx, wanted))
    if operation is None or (operation.project != call.principal.project and not call.is_admin):
        raise NotFound(f"Operation {wanted} could not be found.")
    target = {"project_id": operation.project, "user_id": operation.user}
    call.require("moorage:operations:show", target)
    whole = call.allows("moorage:operations:details", target)
    row = _row(operation, whole=whole)
    row["steps"] = timeline(decode_lines(operation.journal))
    if whole:
        row["lines"] = operation.lines()
    return Response(200, {"operation": row}, finished=True)


ROUTES = (
    Route("GET", "/ext/servers/{id}/explain", explain, params=Params({"host": Param()})),
    Route("GET", "/ext/operations", index, params=LISTING),
    Route("GET", "/ext/operations/{id}", show),
)
