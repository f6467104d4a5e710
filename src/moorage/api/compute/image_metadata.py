"""Below 2.39: the properties of an image, as metadata; read and written at the image service with the user's token."""

import json

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.images import AS_ASKED, NOT_FOUND, metadata_of, the_image
from moorage.api.compute.server_bodies import Metadata
from moorage.api.compute.service_proxy import images_of
from moorage.api.routes import Route
from moorage.api.schema import Body
from moorage.clients.http import Json
from moorage.model.errors import Forbidden, Invalid, NotFound
from moorage.model.json_types import JsonObject
from moorage.store.region.quotas import both_limits

SKIPPED_WHEN_NONE = ("kernel_id", "ramdisk_id")
PATH = "/images/{id}/metadata"


class ImageMetadataBody(Body):
    metadata: Metadata


class ImageMetadataItemBody(Body):
    meta: Metadata


async def _write(call: AnyCall, image: Json, wanted: JsonObject) -> Json:
    """The image with this metadata, and no other. Raises Forbidden for too much of it, or for another's image."""
    if call.context.unified_limits is not None:  # Nova's driver has no limit for images
        return await _written(call, image, wanted)
    project, user, config = call.project, call.principal.user, call.context.config.quotas
    most = (await call.context.region.read(lambda tx: both_limits(tx, project, user, config)))["metadata_items"]
    if 0 <= most < len(wanted):
        raise Forbidden("Image metadata limit exceeded")
    return await _written(call, image, wanted)


async def _written(call: AnyCall, image: Json, wanted: JsonObject) -> Json:
    written = {
        name: value if isinstance(value, str) or value is None else json.dumps(value)
        for name, value in wanted.items()
        if name not in SKIPPED_WHEN_NONE or str(value).strip().lower() not in {"none", ""} or value is None
    }
    try:
        return await images_of(call).change_properties_as(call.token, image, written)
    except Forbidden as refused:
        raise Forbidden(f"Not authorized for image {image['id']}.", private=refused.public) from refused
    except NotFound as missing:
        raise NotFound(NOT_FOUND) from missing


async def index(call: Call[None]) -> Response:
    return Response(200, {"metadata": metadata_of(await the_image(call))})


async def show(call: Call[None]) -> Response:
    """Show one item of an image's metadata. Raises NotFound when the image does not have it."""
    metadata, key = metadata_of(await the_image(call)), call.path["key"]
    if key not in metadata:
        raise NotFound("The resource could not be found.")
    return Response(200, {"meta": {key: metadata[key]}})


async def add(call: Call[ImageMetadataBody]) -> Response:
    image = await the_image(call)
    after = await _write(call, image, {**metadata_of(image), **call.body.metadata})
    return Response(200, {"metadata": metadata_of(after)})


async def replace(call: Call[ImageMetadataBody]) -> Response:
    await _write(call, await the_image(call), dict(call.body.metadata))
    return Response(200, {"metadata": call.body.metadata})


async def change(call: Call[ImageMetadataItemBody]) -> Response:
    """Set one item of an image's metadata.

    Raises Invalid when the body has not exactly the key of the path, or another form.
    """
    meta, key = call.body.meta, call.path["key"]
    if len(meta) != 1:
        why = "does not have enough properties" if not meta else "has too many properties"
        raise Invalid(f"Invalid input for field/attribute meta. Value: {meta}. {meta!r} {why}")
    if key not in meta:
        raise Invalid("Request body and URI mismatch")
    image = await the_image(call)
    await _write(call, image, {**metadata_of(image), **meta})
    return Response(200, {"meta": meta})


async def delete(call: Call[None]) -> Response:
    """Remove one item of an image's metadata. Raises NotFound when the image does not have it."""
    image, key = await the_image(call), call.path["key"]
    metadata = metadata_of(image)
    if key not in metadata:
        raise NotFound("Invalid metadata key")
    del metadata[key]
    await _write(call, image, metadata)
    return Response(204)


ROUTES = (
    Route("GET", PATH, index, params=AS_ASKED),
    Route("POST", PATH, add, takes=ImageMetadataBody),
    Route("PUT", PATH, replace, takes=ImageMetadataBody),
    Route("GET", PATH + "/{key}", show, params=AS_ASKED),
    Route("PUT", PATH + "/{key}", change, takes=ImageMetadataItemBody),
    Route("DELETE", PATH + "/{key}", delete),
)
