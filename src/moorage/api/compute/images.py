"""Below 2.36: images, passed on to the image service and shown as they once were."""

import json

from typing_extensions import override

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.service_proxy import images_of
from moorage.api.microversions import Query, Version
from moorage.api.routes import NUMBER, TEXT, Param, Params, Route
from moorage.clients.http import Json
from moorage.clients.image import properties_of
from moorage.model.errors import Forbidden, Invalid, NotFound
from moorage.model.json_types import JsonObject

FILTERS = {
    "name": "name",
    "status": "status",
    "changes-since": "updated_at",
    "server": "instance_uuid",
    "type": "image_type",
    "minRam": "min_ram",
    "minDisk": "min_disk",
}
"""Our name → the image service's."""
PROPERTY = "property-"
STATUSES = {
    "active": "ACTIVE",
    "queued": "SAVING",
    "saving": "SAVING",
    "deleted": "DELETED",
    "pending_delete": "DELETED",
    "killed": "ERROR",
}
PROGRESS = {"queued": 25, "saving": 50, "active": 100}
WRITTEN_AS_JSON = ("block_device_mapping", "mappings")
TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})
NOT_FOUND = "Image not found."


def metadata_of(image: Json) -> JsonObject:
    """Return an image's properties as Nova shows them; two of them are lists, which the image service keeps as JSON.

    Raises Invalid when one of these is not JSON.
    """
    metadata = properties_of(image)
    for name in WRITTEN_AS_JSON:
        if isinstance(metadata.get(name), str):
            try:
                metadata[name] = json.loads(metadata[name])
            except ValueError as broken:
                raise Invalid(f"The property {name} of image {image['id']} is not JSON.") from broken
    return metadata


async def the_image(call: AnyCall) -> Json:
    """The image service's record. Raises NotFound."""
    try:
        return await images_of(call).show_as(call.token, call.path["id"])
    except NotFound as missing:
        raise NotFound(NOT_FOUND) from missing


def _links(call: AnyCall, image: str) -> list[dict[str, str]]:
    href = f"{call.context.config.image_url.rstrip('/')}/images/{image}"
    return [
        *call.links(f"images/{image}"),
        {"rel": "alternate", "type": "application/vnd.openstack.image", "href": href},
    ]


def _basic(call: AnyCall, image: Json) -> JsonObject:
    return {"id": image["id"], "name": image.get("name"), "links": _links(call, image["id"])}


def _full(call: AnyCall, image: Json) -> JsonObject:
    metadata = metadata_of(image)
    shown: JsonObject = {
        **_basic(call, image),
        "minRam": image.get("min_ram") or 0,
        "minDisk": image.get("min_disk") or 0,
        "metadata": metadata,
        "created": image.get("created_at"),
        "updated": image.get("updated_at"),
        "status": STATUSES.get(image["status"], "UNKNOWN"),
        "progress": PROGRESS.get(image["status"], 0),
        "OS-EXT-IMG-SIZE:size": image.get("size") or 0,
    }
    if (server := metadata.get("instance_uuid")) is not None:
        shown["server"] = {"id": server, "links": call.links(f"servers/{server}")}
    if (automatic := metadata.get("auto_disk_config")) is not None:
        shown["OS-DCF:diskConfig"] = "AUTO" if str(automatic).strip().lower() in TRUE else "MANUAL"
    return shown


# ------------------------------------------------------------------------------------------------ calls


def _filters(call: Call[None]) -> dict[str, str]:
    filters: dict[str, str] = {}
    for name in call.query:
        value = call.first(name) or ""
        if name.startswith(PROPERTY):
            filters[name.removeprefix(PROPERTY)] = value
        elif name in FILTERS:
            filters[FILTERS[name]] = value
    if "status" in filters:
        filters["status"] = filters["status"].lower()
    if "updated_at" in filters:
        filters["updated_at"] = f"gte:{filters['updated_at']}"
    if "instance_uuid" in filters:  # a server may be named by its whole address
        filters["instance_uuid"] = filters["instance_uuid"].rsplit("/", 1)[-1]
    return filters


async def _listed(call: Call[None]) -> tuple[list[Json], int]:
    most = call.context.config.page_max_rows
    limit = min(call.number("limit") or most, most)
    rows = await images_of(call).list_as(call.token, _filters(call), limit=limit, marker=call.first("marker"))
    return rows, limit


def _page(call: Call[None], shown: list[JsonObject], limit: int, path: str) -> Response:
    body: JsonObject = {"images": shown}
    if shown and (links := call.next_links(path, shown, shown[-1]["id"], limit)):
        body["images_links"] = links
    return Response(200, body)


async def index(call: Call[None]) -> Response:
    rows, limit = await _listed(call)
    return _page(call, [_basic(call, row) for row in rows], limit, "images")


async def detail(call: Call[None]) -> Response:
    rows, limit = await _listed(call)
    return _page(call, [_full(call, row) for row in rows], limit, "images/detail")


async def show(call: Call[None]) -> Response:
    return Response(200, {"image": _full(call, await the_image(call))})


async def delete(call: Call[None]) -> Response:
    """Delete an image. Raises NotFound when the user does not see it, and Forbidden when the image service refuses."""
    try:
        await images_of(call).delete_as(call.token, call.path["id"])
    except NotFound as missing:
        raise NotFound(NOT_FOUND) from missing
    except Forbidden as refused:
        raise Forbidden("You are not allowed to delete the image.", private=refused.public) from refused
    return Response(204)


AS_ASKED = Params(strict=None)
NUMBERED = Param(form=NUMBER)


class Filters(Params):
    """Any name may be a property's."""

    @override
    def check(self, query: Query, version: Version) -> Query:
        numbers = Params({"limit": NUMBERED, "page_size": NUMBERED, "offset": NUMBERED, "marker": TEXT}, strict=None)
        known = numbers.check(query, version)
        return {**query, **known}


ROUTES = (
    Route("GET", "/images", index, params=Filters(strict=None)),
    Route("GET", "/images/detail", detail, params=Filters(strict=None)),
    Route("GET", "/images/{id}", show, params=AS_ASKED),
    Route("DELETE", "/images/{id}", delete),
)
