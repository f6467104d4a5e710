"""Volumes: made, shown, listed, changed and deleted."""

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from moorage.model.ids import new_uuid
from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.volume import listing, quotas, sources, views
from moorage_embedded.volume.faults import bad, forbidden, invalid_volume, over_limit
from moorage_embedded.volume.records import my_volume, type_names, volume_of
from moorage_embedded.volume.request import VolumeCall, stamp, touched
from moorage_embedded.volume.services import check_not_frozen
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import (
    FLAG_OR_NULL,
    ID_OR_NULL,
    METADATA,
    METADATA_OR_NULL,
    SIZE_OR_NULL,
    TEXT_OR_NULL,
    Check,
    flag,
    obj,
    stripped,
)

_NAMES = ("name", "description", "display_name", "display_description")
_SAID = {
    **dict.fromkeys(_NAMES, TEXT_OR_NULL),
    "volume_type": TEXT_OR_NULL,
    "metadata": METADATA_OR_NULL,
    "snapshot_id": ID_OR_NULL,
    "source_volid": ID_OR_NULL,
    "consistencygroup_id": ID_OR_NULL,
    "size": SIZE_OR_NULL,
    "availability_zone": TEXT_OR_NULL,
    "multiattach": FLAG_OR_NULL,
    "image_id": TEXT_OR_NULL,
    "imageRef": TEXT_OR_NULL,
    "group_id": TEXT_OR_NULL,
    "backup_id": ID_OR_NULL,
}
_HINTS = {"type": ["object", "null"]}


def _create_check(*, strict: bool) -> Check:
    volume = obj(_SAID, more=not strict)
    return Check(obj({"volume": volume, "OS-SCH-HNT:scheduler_hints": _HINTS}, "volume"))


CREATE, CREATE_STRICT = _create_check(strict=False), _create_check(strict=True)
_CHANGED = {**dict.fromkeys(_NAMES, TEXT_OR_NULL), "metadata": METADATA}
UPDATE = Check(obj({"volume": obj(_CHANGED)}, "volume"))
UPDATE_STRICT = Check(obj({"volume": obj(_CHANGED, minProperties=1)}, "volume"))
DELETABLE = ("available", "error", "error_restoring", "error_extending", "error_managing")
SNAPSHOT_DELETABLE = ("available", "error", "deleting")


async def create(call: VolumeCall) -> Response:
    """Raises what Cinder answers: 400 for what does not fit together, 404 for a source that is not there, 413 over quota."""
    call.require(call.who.writes(call.who.project), "volume:create")
    said = (CREATE if call.version < 53 else CREATE_STRICT)(await call.body())["volume"]
    stripped(said, *_NAMES)
    if flag(said.get("multiattach")):
        raise bad(
            "multiattach parameter has been removed. The default behavior is to use multiattach enabled volume types."
            " Contact your administrator to create a multiattach enabled volume type and use it to create multiattach volumes."
        )
    source = await sources.of(call, said)
    settings = call.context.settings

    def work(store: VolumeStore) -> tuple[Doc, dict[str, str]]:
        if store.count("volume") >= settings.volumes_max:
            raise over_limit(f"The service holds {settings.volumes_max} volumes, which is its limit.")
        doc = sources.new_volume(call, store, said, source)
        quotas.charge(call, store, doc["project_id"], "volume", doc["volume_type_id"], doc["size"])
        store.add("volume", doc)
        return doc, type_names(store, {doc["volume_type_id"]})

    doc, types = await call.context.write(work)
    call.context.jobs.begin("volume", doc["id"])
    return json_response({"volume": views.volume_detail(call, doc, [], types, made=True)}, 202)


async def show(call: VolumeCall) -> Response:
    def work(store: VolumeStore) -> Doc:
        doc = volume_of(call, store, call.path("id"))
        used = store.children("attachment", doc["id"])
        return views.volume_detail(call, doc, used, type_names(store, {doc["volume_type_id"]}))

    return json_response({"volume": await call.context.read_inline(work)})


def _shown(call: VolumeCall, store: VolumeStore, docs: Sequence[Doc], detailed: bool) -> list[Doc]:
    if not detailed:
        return [views.volume_summary(call, doc) for doc in docs]
    used = store.children_of("attachment", [doc["id"] for doc in docs])
    types = type_names(store, {doc["volume_type_id"] for doc in docs})
    return [views.volume_detail(call, doc, used[doc["id"]], types) for doc in docs]


index, detail = listing.verbs(listing.VOLUMES, _shown)


async def summary(call: VolumeCall) -> Response:
    call.since(12)
    call.require(call.who.reader, "volume:get_all")
    everybody = call.who.admin and listing.all_tenants(call.pairs)
    where = {} if everybody else {"project": call.who.project}
    docs = await call.context.read(lambda store: store.many("volume", where=where))
    found: Doc = {"total_count": len(docs), "total_size": sum(doc["size"] for doc in docs)}
    if call.version >= 36:
        metadata: dict[str, list[str]] = {}
        for doc in docs:
            for key, value in doc["metadata"].items():
                values = metadata.setdefault(key, [])
                if value not in values:
                    values.append(value)
        found["metadata"] = metadata
    return json_response({"volume-summary": found})


async def update(call: VolumeCall) -> Response:
    said = (UPDATE if call.version < 53 else UPDATE_STRICT)(await call.body())["volume"]
    stripped(said, *_NAMES)

    def work(store: VolumeStore) -> Doc:
        doc = my_volume(call, store, call.path("id"), "volume:update")
        if doc["status"] == "maintenance":
            raise invalid_volume("The volume cannot be updated during maintenance.")
        for name, member in (("name", "name"), ("description", "description")):
            for key in (f"display_{name}", name):
                if key in said:
                    doc[member] = said[key]
        if "metadata" in said:
            doc["metadata"] = bounded(call, said["metadata"])
        store.put("volume", touched(doc))
        used = store.children("attachment", doc["id"])
        return views.volume_detail(call, doc, used, type_names(store, {doc["volume_type_id"]}), made=True)

    return json_response({"volume": await call.context.write(work)})


def bounded(call: VolumeCall, metadata: dict[str, Any]) -> dict[str, Any]:
    """The same. Raises 413 when it is too much."""
    limit = call.context.settings.metadata_max
    if len(metadata) > limit:
        raise over_limit(f"There may be {limit} metadata items at most.")
    return metadata


async def delete(call: VolumeCall) -> Response:
    asked = dict(call.pairs)
    cascade = flag(asked.get("cascade", False))
    force = call.version >= 23 and flag(asked.get("force", False))
    await remove(call, call.path("id"), cascade=cascade, force=force, rule="volume:force_delete" if force else "")
    return empty_response(202)


async def remove(call: VolumeCall, id: str, *, cascade: bool, force: bool, rule: str = "") -> None:
    """Begin to delete; `rule` is what an administrator alone may do."""

    def work(store: VolumeStore) -> list[str]:
        doc = my_volume(call, store, id, "volume:delete")
        if rule and not call.who.admin:
            raise forbidden(rule)
        check_not_frozen(store)
        snapshots = store.children("snapshot", id)
        if not _may_go(call, doc, snapshots, cascade=cascade, force=force):
            states = "" if force else f" status must be {listing.either(DELETABLE)} and"
            raise invalid_volume(
                f"Volume{states} must not be migrating, attached, belong to a group, have snapshots, awaiting a transfer,"
                " or be disassociated from snapshots after volume transfer."
            )
        for snapshot in snapshots:
            snapshot |= {"status": "deleting", "work": {"kind": "delete", "turn": new_uuid()}}
            store.put("snapshot", touched(snapshot))
        doc |= {"status": "deleting", "terminated_at": stamp(), "work": {"kind": "delete", "turn": new_uuid()}}
        store.put("volume", touched(doc))
        return [snapshot["id"] for snapshot in snapshots]

    for snapshot in await call.context.write(work):
        call.context.jobs.begin("snapshot", snapshot)
    call.context.jobs.begin("volume", id)


def _may_go(call: VolumeCall, doc: Doc, snapshots: list[Doc], *, cascade: bool, force: bool) -> bool:
    if doc.get("group_id") or any(each.get("group_snapshot_id") for each in snapshots):
        return False
    if doc["attach_status"] == "attached" or doc["migration_status"] not in (None, "deleting", "error", "success"):
        return False
    if not force and doc["status"] not in DELETABLE:
        return False
    if not cascade:
        return not snapshots
    others = any(each["project_id"] != doc["project_id"] for each in snapshots)
    if others and not call.who.admin:
        return False
    return force or all(each["status"] in SNAPSHOT_DELETABLE for each in snapshots)
