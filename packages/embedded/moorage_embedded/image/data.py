"""Image data: taken to disk while the image is `saving`, and sent, whole or a range of it."""

import asyncio
import re
from collections.abc import AsyncIterable

from starlette.responses import Response, StreamingResponse

from moorage.model.image_inspection import BARE, Inspected, Unsafe, check_upload
from moorage_embedded.http_kit.answers import HttpFault, empty_response
from moorage_embedded.image.byte_quota import Room, over, room_of
from moorage_embedded.image.faults import bad, conflict, forbidden, not_allowed
from moorage_embedded.image.files import ImageTooLong, Received
from moorage_embedded.image.policy import ImageCaller
from moorage_embedded.image.request import ImageCall, ImageContext, fillable_image, touch, visible_image
from moorage_embedded.image.store import Doc, ImageTables

STREAM = "application/octet-stream"
_SIZE = re.compile("[0-9]{1,18}")
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


async def upload(call: ImageCall) -> Response:
    """Store the data of an image. Raises HttpFault: 415 for another content type, 400 for an unknown store."""
    id, headers = call.path("id"), call.request.headers
    if headers.get("content-type", "").partition(";")[0].strip() != STREAM:
        raise HttpFault(415, f"Invalid content type {headers.get('content-type')}")
    store = headers.get("x-image-meta-store", call.context.settings.store)
    if store != call.context.settings.store:
        raise bad(f"Store identifier {store} is not known.")
    await take(call.context, call.who, id, call.request.stream(), declared(call))
    return empty_response()


def declared(call: ImageCall) -> int | None:
    said = call.request.headers.get("x-openstack-image-size", call.request.headers.get("content-length"))
    if said is None:
        return None
    if _SIZE.fullmatch(said) is None:
        raise bad("Invalid or missing image size in request headers.")
    return int(said)


async def take(
    context: ImageContext, who: ImageCaller, id: str, chunks: AsyncIterable[bytes], said: int | None
) -> None:
    """Queued → saving → active; whatever goes wrong in between, the image is queued again and nothing is left on disk."""
    limit = context.settings.image_max_bytes
    if said is not None and said > limit:
        raise over(limit)
    doc = await context.write(lambda store: _begin(store, who, id))
    room = Room(limit)
    try:
        room = await room_of(context, doc, said)
        received = await context.files.receive(id, chunks, room.bytes)
        seen = await judge(context, doc, received, said)
        kept = await context.files.keep(id, received)
        kept = kept and await context.write(
            lambda store: finish(store, id, received, context.settings.store, "saving", seen, room)
        )
    except BaseException as failure:
        await context.files.forget(id)
        await context.write(lambda store: give_up(store, id, "saving"))
        if isinstance(failure, ImageTooLong):
            raise room.too_long() from None
        if isinstance(failure, FileNotFoundError):  # a delete took it away
            raise _gone(id) from None
        raise
    if not kept:
        await context.files.forget(id)
        raise _gone(id)


def _gone(id: str) -> HttpFault:
    return HttpFault(
        410,
        f"Image {id} could not be found after upload. The image may have been deleted during the upload,"
        " cleaning up the chunks uploaded.",
    )


def _begin(store: ImageTables, who: ImageCaller, id: str) -> Doc:
    doc = fillable_image(store, who, id, "upload_image")
    if doc["status"] != "queued":
        raise conflict(f"Image status transition from {doc['status']} to saving is not allowed")
    missing = [name for name in ("disk_format", "container_format") if doc[name] is None]
    if missing:
        raise bad(f"Properties {', '.join(missing)} must be set prior to saving data.")
    doc["status"] = "saving"
    store.put(doc, touch(doc))
    return doc


async def judge(context: ImageContext, doc: Doc, received: Received, said: int | None) -> Inspected:
    """Raises HttpFault: 400 for another size than announced, 415 for data that are not of the image's format, or that name
    other files.
    """
    if said is not None and said != received.size:
        raise bad(f"The image's size was said to be {said} bytes, but {received.size} came.")
    try:
        return await asyncio.to_thread(check_upload, received.path, doc["disk_format"], doc["container_format"])
    except Unsafe as why:
        raise HttpFault(415, str(why)) from None


def finish(
    store: ImageTables, id: str, received: Received, kept_in: str, status: str, seen: Inspected, room: Room
) -> bool:
    """Active, when it still has the status of this work; False when the image was deleted meanwhile. Raises 413 above the quota."""
    found = store.show(id, hold=True)
    if found is None:
        return False
    doc = found.doc
    if doc["status"] != status:
        return False
    room.check(store, doc, received.size)
    bare = doc["container_format"] == BARE
    doc |= {
        "status": "active",
        "size": received.size,
        "virtual_size": (seen.virtual_size or None) if bare else None,
        "checksum": received.checksum,
        "os_hash_algo": "sha512",
        "os_hash_value": received.sha512,
        "stores": kept_in,
    }
    store.put(doc, touch(doc))
    return True


def give_up(store: ImageTables, id: str, status: str) -> None:
    """Queued again, without data."""
    found = store.show(id, hold=True)
    if found is not None and (doc := found.doc)["status"] == status:
        doc |= {"status": "queued", "size": None}
        store.put(doc, touch(doc))


async def download(call: ImageCall) -> Response:
    id = call.path("id")
    doc = (await call.context.read(lambda store: visible_image(store, call.who, id))).doc
    if doc["status"] == "deactivated" and not call.who.admin:
        raise forbidden("The requested image has been deactivated. Image data download is forbidden.")
    if not (call.who.member or call.who.everywhere):
        raise not_allowed("download_image")
    if doc["status"] not in {"active", "deactivated"}:
        return empty_response()
    first, last = _range(call.request.headers.get("range"), doc["size"])
    try:
        file = await asyncio.to_thread(call.context.files.path(id).open, "rb")
    except FileNotFoundError:  # deleted since we looked
        return empty_response()
    headers = {"Content-Length": str(last - first + 1), "Content-MD5": doc["checksum"]}
    whole = call.request.headers.get("range") is None
    if not whole:
        headers["Content-Range"] = f"bytes {first}-{last}/{doc['size']}"
    body = call.context.files.send(file, first, last - first + 1)
    return StreamingResponse(body, 200 if whole else 206, headers, STREAM)


def _range(said: str | None, size: int) -> tuple[int, int]:
    """First and last byte; one range only, as Glance has it."""
    if said is None:
        return 0, size - 1
    found = _RANGE.fullmatch(said.strip())
    if found is None or not any(found.groups()):
        raise _no_range(said, size)
    first, last = found.groups()
    if not first:
        start, end = max(size - int(last), 0), size - 1
        if int(last) == 0:
            raise _no_range(said, size)
    else:
        start, end = int(first), min(int(last), size - 1) if last else size - 1
    if start >= size or end < start:
        raise _no_range(said, size)
    return start, end


def _no_range(said: str, size: int) -> HttpFault:
    return HttpFault(416, f"Requested range '{said}' cannot be satisfied.", {"Content-Range": f"bytes */{size}"})
