"""What the service is: its versions, schemas, stores, ways of import (none), and its list of tasks (empty)."""

from typing import Any

from starlette.responses import Response

from moorage.embedded.image import metadef_schemas
from moorage.embedded.image.call import Call, Desk, json, look_up, look_up_mine
from moorage.embedded.image.faults import Fault, bad, not_allowed, not_found
from moorage.embedded.image.schemas import SCHEMAS

CURRENT = "2.17"
# 2.14 and 2.16 tell of a cache of images, which we have not.
VERSIONS = (CURRENT, "2.15", *(f"2.{minor}" for minor in range(13, -1, -1)))


def versions(desk: Desk, status: int) -> Response:
    links = [{"rel": "self", "href": f"{desk.public_url}/v2/"}]
    each: list[dict[str, Any]] = [
        {"id": f"v{number}", "status": "CURRENT" if number == CURRENT else "SUPPORTED", "links": links}
        for number in VERSIONS
    ]
    return json({"versions": each}, status)


async def schema(call: Call) -> Response:
    found = SCHEMAS.get(call.parts[1])
    if found is None:
        raise not_found("The resource could not be found.")
    return json(found)


async def metadef_schema(call: Call) -> Response:
    found = metadef_schemas.SCHEMAS.get(call.parts[2])
    if found is None:
        raise not_found("The resource could not be found.")
    return json(found)


async def stores(call: Call) -> Response:
    kept_in = {"id": call.desk.settings.store, "description": "A directory of this machine", "default": "true"}
    return json({"stores": [kept_in]})


async def import_methods(call: Call) -> Response:
    return json({"import-methods": {"description": "Import methods available.", "type": "array", "value": []}})


async def refuse_import(call: Call) -> Response:
    """Nothing is fetched from addresses that users name; data is uploaded."""
    id = call.parts[1]
    said = await call.body()
    method = said.get("method") if isinstance(said, dict) else None
    if not isinstance(method, dict):
        raise bad("Import request requires a 'method' field.")
    if "name" not in method:
        raise bad("Import request requires a 'name' field.")
    await call.desk.read(lambda store: look_up(store, call.who, id))
    raise bad(f"Unknown import method name '{method['name']}'. Upload the data with PUT /v2/images/{id}/file.")


async def refuse_stage(call: Call) -> Response:
    raise not_found("'glance-direct' method is not available at this site.")


async def tasks(call: Call) -> Response:
    """Tasks are what imports leave behind; there are none."""
    if not call.who.admin:
        raise not_allowed("tasks_api_access")
    return json({"tasks": [], "first": "/v2/tasks", "schema": "/v2/schemas/tasks"})


async def image_tasks(call: Call) -> Response:
    await call.desk.read(lambda store: look_up(store, call.who, call.parts[1]))
    return json({"tasks": []})


async def forget_from_store(call: Call) -> Response:
    """There is one store, and the last copy of an image's data is not to be taken away."""
    if call.parts[1] != call.desk.settings.store:
        raise Fault(409, f"The selected store {call.parts[1]} is not available on this node.")

    await call.desk.write(lambda store: look_up_mine(store, call.who, call.parts[2], "delete_image_location"))
    raise Fault(403, "Cannot delete image data from the only store containing it. Consider deleting the image instead.")
