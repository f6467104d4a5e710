"""Groups of volumes: made, shown, listed and changed; `group_actions` has the rest.

Source: Cinder's API v3, generic volume groups (3.13).
"""

from collections.abc import Sequence

from starlette.responses import Response

from moorage.model.ids import new_uuid
from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.volume import listing, quotas, views
from moorage_embedded.volume.faults import bad, invalid_group, invalid_input, invalid_volume
from moorage_embedded.volume.group_types import RESERVED, group_type_named
from moorage_embedded.volume.records import being_deleted, group_of, my_group, type_named
from moorage_embedded.volume.request import VolumeCall, stamp, touched
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import (
    NAME,
    TEXT,
    TEXT_OR_NULL,
    Check,
    Schema,
    obj,
    strict_flag,
    stripped,
    under,
)

SINCE = 13
_TYPES: Schema = {"type": "array", "minItems": 1, "items": TEXT, "uniqueItems": True}
_ZONE: Schema = {"type": ["string", "null"], "minLength": 1, "maxLength": 255}
_NAMED = {"name": TEXT_OR_NULL, "description": TEXT_OR_NULL}
CREATE = Check(
    under(
        "group",
        obj(
            _NAMED | {"group_type": NAME, "volume_types": _TYPES, "availability_zone": _ZONE},
            "group_type",
            "volume_types",
        ),
    )
)
_CHANGED = _NAMED | {"add_volumes": TEXT_OR_NULL, "remove_volumes": TEXT_OR_NULL}
UPDATE = Check(under("group", obj(_CHANGED, anyOf=[{"required": [name]} for name in _CHANGED])))
ADDABLE = ("available", "in-use")
REMOVABLE = ("available", "in-use", "error", "error_deleting")


def check_not_reserved(store: VolumeStore, type: str) -> None:
    """Raises 400 for the type of what were consistency groups."""
    doc = store.get("group_type", type)
    if doc is not None and doc["name"] == RESERVED:
        raise bad(
            f"Group_type {type} is reserved for migrating CGs to groups. Migrated group can only be operated by CG APIs."
        )


def new_group(call: VolumeCall, said: Doc) -> Doc:
    """A group that is to be made; `said` are members of the record."""
    return {
        "id": new_uuid(),
        "project_id": call.who.project,
        "user_id": call.who.user,
        "status": "creating",
        "host": None,
        "replication_status": "disabled",
        "group_snapshot_id": None,
        "source_group_id": None,
        "created_at": stamp(),
        "updated_at": None,
        "work": {"kind": "create", "turn": new_uuid(), "while": "creating"},
    } | said


async def create(call: VolumeCall) -> Response:
    """Raises what Cinder answers: 400 for the reserved type or a wrong zone, 404 for an unknown type, 413 over quota."""
    call.since(SINCE)
    said = CREATE(await call.body())["group"]
    stripped(said, "name", "description")
    own_zone = call.context.settings.availability_zone

    def work(store: VolumeStore) -> Doc:
        type = group_type_named(call, store, said["group_type"])
        check_not_reserved(store, type["id"])
        call.require(call.who.writes(call.who.project), "group:create")
        types = [type_named(call, store, each)["id"] for each in said["volume_types"]]
        zone = said.get("availability_zone") or own_zone
        if zone != own_zone:
            raise invalid_input(f"Availability zone '{zone}' is invalid.")
        quotas.charge_group(call, store, call.who.project)
        named = {"name": said.get("name"), "description": said.get("description"), "availability_zone": zone}
        doc = new_group(call, named | {"group_type_id": type["id"], "volume_types": list(dict.fromkeys(types))})
        store.add("group", doc)
        return doc

    doc = await call.context.write(work)
    call.context.jobs.begin("group", doc["id"])
    return json_response({"group": views.group_summary(doc)}, 202)


def _lists_volumes(call: VolumeCall) -> bool:
    return call.version >= 25 and strict_flag("list_volume", dict(call.pairs).get("list_volume", False))


async def show(call: VolumeCall) -> Response:
    call.since(SINCE)
    lists = _lists_volumes(call)

    def work(store: VolumeStore) -> Doc:
        doc = group_of(call, store, call.path("id"))
        return views.group_detail(call, doc, store.members("volume", doc["id"]) if lists else None)

    return json_response({"group": await call.context.read(work)})


def _shown(call: VolumeCall, store: VolumeStore, docs: Sequence[Doc], detailed: bool) -> list[Doc]:
    if not detailed:
        return [views.group_summary(doc) for doc in docs]
    lists = _lists_volumes(call)
    return [views.group_detail(call, doc, store.members("volume", doc["id"]) if lists else None) for doc in docs]


index, detail = listing.verbs(listing.GROUPS, _shown)


async def update(call: VolumeCall) -> Response:
    """Name and describe it, add volumes and remove some: the back end has nothing to do, so it is done with the answer.

    Raises HttpFault (400) where nothing would change, and for volumes that the group cannot take or does not have.
    """
    call.since(SINCE)
    said = UPDATE(await call.body())["group"]
    stripped(said, "name", "description")
    add, remove = (_ids(said.get(name)) for name in ("add_volumes", "remove_volumes"))

    def work(store: VolumeStore) -> None:
        doc = my_group(call, store, call.path("id"), "group:update")
        if both := [each for each in add if each in remove]:
            raise invalid_volume(f"UUIDs {both} are in both add and remove volume list.")
        held = {each["id"] for each in store.members("volume", doc["id"])}
        joining = [_joining(call, store, doc, each) for each in add if each not in held]
        leaving = [_leaving(store, doc, each, held) for each in remove]
        named = {name: said[name] for name in _NAMED if said.get(name) is not None and said[name] != doc[name]}
        if not (named or joining or leaving):
            raise invalid_group(
                f"Cannot update group {doc['id']} because no valid name, description, add_volumes, or remove_volumes were"
                " provided."
            )
        if ((joining or leaving) and doc["status"] != "available") or being_deleted(doc):
            raise invalid_group("Group status must be available.")
        for volumes, group in ((joining, doc["id"]), (leaving, None)):
            for volume in volumes:
                volume["group_id"] = group
                store.put("volume", touched(volume))
        doc |= named | {"status": "available"}
        store.put("group", touched(doc))

    await call.context.write(work)
    return empty_response(202)


def _ids(said: str | None) -> list[str]:
    return [] if not said else list(dict.fromkeys(said.strip(",").split(",")))


def _joining(call: VolumeCall, store: VolumeStore, group: Doc, id: str) -> Doc:
    """A volume that the group can take, held. Raises 400."""
    cannot = f"Cannot add volume {id} to group {group['id']}"
    volume = store.get("volume", id, hold=True)
    if volume is None or not call.who.reads(volume["project_id"]):
        raise invalid_volume(f"{cannot} because volume cannot be found.")
    if volume.get("group_id"):
        raise invalid_volume(f"{cannot} because it is already in group {volume['group_id']}.")
    if volume["project_id"] != group["project_id"]:
        raise invalid_volume(f"{cannot} as they belong to different projects.")
    if volume["volume_type_id"] not in group["volume_types"]:
        raise invalid_volume(f"{cannot} because volume type {volume['volume_type_id']} is not supported by the group.")
    if volume["status"] not in ADDABLE:
        raise invalid_volume(
            f"{cannot} because volume is in an invalid state: {volume['status']}. Valid states are: {ADDABLE}."
        )
    if group["host"] is None:
        raise invalid_volume("Volume is not local to this node.")
    return volume


def _leaving(store: VolumeStore, group: Doc, id: str, members: set[str]) -> Doc:
    """A volume of the group that may leave it, held. Raises 400."""
    cannot = f"Cannot remove volume {id} from group {group['id']} because"
    volume = store.get("volume", id, hold=True) if id in members else None
    if volume is None or volume.get("group_id") != group["id"]:
        raise invalid_volume(f"{cannot} it is not in the group.")
    if volume["status"] not in REMOVABLE:
        raise invalid_volume(
            f"{cannot} volume is in an invalid state: {volume['status']}. Valid states are: {REMOVABLE}."
        )
    return volume
