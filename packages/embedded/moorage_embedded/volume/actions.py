"""`POST /volumes/{id}/action`: the key of the body names the action; this module has the actions of owners, except attaching."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.responses import Response

from moorage.model.ids import new_uuid
from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.volume import admin_actions, connections, image_actions, quotas, sources
from moorage_embedded.volume.faults import bad, invalid_input, invalid_volume
from moorage_embedded.volume.records import change_volume, is_true_spec, type_named
from moorage_embedded.volume.request import VolumeCall, touched
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import ANY, FLAG, ID, SIZE, Check, Schema, flag, obj, under

Verb: TypeAlias = Callable[[VolumeCall, Any], Awaitable[Response]]

STILL = (None, "deleting", "error", "success")
"""States of a migration that is none."""


@dataclass(frozen=True)
class VolumeAction:
    verb: Verb
    schema: Schema
    since: int = 0


async def act(call: VolumeCall) -> Response:
    body = await call.body()
    name = next(iter(body), "")
    known = ACTIONS.get(name)
    if known is None:
        raise bad(
            f"There is no such action: {name[:100]}. Verify the request body and Content-Type header and try again."
        )
    call.since(known.since)
    if name not in _checks:
        _checks[name] = Check(under(name, known.schema))
    return await known.verb(call, _checks[name](body)[name])


_checks: dict[str, Check] = {}


async def extend(call: VolumeCall, said: Doc) -> Response:
    """Extend a volume; from 3.42 on also one in use, and then the servers are informed."""
    size = int(said["new_size"])

    def change(store: VolumeStore, doc: Doc) -> None:
        attached = call.version >= 42 and doc["status"] == "in-use"
        if size <= doc["size"]:
            raise invalid_input(
                f"New size for extend must be greater than current size. (current: {doc['size']}, extended: {size})."
            )
        expected = "in-use" if attached else "available"
        if doc["status"] != expected:
            raise invalid_volume(
                f"Volume {doc['id']} status must be '{{'status': '{expected}'}}' to extend, currently {doc['status']}."
            )
        quotas.charge_growth(call, store, doc, size)
        doc |= {
            "previous_status": doc["status"],
            "status": "extending",
            "work": {
                "kind": "extend",
                "turn": new_uuid(),
                "request": call.request_id,
                "size": size,
                "to": doc["status"],
                "while": "extending",
            },
        }

    return await change_volume(call, "volume:extend", change, begins=True)


async def set_bootable(call: VolumeCall, said: Doc) -> Response:
    def change(store: VolumeStore, doc: Doc) -> None:
        doc["bootable"] = flag(said["bootable"])

    return await change_volume(call, "volume:update", change, status=200)


async def update_readonly(call: VolumeCall, said: Doc) -> Response:
    def change(store: VolumeStore, doc: Doc) -> None:
        if doc["status"] != "available":
            raise invalid_volume(
                f"Volume {doc['id']} status must be available to update readonly flag, but current status is:"
                f" {doc['status']}."
            )
        doc["admin_metadata"]["readonly"] = str(flag(said["readonly"]))

    return await change_volume(call, "volume:update_readonly_flag", change)


async def retype(call: VolumeCall, said: Doc) -> Response:
    """Another type; there is one back end, so nothing moves."""

    def change(store: VolumeStore, doc: Doc) -> None:
        new = type_named(call, store, said["new_type"])
        sources.check_not_encrypted(new)
        multiattach = is_true_spec(new["extra_specs"], "multiattach")
        if multiattach != doc["multiattach"] and doc["status"] != "available":
            raise invalid_input(
                "Invalid volume_type passed, retypes affecting multiattach are only allowed on available volumes,"
                f" the specified volume however currently has a status of: {doc['status']}."
            )
        if doc["status"] not in ("available", "in-use") or doc["migration_status"] not in STILL:
            raise _no_retype()
        if doc.get("group_id") or new["id"] == doc["volume_type_id"]:
            raise _no_retype()
        store.alone(doc["project_id"])
        _check_type_quota(call, store, doc, new)
        doc |= {
            "previous_status": doc["status"],
            "status": "retyping",
            "work": {
                "kind": "retype", "turn": new_uuid(), "type": new["id"], "multiattach": multiattach, "to": doc["status"],
                "while": "retyping",
            },
        }  # fmt: skip

    return await change_volume(call, "volume:retype", change, begins=True)


def _no_retype() -> HttpFault:
    return invalid_volume(
        "Retype needs volume to be in available or in-use state, not be part of an active migration or a consistency"
        " group, requested type has to be different that the one from the volume, and for in-use volumes front-end qos"
        " specs cannot change."
    )


def _check_type_quota(call: VolumeCall, store: VolumeStore, doc: Doc, new: Doc) -> None:
    """Only what is counted for the type alone changes."""
    names = {new["id"]: new["name"]}
    allowed = quotas.limits(call, store, doc["project_id"], names)
    used = quotas.used(store, doc["project_id"], names)
    for resource, more in ((f"volumes_{new['name']}", 1), (f"gigabytes_{new['name']}", doc["size"])):
        if 0 <= allowed[resource] < used.get(resource, 0) + more:
            raise HttpFault(413, f"Quota exceeded for resources: ['{resource}']", {"Retry-After": "0"})


async def revert(call: VolumeCall, said: Doc) -> Response:
    """Back to the latest snapshot, and to no other."""
    wanted = said.get("snapshot_id")

    def change(store: VolumeStore, doc: Doc) -> None:
        snapshots = store.children("snapshot", doc["id"])
        if not snapshots:
            raise bad(f"Volume {doc['id']} doesn't have any snapshots.")
        latest = snapshots[-1]
        if wanted is None or wanted != latest["id"]:
            raise bad(f"Specified snapshot {wanted} is None or not the latest one of volume {doc['id']}.")
        if doc["size"] != latest["size"]:
            raise bad(
                f"Can't revert volume {doc['id']} to its latest snapshot {wanted}. The volume size must be equal to the"
                " snapshot size."
            )
        for noun, record in (("Volume", doc), ("Snapshot", latest)):
            if record["status"] != "available":
                raise HttpFault(
                    409,
                    f"Invalid volume: Can't revert volume {doc['id']} to its latest snapshot {wanted}. {noun}'s status must"
                    " be 'available'.",
                )
        work = {"kind": "revert", "turn": new_uuid(), "snapshot": wanted, "to": "available", "while": "reverting"}
        doc |= {"status": "reverting", "work": work}
        latest["status"] = "restoring"
        store.put("snapshot", touched(latest))

    return await change_volume(call, "volume:revert_to_snapshot", change, begins=True)


_CONNECTOR: Schema = {"type": ["object", "string", "null"]}
_MODE: Schema = {"type": "string", "enum": ["rw", "ro"]}
_HOST: Schema = {"type": "string", "maxLength": 255}
_WORD: Schema = {"type": "string", "minLength": 1, "maxLength": 255}
_ID_OR_NULL: Schema = {"type": ["string", "null"]}
_ATTACH = obj(
    {"instance_uuid": ID, "mountpoint": _WORD, "host_name": _HOST, "mode": _MODE},
    "mountpoint",
    anyOf=[{"required": ["instance_uuid"]}, {"required": ["host_name"]}],
)
_DETACH: Schema = {**obj({"attachment_id": _ID_OR_NULL}), "type": ["object", "null"]}

ACTIONS: dict[str, VolumeAction] = {
    "os-extend": VolumeAction(extend, obj({"new_size": SIZE}, "new_size")),
    "os-set_bootable": VolumeAction(set_bootable, obj({"bootable": FLAG}, "bootable")),
    "os-update_readonly_flag": VolumeAction(update_readonly, obj({"readonly": FLAG}, "readonly")),
    "os-retype": VolumeAction(
        retype,
        obj(
            {"new_type": {"type": "string"}, "migration_policy": {"enum": ["on-demand", "never", None]}},
            "new_type",
        ),
    ),
    "revert": VolumeAction(revert, obj({"snapshot_id": _ID_OR_NULL}, more=True), since=40),
    "os-attach": VolumeAction(connections.attach, _ATTACH),
    "os-detach": VolumeAction(connections.detach, _DETACH),
    "os-reserve": VolumeAction(connections.reserve, ANY),
    "os-unreserve": VolumeAction(connections.unreserve, ANY),
    "os-begin_detaching": VolumeAction(connections.begin_detaching, ANY),
    "os-roll_detaching": VolumeAction(connections.roll_detaching, ANY),
    "os-initialize_connection": VolumeAction(
        connections.initialize, obj({"connector": {"type": ["object", "string"]}}, "connector")
    ),
    "os-terminate_connection": VolumeAction(connections.terminate, obj({"connector": _CONNECTOR}, "connector")),
    "os-volume_upload_image": VolumeAction(image_actions.upload, image_actions.UPLOAD),
    "os-reimage": VolumeAction(image_actions.reimage, image_actions.REIMAGE, since=68),
    "os-set_image_metadata": VolumeAction(image_actions.set_metadata, image_actions.SET_METADATA),
    "os-unset_image_metadata": VolumeAction(image_actions.unset_metadata, image_actions.UNSET_METADATA),
    "os-show_image_metadata": VolumeAction(image_actions.show_metadata, ANY),
    "os-reset_status": VolumeAction(admin_actions.reset_status, admin_actions.RESET_STATUS),
    "os-force_detach": VolumeAction(admin_actions.force_detach, admin_actions.FORCE_DETACH),
    "os-force_delete": VolumeAction(admin_actions.force_delete, ANY),
    "os-migrate_volume": VolumeAction(admin_actions.migrate, admin_actions.MIGRATE),
    "os-migrate_volume_completion": VolumeAction(admin_actions.migrate_completion, admin_actions.MIGRATE_COMPLETION),
    "os-extend_volume_completion": VolumeAction(admin_actions.extend_completion, admin_actions.EXTEND_COMPLETION),
}
