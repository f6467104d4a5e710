"""Snapshots: made of a volume, shown, listed, changed and deleted, and their actions."""

import re
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from moorage.model.ids import new_uuid
from moorage_embedded.http_kit.answers import HttpFault, empty_response, json_response
from moorage_embedded.volume import listing, quotas, views
from moorage_embedded.volume.faults import bad, forbidden, invalid_snapshot, invalid_volume, no_volume
from moorage_embedded.volume.listing import either
from moorage_embedded.volume.records import my_snapshot, my_volume, snapshot_of
from moorage_embedded.volume.request import VolumeCall, stamp, touched
from moorage_embedded.volume.services import check_not_frozen
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import (
    ANY,
    FLAG,
    ID_OR_NULL,
    METADATA_OR_NULL,
    TEXT,
    TEXT_OR_NULL,
    Check,
    flag,
    obj,
    stripped,
    under,
)

_NAMES = ("name", "description", "display_name", "display_description")
CREATE = Check(
    under(
        "snapshot",
        obj(
            {
                "name": TEXT_OR_NULL,
                "display_name": TEXT_OR_NULL,
                "description": TEXT_OR_NULL,
                "volume_id": ID_OR_NULL,
                "force": FLAG,
                "metadata": METADATA_OR_NULL,
            },
            "volume_id",
        ),
    )
)
UPDATE = Check(under("snapshot", obj(dict.fromkeys(_NAMES, TEXT_OR_NULL), minProperties=1)))
DELETABLE = ("available", "error")
STATUSES = (
    "error", "available", "creating", "deleting", "deleted", "updating", "error_deleting", "unmanaging", "backing-up",
    "restoring",
)  # fmt: skip
FOLLOWS = {"creating": ("creating", "available", "error"), "deleting": ("deleting", "error_deleting")}
"""What a host that makes snapshots itself may say of them."""


async def create(call: VolumeCall) -> Response:
    said = CREATE(await call.body())["snapshot"]
    stripped(said, *_NAMES)
    force = flag(said.get("force", False))
    if call.version >= 66 and "force" in said and not force:
        raise bad(
            "Since microversion 3.66 the 'force' flag is invalid for this request.  For backward compatability, however,"
            " when the 'force' flag is passed with a value evaluating to True, it is silently ignored."
        )
    if said["volume_id"] is None:
        raise no_volume("None")

    def work(store: VolumeStore) -> Doc:
        volume = my_volume(call, store, said["volume_id"], "volume:create_snapshot")
        check_not_frozen(store)
        _check_volume(volume, in_use=force or call.version >= 66)
        named = {"name": said.get("name", said.get("display_name")), "description": said.get("description")}
        return add_snapshot(call, store, volume, named | {"metadata": said.get("metadata") or {}})

    doc = await call.context.write(work)
    call.context.jobs.begin("snapshot", doc["id"])
    return json_response({"snapshot": views.snapshot_detail(call, doc, made=True)}, 202)


def add_snapshot(call: VolumeCall, store: VolumeStore, volume: Doc, said: Doc) -> Doc:
    """A snapshot that is to be made; `said` are members of the record. Raises HttpFault (413) over quota."""
    quotas.charge(call, store, call.who.project, "snapshot", volume["volume_type_id"], volume["size"])
    doc: Doc = {
        "id": new_uuid(),
        "volume_id": volume["id"],
        "group_snapshot_id": None,
        "project_id": call.who.project,
        "user_id": call.who.user,
        "status": "creating",
        "progress": "0%",
        "size": volume["size"],
        "volume_type_id": volume["volume_type_id"],
        "availability_zone": volume["availability_zone"],
        "bootable": volume["bootable"],
        "image_metadata": volume["image_metadata"],
        "metadata": {},
        "created_at": stamp(),
        "updated_at": None,
        "work": {"kind": "create", "turn": new_uuid(), "request": call.request_id, "while": "creating"},
    } | said
    store.add("snapshot", doc)
    return doc


def check_source(volume: Doc) -> None:
    """Raises 400 for a volume in a state that no snapshot is made in, whoever asks for it."""
    if volume["status"] == "maintenance":
        raise invalid_volume("The snapshot cannot be created when the volume is in maintenance mode.")
    if volume["migration_status"] not in (None, "deleting", "error", "success"):
        raise invalid_volume("Snapshot cannot be created while volume is migrating.")
    if volume["status"] == "error":
        raise invalid_volume("The snapshot cannot be created when the volume is in error status.")


def _check_volume(volume: Doc, *, in_use: bool) -> None:
    check_source(volume)
    allowed = ("available", "in-use") if in_use else ("available",)
    if volume["status"] not in allowed:
        raise invalid_volume(
            f"Volume {volume['id']} status must be {', '.join(allowed)}, but current status is: {volume['status']}."
        )


async def show(call: VolumeCall) -> Response:
    doc = await call.context.read_inline(lambda store: snapshot_of(call, store, call.path("id")))
    return json_response({"snapshot": views.snapshot_detail(call, doc)})


def _shown(call: VolumeCall, store: VolumeStore, docs: Sequence[Doc], detailed: bool) -> list[Doc]:
    return [views.snapshot_detail(call, doc) if detailed else views.snapshot_summary(doc) for doc in docs]


index, detail = listing.verbs(listing.SNAPSHOTS, _shown)


async def update(call: VolumeCall) -> Response:
    said = UPDATE(await call.body())["snapshot"]
    stripped(said, *_NAMES)

    def work(store: VolumeStore) -> Doc:
        doc = my_snapshot(call, store, call.path("id"), "volume:update_snapshot")
        for name in ("name", "description"):
            for key in (f"display_{name}", name):
                if key in said:
                    doc[name] = said[key]
        store.put("snapshot", touched(doc))
        return doc

    return json_response({"snapshot": views.snapshot_detail(call, await call.context.write(work), made=True)})


async def delete(call: VolumeCall) -> Response:
    await _remove(call, force=False)
    return empty_response(202)


async def _remove(call: VolumeCall, *, force: bool) -> None:
    id = call.path("id")

    def work(store: VolumeStore) -> None:
        doc = my_snapshot(call, store, id, "volume:delete_snapshot")
        if force and not call.who.admin:
            raise forbidden("volume_extension:snapshot_admin_actions:force_delete")
        check_not_frozen(store)
        if doc.get("group_snapshot_id") or not (force or doc["status"] in DELETABLE):
            states = "" if force else f"status must be {either(DELETABLE)} and"
            raise invalid_snapshot(f"Snapshot {states} must not be part of a group.")
        doc |= {"status": "deleting", "work": {"kind": "delete", "turn": new_uuid()}}
        store.put("snapshot", touched(doc))

    await call.context.write(work)
    call.context.jobs.begin("snapshot", id)


# ---------------------------------------------------------------------------------------------------- actions

RESET = Check(under("os-reset_status", obj({"status": TEXT}, "status")))
UPDATE_STATUS = Check(under("os-update_snapshot_status", obj({"status": TEXT, "progress": TEXT_OR_NULL}, "status")))
FORCE = Check(under("os-force_delete", ANY))
_PROGRESS = re.compile(r"(100|[0-9]{1,2})%")


async def act(call: VolumeCall) -> Response:
    body = await call.body()
    name = next(iter(body), "")
    if name == "os-force_delete":
        FORCE(body)
        await _remove(call, force=True)
        return empty_response(202)
    if name == "os-reset_status":
        return await _reset(call, RESET(body)[name])
    if name == "os-update_snapshot_status":
        return await _update_status(call, UPDATE_STATUS(body)[name])
    raise bad(f"There is no such action: {name[:100]}. Verify the request body and Content-Type header and try again.")


async def _reset(call: VolumeCall, said: dict[str, Any]) -> Response:
    status = said["status"].lower()
    if status not in STATUSES:
        raise bad(f"Snapshot status: {said['status']} is invalid, valid statuses are: {STATUSES}.")

    def work(store: VolumeStore) -> None:
        doc = snapshot_of(call, store, call.path("id"), hold=True)
        call.require(call.who.admin, "volume_extension:snapshot_admin_actions:reset_status")
        ends = not doc["work"] or doc["work"]["kind"] != "delete"
        doc |= {"status": status, "work": None if ends else doc["work"]}
        store.put("snapshot", touched(doc))

    await call.context.write(work)
    return empty_response(202)


async def _update_status(call: VolumeCall, said: dict[str, Any]) -> Response:
    """What a compute host says that makes the snapshots itself (assisted snapshots)."""
    if said.get("progress") and _PROGRESS.fullmatch(said["progress"]) is None:
        raise HttpFault(400, "Invalid input received: progress must be an integer percentage between 0 and 100")

    def work(store: VolumeStore) -> None:
        doc = my_snapshot(call, store, call.path("id"), "snapshot_extension:snapshot_actions:update_snapshot_status")
        if doc["status"] not in FOLLOWS:
            raise bad(f"Snapshot status {doc['status']} not allowed for update_snapshot_status")
        if said["status"] not in FOLLOWS[doc["status"]]:
            raise bad(
                f"Provided snapshot status {said['status']} not allowed for snapshot with status {doc['status']}."
            )
        doc["status"] = said["status"]
        if said.get("progress"):
            doc["progress"] = said["progress"]
        store.put("snapshot", touched(doc))

    await call.context.write(work)
    return empty_response(202)
