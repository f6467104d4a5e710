"""What only administrators (and other services) do to volumes."""

from typing import Any

from starlette.responses import Response

from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.volume import attachments, connections, volumes
from moorage_embedded.volume.faults import bad, invalid_volume
from moorage_embedded.volume.records import admins_volume, volume_of
from moorage_embedded.volume.request import VolumeCall, touched
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import FLAG, ID, TEXT_OR_NULL, Schema, obj

STATUSES = (
    "creating", "available", "deleting", "error", "error_deleting", "error_managing", "managing", "attaching", "in-use",
    "detaching", "maintenance", "restoring-backup", "error_restoring", "reserved", "awaiting-transfer", "backing-up",
    "error_backing-up", "error_extending", "downloading", "uploading", "retyping", "extending",
)  # fmt: skip
ATTACH_STATUSES = ("attached", "detached")
MIGRATION_STATUSES = ("migrating", "error", "success", "completing", "none", "starting")
NOT_BY_HAND = ("deleting", "error_deleting", "detaching")

_CONNECTOR: Schema = {"type": ["object", "string", "null"]}
_ERROR: Schema = {"type": ["string", "null", "boolean"]}
RESET_STATUS = obj({"status": TEXT_OR_NULL, "attach_status": TEXT_OR_NULL, "migration_status": TEXT_OR_NULL})
FORCE_DETACH = obj({"connector": _CONNECTOR, "attachment_id": {"type": ["string", "null"]}})
MIGRATE = obj({"host": TEXT_OR_NULL, "force_host_copy": FLAG, "lock_volume": FLAG, "cluster": TEXT_OR_NULL})
MIGRATE_COMPLETION = obj({"new_volume": ID, "error": _ERROR}, "new_volume")
EXTEND_COMPLETION = obj({"error": _ERROR})


def _rule(action: str) -> str:
    return f"volume_extension:volume_admin_actions:{action}"


def _one_of(what: str, said: Any, words: tuple[str, ...]) -> str | None:
    if not said:
        return None
    if (word := str(said).lower()) not in words:
        raise bad(f"{what}: {said} is invalid, valid statuses are: {words}.")
    return word


async def reset_status(call: VolumeCall, said: Doc) -> Response:
    status = _one_of("Volume status", said.get("status"), STATUSES)
    attach = _one_of("Volume attach status", said.get("attach_status"), ATTACH_STATUSES)
    migration = _one_of("Volume migration status", said.get("migration_status"), MIGRATION_STATUSES)
    if not (status or attach or migration):
        raise bad("Must specify 'status', 'attach_status' or 'migration_status' for update.")

    def work(store: VolumeStore) -> None:
        doc = admins_volume(call, store, call.path("id"), _rule("reset_status"))
        if status in NOT_BY_HAND:
            raise bad(f"Cannot reset-state to {status}")
        used = store.children("attachment", doc["id"])
        if status == "in-use" and not used:
            raise bad("Cannot reset-state to in-use because volume does not have any attachments.")
        if attach == "detached":
            for each in used:
                attachments.drop(store, doc, each)
        if migration:
            doc["migration_status"] = None if migration == "none" else migration
        if attach:
            doc["attach_status"] = attach
        if status:
            # Whatever was being done is not gone on with, but for a removal: there may be nothing left of the volume.
            ends = not doc["work"] or doc["work"]["kind"] != "delete"
            doc |= {"status": status, "work": None if ends else doc["work"]}
        store.put("volume", touched(doc))

    await call.context.write(work)
    return empty_response(202)


async def force_detach(call: VolumeCall, said: Doc) -> Response:
    id, rule = call.path("id"), _rule("force_detach")
    await call.context.write(lambda store: admins_volume(call, store, id, rule))
    await connections.end_connection(call, id, rule)
    await connections.end(call, id, said.get("attachment_id"), rule)
    return empty_response(202)


async def force_delete(call: VolumeCall, _: Any) -> Response:
    await volumes.remove(call, call.path("id"), cascade=False, force=True, rule=_rule("force_delete"))
    return empty_response(202)


async def migrate(call: VolumeCall, said: Doc) -> Response:
    """There is one back end: nowhere to go."""
    call_host = said.get("host") or said.get("cluster")

    def work(store: VolumeStore) -> None:
        doc = admins_volume(call, store, call.path("id"), _rule("migrate_volume"))
        if doc["status"] not in ("available", "in-use"):
            raise invalid_volume("Volume status must be available or in-use, but it is " + doc["status"] + ".")
        if call_host == call.context.settings.host:
            raise invalid_volume("Destination host must be different than the current host.")
        raise bad(f"No available service named {call_host}: this service has one back end.")

    await call.context.write(work)
    return empty_response(202)


async def migrate_completion(call: VolumeCall, said: Doc) -> Response:
    """Compute has copied one volume's data to another and swapped them (no migration of ours): uses go over to the new one."""
    id, new_id = call.path("id"), said["new_volume"]

    def check(store: VolumeStore) -> list[Doc]:
        doc = admins_volume(call, store, id, _rule("migrate_volume_completion"))
        new = volume_of(call, store, new_id)
        if doc["migration_status"] or new["migration_status"]:
            which = "Source" if not doc["migration_status"] else "Destination"
            raise invalid_volume(f"{which} volume not mid-migration.")
        return store.children("attachment", id)

    used = await call.context.write(check)
    if said.get("error"):
        return json_response({"save_volume_id": new_id})
    for each in used:
        await connections.check_end(call, id, each["id"])

    def work(store: VolumeStore) -> None:
        doc = admins_volume(call, store, id, _rule("migrate_volume_completion"))
        new = admins_volume(call, store, new_id, _rule("migrate_volume_completion"))
        for each in store.children("attachment", id):
            attachments.drop(store, doc, each)
            moved = attachments.new_attachment(new, each["instance"], "rw")
            moved |= {name: each[name] for name in ("host", "mountpoint", "attached_at")}
            moved["status"] = "attached"
            store.add("attachment", moved)
            new["admin_metadata"] |= {"attached_mode": "rw", "readonly": "False"}
            new |= {"status": "in-use", "attach_status": "attached"}
        store.put("volume", touched(new))

    await call.context.write(work)
    return json_response({"save_volume_id": new_id})


async def extend_completion(call: VolumeCall, said: Doc) -> Response:
    """For back ends that wait until compute has read the new size. This one does not, so no volume ever waits."""

    def work(store: VolumeStore) -> None:
        doc = admins_volume(call, store, call.path("id"), _rule("extend_volume_completion"))
        if doc["status"] != "extending":
            raise invalid_volume("Volume is not being extended.")
        raise invalid_volume("Required volume admin metadata is malformed or missing.")

    await call.context.write(work)
    return empty_response(202)
