"""Group snapshots: snapshots of all volumes of a group, made and deleted together.

Source: Cinder's API v3, group snapshots (3.14), `reset_status` (3.19), pages and filters (3.29).
"""

from collections.abc import Sequence

from starlette.responses import Response

from moorage.model.ids import new_uuid
from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.volume import listing, snapshots, views
from moorage_embedded.volume.faults import bad, invalid_group, invalid_group_snapshot
from moorage_embedded.volume.groups import check_not_reserved
from moorage_embedded.volume.records import (
    being_deleted,
    group_of,
    group_snapshot_of,
    has_source_in_use,
    held_members,
    my_group,
)
from moorage_embedded.volume.request import VolumeCall, stamp, touched
from moorage_embedded.volume.services import check_not_frozen
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import ID, TEXT, TEXT_OR_NULL, Check, obj, under

SINCE, RESET_SINCE = 14, 19
CREATE = Check(
    under("group_snapshot", obj({"group_id": ID, "name": TEXT_OR_NULL, "description": TEXT_OR_NULL}, "group_id"))
)
RESET = Check(under("reset_status", obj({"status": TEXT}, "status")))
STATUSES = ("error", "available", "creating", "deleting", "deleted", "updating", "error_deleting")
DELETABLE = ("available", "error")


async def create(call: VolumeCall) -> Response:
    """Raises what Cinder answers: 400 for an empty group or one that is being made, 413 over the quota of snapshots."""
    call.since(SINCE)
    said = CREATE(await call.body())["group_snapshot"]

    def work(store: VolumeStore) -> tuple[Doc, list[str]]:
        check_not_reserved(store, group_of(call, store, said["group_id"])["group_type_id"])
        group = my_group(call, store, said["group_id"], "group:create_group_snapshot")
        check_not_frozen(store)
        volumes = held_members(store, "volume", group["id"])
        if not volumes or group["status"] in ("creating", "updating") or being_deleted(group):
            raise invalid_group(
                "Source group cannot be empty or in 'creating' or 'updating' state. No group snapshot will be created."
            )
        named = {"name": said.get("name"), "description": said.get("description")}
        doc: Doc = named | {
            "id": new_uuid(),
            "group_id": group["id"],
            "group_type_id": group["group_type_id"],
            "project_id": call.who.project,
            "user_id": call.who.user,
            "status": "creating",
            "created_at": stamp(),
            "updated_at": None,
            "work": {"kind": "create", "turn": new_uuid(), "while": "creating"},
        }
        store.add("group_snapshot", doc)
        for volume in volumes:
            snapshots.check_source(volume)
        of = named | {"group_snapshot_id": doc["id"]}
        return doc, [snapshots.add_snapshot(call, store, volume, of)["id"] for volume in volumes]

    doc, made = await call.context.write(work)
    for id in made:
        call.context.jobs.begin("snapshot", id)
    call.context.jobs.begin("group_snapshot", doc["id"])
    return json_response(
        {"group_snapshot": views.group_snapshot_summary(doc) | {"group_type_id": doc["group_type_id"]}}, 202
    )


async def show(call: VolumeCall) -> Response:
    call.since(SINCE)
    doc = await call.context.read_inline(lambda store: group_snapshot_of(call, store, call.path("id")))
    return json_response({"group_snapshot": views.group_snapshot_detail(call, doc)})


def _shown(call: VolumeCall, store: VolumeStore, docs: Sequence[Doc], detailed: bool) -> list[Doc]:
    return [views.group_snapshot_detail(call, doc) if detailed else views.group_snapshot_summary(doc) for doc in docs]


index, detail = listing.verbs(listing.GROUP_SNAPSHOTS, _shown)


async def delete(call: VolumeCall) -> Response:
    """Delete it with its snapshots. Raises HttpFault (400) while a group is being made of it."""
    call.since(SINCE)
    id = call.path("id")

    def work(store: VolumeStore) -> list[str]:
        doc = group_snapshot_of(call, store, id, hold=True)
        call.require(call.who.writes(doc["project_id"]), "group:delete_group_snapshot")
        check_not_frozen(store)
        if doc["status"] not in DELETABLE or has_source_in_use(store, "group_snapshot_id", id):
            raise invalid_group_snapshot(
                "GroupSnapshot status must be available or error, and no Group can be currently using it as source for its"
                " creation."
            )
        members = held_members(store, "snapshot", id)
        for snapshot in members:
            snapshot |= {"status": "deleting", "work": {"kind": "delete", "turn": new_uuid()}}
            store.put("snapshot", touched(snapshot))
        doc |= {"status": "deleting", "work": {"kind": "delete", "turn": new_uuid()}}
        store.put("group_snapshot", touched(doc))
        return [snapshot["id"] for snapshot in members]

    for snapshot in await call.context.write(work):
        call.context.jobs.begin("snapshot", snapshot)
    call.context.jobs.begin("group_snapshot", id)
    return empty_response(202)


async def act(call: VolumeCall) -> Response:
    """`reset_status`. Raises HttpFault (400) for what is no action or no status."""
    body = await call.body()
    name = next(iter(body), "")
    if name != "reset_status":
        raise bad(f"There is no such action: {name[:100]}")
    call.since(RESET_SINCE)
    said = RESET(body)[name]["status"]
    status = said.lower()
    if status not in STATUSES:
        raise bad(
            f"Invalid GroupSnapshot Status: Group snapshot status: {said} is invalid, valid statuses are: {STATUSES}."
        )

    def work(store: VolumeStore) -> None:
        doc = group_snapshot_of(call, store, call.path("id"), hold=True)
        call.require(call.who.admin, "group:reset_group_snapshot_status")
        doc |= {"status": status, "work": doc["work"] if being_deleted(doc) else None}
        store.put("group_snapshot", touched(doc))

    await call.context.write(work)
    return empty_response(202)
