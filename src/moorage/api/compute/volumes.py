"""Below 2.36: volumes, passed on to the volume service with the user's token and shown as they once were.

Source: Nova's API reference, "Volume extension"; sizes are GiB.  A creation answers 200 and shows the volume as it is then, a
deletion 202; the volume service's quota is 403 here, its other refusals are its own.
"""

from typing import Any

from msgspec import UNSET, UnsetType

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.service_proxy import volumes_of
from moorage.api.routes import NUMBER, Param, Params, Route
from moorage.api.schema import Body, NovaBool, Positive
from moorage.clients.http import Json
from moorage.model.errors import NotFound
from moorage.model.json_types import JsonObject

RULE = "os_compute_api:os-volumes:"
PATH = "/os-volumes"
THINGS = "volumes"
AS_ASKED = Params(strict=None)
PAGED = Params({"limit": Param(form=NUMBER), "offset": Param(form=NUMBER)}, strict=None)


class VolumeRequest(Body):
    size: Positive
    display_name: str | UnsetType = UNSET
    display_description: str | UnsetType = UNSET
    volume_type: str | UnsetType = UNSET
    metadata: JsonObject | UnsetType = UNSET
    snapshot_id: str | UnsetType = UNSET
    availability_zone: str | UnsetType = UNSET


class CreateVolumeBody(Body):
    volume: VolumeRequest


OUR_NAMES = {"display_name": "name", "display_description": "description"}
"""The volume service's names of two members that it once called as we do."""


def passed_on(body: Body) -> Json:
    """The members that were given, as the volume service calls them."""
    given = {name: value for name in body.__struct_fields__ if (value := getattr(body, name)) is not UNSET}
    return {OUR_NAMES.get(name, name): _plain(value) for name, value in given.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, NovaBool):
        return bool(value)
    return int(value) if isinstance(value, Positive) else value


def shown(volume: Json) -> JsonObject:
    """Of several attachments the last of the first server, as one volume was once attached to one server only."""
    return {
        "id": volume["id"],
        "status": volume.get("status"),
        "size": volume.get("size"),
        "availabilityZone": volume.get("availability_zone"),
        "createdAt": volume.get("created_at"),
        "attachments": [_attachment(volume)],
        "displayName": volume.get("name"),
        "displayDescription": volume.get("description"),
        "volumeType": volume.get("volume_type"),
        "snapshotId": volume.get("snapshot_id"),
        "metadata": volume.get("metadata") or {},
    }


def _attachment(volume: Json) -> JsonObject:
    """Empty for a volume that is not attached."""
    by_server = {each["server_id"]: each for each in volume.get("attachments") or () if each.get("server_id")}
    for server, attachment in by_server.items():
        fields = {"id": volume["id"], "volumeId": volume["id"], "serverId": server}
        return {**fields, **({"device": device} if (device := attachment.get("device")) else {})}
    return {}


async def rows_of(call: AnyCall, things: str) -> list[Json]:
    """The page that was asked for; a limit of 0 is none."""
    most = call.context.config.page_max_rows
    limit = min(call.number("limit") or most, most)
    return await volumes_of(call).list_as(call.token, call.project, things, limit=limit, offset=call.number("offset"))


async def _list(call: Call[None]) -> Response:
    return Response(200, {"volumes": [shown(each) for each in await rows_of(call, THINGS)]})


async def show(call: Call[None]) -> Response:
    try:
        volume = await volumes_of(call).show_as(call.token, call.project, THINGS, call.path["id"])
    except NotFound as missing:
        raise _no_volume(call) from missing
    return Response(200, {"volume": shown(volume)})


async def create(call: Call[CreateVolumeBody]) -> Response:
    made = await volumes_of(call).make_as(call.token, call.project, THINGS, passed_on(call.body.volume))
    return Response(200, {"volume": shown(made)}, headers={"location": call.self_link(f"os-volumes/{made['id']}")})


async def delete(call: Call[None]) -> Response:
    try:
        await volumes_of(call).remove_as(call.token, call.project, THINGS, call.path["id"])
    except NotFound as missing:
        raise _no_volume(call) from missing
    return Response(202)


def _no_volume(call: AnyCall) -> NotFound:
    return NotFound(f"Volume {call.path['id']} could not be found.", code="volume_not_found")


ROUTES = (
    Route("GET", PATH, _list, rule=RULE + "list", params=PAGED),
    Route("POST", PATH, create, rule=RULE + "create", takes=CreateVolumeBody),
    Route("GET", PATH + "/detail", _list, rule=RULE + "detail", params=PAGED),
    Route("GET", PATH + "/{id}", show, rule=RULE + "show", params=AS_ASKED),
    Route("DELETE", PATH + "/{id}", delete, rule=RULE + "delete"),
)
