"""User messages: why work on a user's volume failed, kept for its owner until the message expires.

Source: Cinder's API v3, user messages (3.3, pages since 3.5, filters since 3.31), and its lists of actions and details.
"""

from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from moorage.model.ids import new_uuid
from moorage_embedded.http_kit.answers import HttpFault, empty_response, json_response
from moorage_embedded.volume import listing, views
from moorage_embedded.volume.request import VolumeCall, stamp
from moorage_embedded.volume.store import Doc, VolumeStore

LIFE = timedelta(days=30)
OF_ONE_MAX, ALL_MAX = 20, 10_000
"""Messages about one volume or snapshot, and altogether: the oldest make room."""

NOUN = listing.ListedResource(
    "message",
    "messages",
    ("resource_uuid", "resource_type", "event_id", "request_id", "message_level"),
    (("resource_uuid", "key"), ("project_id", "project")),
    admin_filters=("project_id",),
    sorts=("id", "event_id", "resource_uuid", "resource_type", "message_level", "created_at"),
    counted=False,
)
ACTIONS = {
    "schedule": ("001", "schedule allocate volume"),
    "upload": ("003", "copy volume to image"),
    "download": ("005", "copy image to volume"),
    "extend": ("007", "extend volume"),
    "create": ("008", "create volume from backend storage"),
    "snapshot": ("009", "create snapshot"),
    "reimage": ("016", "reimage volume"),
}
DETAILS = {
    "unknown": ("001", "An unknown error occurred."),
    "no backend": ("003", "Could not find any available weighted backend."),
    "not uploaded": ("004", "Failed to upload volume to image at backend."),
    "no space": ("007", "Image used for creating volume exceeds available space."),
}


def leave(store: VolumeStore, noun: str, doc: Doc, work: Doc, action: str, detail: str) -> None:
    """Keep a message for the owner of a volume or snapshot (`noun`) about the work that failed."""
    type = "VOLUME" if noun == "volume" else "VOLUME_SNAPSHOT"
    (number, what), (code, why) = ACTIONS[action], DETAILS[detail]
    for where, most in ((None, ALL_MAX), ({"key": doc["id"]}, OF_ONE_MAX)):
        for old in store.many("message", where=where, limit=most, offset=most - 1):
            store.remove("message", old["id"])
    store.add(
        "message",
        {
            "id": new_uuid(),
            "project_id": doc["project_id"],
            "name": doc["id"],  # the column by which messages are found
            "resource_uuid": doc["id"],
            "resource_type": type,
            "event_id": f"VOLUME_{type}_{number}_{code}",
            "request_id": str(work.get("request") or ""),
            "message_level": "ERROR",
            "user_message": f"{what}:{why}",
            "created_at": stamp(),
            "guaranteed_until": (datetime.now(UTC) + LIFE).replace(tzinfo=None).isoformat(timespec="microseconds"),
        },
    )


def _view(call: VolumeCall, doc: Doc) -> Doc:
    shown = {name: value for name, value in doc.items() if name not in {"project_id", "name"}}
    return shown | {"links": views.links(call, "messages", doc["id"])}


async def index(call: VolumeCall) -> Response:
    call.since(3)
    call.require(call.who.reader, "message:get_all")
    query = listing.query_of(call, NOUN)
    if call.who.admin:
        query.where.pop("project", None)
    page = await call.context.read(lambda store: listing.page(call, store, NOUN, query))
    return json_response(listing.answer(call, NOUN, query, page, [_view(call, doc) for doc in page.docs]))


def _one(call: VolumeCall, store: VolumeStore) -> Doc:
    doc = store.get("message", call.path("id"), hold=True)
    if doc is None or not call.who.reads(doc["project_id"]):
        raise HttpFault(404, f"Message {call.path('id')} could not be found.")
    return doc


async def show(call: VolumeCall) -> Response:
    call.since(3)
    doc = await call.context.read(lambda store: _one(call, store))
    return json_response({"message": _view(call, doc)})


async def delete(call: VolumeCall) -> Response:
    call.since(3)

    def work(store: VolumeStore) -> None:
        doc = _one(call, store)
        call.require(call.who.writes(doc["project_id"]), "message:delete")
        store.remove("message", doc["id"])

    await call.context.write(work)
    return empty_response(204)
