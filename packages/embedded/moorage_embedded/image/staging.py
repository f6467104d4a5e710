"""`glance-direct`, the one way of import: data is staged separately from the image (`uploading`), and becomes the image's data on request.

Nothing is fetched from addresses that users name.
"""

import asyncio
from typing import Any

from starlette.responses import Response

from moorage_embedded.http_kit.answers import HttpFault, empty_response
from moorage_embedded.image import task_store
from moorage_embedded.image.byte_quota import Room, over, room_of
from moorage_embedded.image.data import STREAM, declared, finish, give_up, judge
from moorage_embedded.image.faults import bad, conflict
from moorage_embedded.image.files import STAGED, ImageTooLong, Received
from moorage_embedded.image.request import ImageCall, ImageContext, changeable_image, fine, now, touch
from moorage_embedded.image.store import Doc, ImageTables
from moorage_embedded.image.tasks import API_IMPORT, ended, new_task

METHODS = ("glance-direct",)


async def stage(call: ImageCall) -> Response:
    """Stage the data of an image. Raises HttpFault: 415, 413, 400 for wrong data, 410 when the image was deleted meanwhile."""
    id, limit = call.path("id"), call.context.settings.image_max_bytes
    if call.request.headers.get("content-type", "").partition(";")[0].strip() != STREAM:
        raise HttpFault(415, f"Invalid content type {call.request.headers.get('content-type')}")
    said = declared(call)
    if said is not None and said > limit:
        raise over(limit)
    doc = await call.context.write(lambda store: _begin(store, call))
    room = Room(limit)
    try:
        room = await room_of(call.context, doc, said)
        received = await call.context.files.receive(f"{id}{STAGED}", call.request.stream(), room.bytes)
        if said is not None and said != received.size:
            raise bad(f"The image's size was said to be {said} bytes, but {received.size} came.")
        kept = await call.context.files.keep(f"{id}{STAGED}", received)
        kept = kept and await call.context.write(lambda store: _staged(store, id, received.size, room))
    except BaseException as failure:
        await call.context.files.forget(id)
        await call.context.write(lambda store: give_up(store, id, "uploading"))
        if isinstance(failure, ImageTooLong):
            raise room.too_long() from None
        raise
    if not kept:
        await call.context.files.forget(id)
        raise HttpFault(410, f"Image {id} was deleted while its data was staged.")
    return empty_response()


def _begin(store: ImageTables, call: ImageCall) -> Doc:
    doc = changeable_image(store, call.who, call.path("id"), "modify_image")
    if doc["status"] != "queued":
        raise conflict(f"Image status transition from {doc['status']} to uploading is not allowed")
    doc["status"] = "uploading"
    store.put(doc, touch(doc))
    return doc


def _staged(store: ImageTables, id: str, size: int, room: Room) -> bool:
    found = store.show(id, hold=True)
    if found is None or (doc := found.doc)["status"] != "uploading":
        return False
    room.check(store, doc, size)
    doc["size"] = size
    store.put(doc, touch(doc))
    return True


async def start_import(call: ImageCall) -> Response:
    """Import the staged data; the answer comes when all is done, and a task says so. Raises HttpFault (410) when the image or
    its data were deleted.
    """
    _method(await call.body(), call.context)
    id = call.path("id")
    given: Doc = {
        "image_id": id,
        "import_req": {"method": {"name": METHODS[0]}},
        "backend": [call.context.settings.store],
    }
    task = new_task(call, API_IMPORT, given, id) | {"status": "processing"}
    doc = await call.context.write(lambda store: _begin_import(store, call, task))
    try:
        await _import(call.context, id, doc)
    except BaseException as failure:
        failed = ended(task, "failure", message=str(failure) or repr(failure))
        await call.context.write(lambda store: task_store.put(store.tx, failed))
        raise
    done = ended(task, "success", result={"image_id": id})
    await call.context.write(lambda store: task_store.put(store.tx, done))
    return Response(status_code=202)


async def _import(context: ImageContext, id: str, doc: Doc) -> None:
    try:
        received = await _copy(context, id)
        room = await room_of(context, doc, received.size)
        seen = await judge(context, doc, received, None)
        kept = await context.files.keep(id, received)
        kept = kept and await context.write(
            lambda store: finish(store, id, received, context.settings.store, "importing", seen, room)
        )
    except BaseException as failure:
        await context.files.forget(id)
        await context.write(lambda store: give_up(store, id, "importing"))
        if isinstance(failure, FileNotFoundError):  # a delete took it away
            raise HttpFault(410, f"What was staged of image {id} is gone.") from None
        raise
    if not kept:
        await context.files.forget(id)
        raise HttpFault(410, f"Image {id} was deleted while it was imported.")
    await context.files.unstage(id)


def _method(said: Any, context: ImageContext) -> None:
    """Raises 400 for a way of import that there is not, 409 for a store."""
    method = said.get("method") if isinstance(said, dict) else None
    if not isinstance(method, dict):
        raise bad("Import request requires a 'method' field.")
    if "name" not in method:
        raise bad("Import request requires a 'name' field.")
    if method["name"] not in METHODS:
        raise bad(f"Unknown import method name '{method['name']}'.")
    stores = said.get("stores", [])
    if not isinstance(stores, list) or any(each != context.settings.store for each in stores):
        raise conflict(f"Store for identifier {stores} not found")


def _begin_import(store: ImageTables, call: ImageCall, task: Doc) -> Doc:
    doc = changeable_image(store, call.who, call.path("id"), "modify_image")
    if doc["status"] == "active":
        raise conflict("Image with status active cannot be target for import")
    if doc["status"] != "uploading" or doc["size"] is None:
        raise conflict("Image needs to be staged before 'glance-direct' method can be used")
    for name in ("container_format", "disk_format"):
        if not doc[name]:
            raise conflict(f"'{name}' needs to be set before import")
    doc["status"] = "importing"
    store.put(doc, touch(doc))
    task_store.add(store.tx, task, fine(now()))
    return doc


async def _copy(context: ImageContext, id: str) -> Received:
    path = context.files.path(f"{id}{STAGED}")
    file = await asyncio.to_thread(path.open, "rb")
    return await context.files.receive(
        id, context.files.send(file, 0, path.stat().st_size), context.settings.image_max_bytes
    )
