"""What the service is: its versions, schemas, stores and ways of import."""

from typing import Any

from starlette.responses import Response

from moorage_embedded.http_kit.answers import HttpFault, json_response
from moorage_embedded.image import metadef_schemas
from moorage_embedded.image.faults import not_found
from moorage_embedded.image.request import ImageCall, ImageContext, changeable_image
from moorage_embedded.image.schemas import SCHEMAS
from moorage_embedded.image.staging import METHODS

CURRENT = "2.17"
# 2.14 and 2.16 tell of a cache of images, which we have not.
VERSIONS = (CURRENT, "2.15", *(f"2.{minor}" for minor in range(13, -1, -1)))


def versions(context: ImageContext, status: int) -> Response:
    links = [{"rel": "self", "href": f"{context.public_url}/v2/"}]
    each: list[dict[str, Any]] = [
        {"id": f"v{number}", "status": "CURRENT" if number == CURRENT else "SUPPORTED", "links": links}
        for number in VERSIONS
    ]
    return json_response({"versions": each}, status)


async def schema(call: ImageCall) -> Response:
    found = SCHEMAS.get(call.path("name"))
    if found is None:
        raise not_found("The resource could not be found.")
    return json_response(found)


async def metadef_schema(call: ImageCall) -> Response:
    found = metadef_schemas.SCHEMAS.get(call.path("name"))
    if found is None:
        raise not_found("The resource could not be found.")
    return json_response(found)


async def stores(call: ImageCall) -> Response:
    kept_in = {"id": call.context.settings.store, "description": "A directory of this machine", "default": "true"}
    return json_response({"stores": [kept_in]})


async def import_methods(call: ImageCall) -> Response:
    known = {"description": "Import methods available.", "type": "array", "value": list(METHODS)}
    return json_response({"import-methods": known})


async def forget_from_store(call: ImageCall) -> Response:
    """Refuse to delete data from the only store. Raises HttpFault: 409 for an unknown store, else 403."""
    if call.path("store") != call.context.settings.store:
        raise HttpFault(409, f"The selected store {call.path('store')} is not available on this node.")

    await call.context.write(lambda store: changeable_image(store, call.who, call.path("id"), "delete_image_location"))
    raise HttpFault(
        403, "Cannot delete image data from the only store containing it. Consider deleting the image instead."
    )
