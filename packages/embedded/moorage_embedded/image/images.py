"""Images: made, shown, listed, changed, tagged, put to sleep and deleted."""

from typing import Any

from starlette.responses import Response

from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.image import attributes, listing, patch
from moorage_embedded.image.faults import bad, conflict, forbidden, not_allowed, not_found, too_large
from moorage_embedded.image.policy import FORMATS
from moorage_embedded.image.request import ImageCall, changeable_image, fillable_image, json_text, touch, visible_image
from moorage_embedded.image.schemas import WORD_MAX_CHARS
from moorage_embedded.image.staging import METHODS
from moorage_embedded.image.store import Doc, ImageTables, NoMarker


async def create(call: ImageCall) -> Response:
    context, settings = call.context, call.context.settings
    doc, born = attributes.new_image(call.who, await call.body(), settings)

    def work(store: ImageTables) -> None:
        if doc["owner"] is not None and store.count(doc["owner"]) >= settings.images_max:
            raise too_large(f"The project owns {settings.images_max} images, which is the limit.")
        if not store.add(doc, born):
            raise conflict(f"Image ID {doc['id']} already exists!")

    await context.write(work)
    headers = {
        "Location": f"{context.public_url}/v2/images/{doc['id']}",
        "OpenStack-image-store-ids": settings.store,
        "OpenStack-image-import-methods": ",".join(METHODS),
    }
    return json_response(doc, 201, headers)


async def show(call: ImageCall) -> Response:
    id = call.path("id")
    return json_text(await call.context.read_inline(lambda store: visible_image(store, call.who, id).text))


async def index(call: ImageCall) -> Response:
    if not call.who.reader:
        raise not_allowed("get_images")
    query = listing.query_of(call.pairs, call.who, call.context.settings)
    try:
        texts = await call.context.read(lambda store: store.page(query))
    except NoMarker:
        raise bad(f"No image found with ID {query.marker}") from None
    links = listing.links_of(call.pairs, texts, query.limit)
    return json_text(f'{{"images":[{",".join(texts)}],{links},"schema":"/v2/schemas/images"}}')


async def update(call: ImageCall) -> Response:
    id = call.path("id")
    media = call.request.headers.get("content-type", "").partition(";")[0].strip()
    changes = patch.changes_of(media, await _patch_body(call, media))

    def work(store: ImageTables) -> Doc:
        formats = all(each.name in FORMATS for each in changes)
        find = fillable_image if formats else changeable_image
        doc = find(store, call.who, id, "modify_image")
        if not changes:
            return doc
        patch.apply(doc, changes, call.who)
        attributes.check_limits(doc, call.context.settings)
        store.put(doc, touch(doc), words=True)
        return doc

    return json_response(await call.context.write(work))


async def _patch_body(call: ImageCall, media: str) -> Any:
    patch.check_media(media)
    return await call.body()


async def delete(call: ImageCall) -> Response:
    id = call.path("id")

    def work(store: ImageTables) -> None:
        doc = changeable_image(store, call.who, id, "delete_image")
        if doc["protected"]:
            raise forbidden(f"Image {id} is protected and cannot be deleted.")
        store.remove(id)

    await call.context.write(work)
    await call.context.files.forget(id)
    return empty_response()


async def tag(call: ImageCall) -> Response:
    id, word = call.path("id"), call.path("tag")
    if len(word) > WORD_MAX_CHARS:
        raise bad(f"Provided object does not match schema 'image': {word!r} is too long")

    def work(store: ImageTables) -> None:
        doc = changeable_image(store, call.who, id, "modify_image")
        doc["tags"] = sorted({*doc["tags"], word})
        attributes.check_limits(doc, call.context.settings)
        store.put(doc, touch(doc), words=True)

    await call.context.write(work)
    return empty_response()


async def untag(call: ImageCall) -> Response:
    id, word = call.path("id"), call.path("tag")

    def work(store: ImageTables) -> None:
        doc = changeable_image(store, call.who, id, "modify_image")
        if word not in doc["tags"]:
            raise not_found("The resource could not be found.")
        doc["tags"].remove(word)
        store.put(doc, touch(doc), words=True)

    await call.context.write(work)
    return empty_response()


async def deactivate(call: ImageCall) -> Response:
    return await _move(call, "deactivate", "active", "deactivated")


async def reactivate(call: ImageCall) -> Response:
    return await _move(call, "reactivate", "deactivated", "active")


async def _move(call: ImageCall, action: str, before: str, after: str) -> Response:
    """Between active and deactivated; already being there is no harm."""
    id = call.path("id")

    def work(store: ImageTables) -> None:
        doc = changeable_image(store, call.who, id, action)
        if doc["status"] == after:
            return
        if doc["status"] != before:
            raise forbidden(f"Not allowed to {action} image in status '{doc['status']}'")
        doc["status"] = after
        store.put(doc, touch(doc))

    await call.context.write(work)
    return empty_response()
