"""Below 2.36: snapshots of volumes, passed on to the volume service with the user's token (`api/compute/volumes.py` tells more)."""

from msgspec import UNSET, UnsetType

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.service_proxy import volumes_of
from moorage.api.compute.volumes import AS_ASKED, PAGED, passed_on, rows_of
from moorage.api.routes import Route
from moorage.api.schema import Body, NovaBool
from moorage.clients.http import Json
from moorage.model.errors import NotFound
from moorage.model.json_types import JsonObject

RULE = "os_compute_api:os-volumes:snapshots:"
PATH = "/os-snapshots"
THINGS = "snapshots"


class NewSnapshot(Body):
    volume_id: str
    force: NovaBool | UnsetType = UNSET
    display_name: str | UnsetType = UNSET
    display_description: str | UnsetType = UNSET


class CreateVolumeSnapshotBody(Body):
    snapshot: NewSnapshot


def shown(snapshot: Json) -> JsonObject:
    return {
        "id": snapshot["id"],
        "volumeId": snapshot.get("volume_id"),
        "status": snapshot.get("status"),
        "size": snapshot.get("size"),
        "createdAt": snapshot.get("created_at"),
        "displayName": snapshot.get("name"),
        "displayDescription": snapshot.get("description"),
    }


async def _list(call: Call[None]) -> Response:
    return Response(200, {"snapshots": [shown(each) for each in await rows_of(call, THINGS)]})


async def show(call: Call[None]) -> Response:
    try:
        snapshot = await volumes_of(call).show_as(call.token, call.project, THINGS, call.path["id"])
    except NotFound as missing:
        raise _no_snapshot(call) from missing
    return Response(200, {"snapshot": shown(snapshot)})


async def create(call: Call[CreateVolumeSnapshotBody]) -> Response:
    """Make a snapshot of a volume. Raises NotFound when the volume does not exist."""
    wanted = call.body.snapshot
    try:
        made = await volumes_of(call).make_as(call.token, call.project, THINGS, passed_on(wanted))
    except NotFound as missing:
        raise NotFound(f"Volume {wanted.volume_id} could not be found.", code="volume_not_found") from missing
    return Response(200, {"snapshot": shown(made)})


async def delete(call: Call[None]) -> Response:
    try:
        await volumes_of(call).remove_as(call.token, call.project, THINGS, call.path["id"])
    except NotFound as missing:
        raise _no_snapshot(call) from missing
    return Response(202)


def _no_snapshot(call: AnyCall) -> NotFound:
    return NotFound(f"Snapshot {call.path['id']} could not be found.", code="snapshot_not_found")


ROUTES = (
    Route("GET", PATH, _list, rule=RULE + "list", params=PAGED),
    Route("POST", PATH, create, rule=RULE + "create", takes=CreateVolumeSnapshotBody),
    Route("GET", PATH + "/detail", _list, rule=RULE + "detail", params=PAGED),
    Route("GET", PATH + "/{id}", show, rule=RULE + "show", params=AS_ASKED),
    Route("DELETE", PATH + "/{id}", delete, rule=RULE + "delete"),
)
