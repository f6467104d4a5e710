"""Looking records up as the caller may see them, and what several verbs do with them."""

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from moorage_embedded.http_kit.answers import HttpFault, empty_response
from moorage_embedded.volume.faults import (
    bad,
    no_attachment,
    no_group,
    no_group_snapshot,
    no_snapshot,
    no_type,
    no_volume,
)
from moorage_embedded.volume.request import VolumeCall, touched
from moorage_embedded.volume.store import Doc, VolumeStore

ATTACH_TO_STATUS = {"attached": "in-use", "detached": "available"}


def _seen(call: VolumeCall, doc: Doc | None, missing: HttpFault) -> Doc:
    if doc is None or not call.who.reads(doc["project_id"]):
        raise missing
    return doc


def volume_of(call: VolumeCall, store: VolumeStore, id: str, *, hold: bool = False) -> Doc:
    """The volume, or 404 when there is none or none for this caller."""
    return _seen(call, store.get("volume", id, hold=hold), no_volume(id))


def my_volume(call: VolumeCall, store: VolumeStore, id: str, rule: str) -> Doc:
    """The volume, held, when the caller may change it; 403 names the rule."""
    doc = volume_of(call, store, id, hold=True)
    call.require(call.who.writes(doc["project_id"]), rule)
    return doc


async def change_volume(
    call: VolumeCall,
    rule: str,
    change: Callable[[VolumeStore, Doc], None],
    *,
    begins: bool = False,
    status: int = 202,
) -> Response:
    """Change the volume of the path, which is held, and begin the work on it if there is some. 403 names the rule."""

    def work(store: VolumeStore) -> None:
        doc = my_volume(call, store, call.path("id"), rule)
        change(store, doc)
        store.put("volume", touched(doc))

    await call.context.write(work)
    if begins:
        call.context.jobs.begin("volume", call.path("id"))
    return empty_response(status)


def admins_volume(call: VolumeCall, store: VolumeStore, id: str, rule: str) -> Doc:
    doc = volume_of(call, store, id, hold=True)
    call.require(call.who.admin, rule)
    return doc


def snapshot_of(call: VolumeCall, store: VolumeStore, id: str, *, hold: bool = False) -> Doc:
    return _seen(call, store.get("snapshot", id, hold=hold), no_snapshot(id))


def my_snapshot(call: VolumeCall, store: VolumeStore, id: str, rule: str) -> Doc:
    doc = snapshot_of(call, store, id, hold=True)
    call.require(call.who.writes(doc["project_id"]), rule)
    return doc


def attachment_of(call: VolumeCall, store: VolumeStore, id: str, *, hold: bool = False) -> Doc:
    """The attachment as users of its volume's project and administrators see it."""
    return _seen(call, store.get("attachment", id, hold=hold), no_attachment(id))


def group_of(call: VolumeCall, store: VolumeStore, id: str, *, hold: bool = False) -> Doc:
    """The group of volumes, or 404 when there is none or none for this caller."""
    return _seen(call, store.get("group", id, hold=hold), no_group(id))


def my_group(call: VolumeCall, store: VolumeStore, id: str, rule: str) -> Doc:
    """The group, held, when the caller may change it; 403 names the rule."""
    doc = group_of(call, store, id, hold=True)
    call.require(call.who.writes(doc["project_id"]), rule)
    return doc


def group_snapshot_of(call: VolumeCall, store: VolumeStore, id: str, *, hold: bool = False) -> Doc:
    return _seen(call, store.get("group_snapshot", id, hold=hold), no_group_snapshot(id))


def held_members(store: VolumeStore, noun: str, group: str) -> list[Doc]:
    """The volumes of a group, or the snapshots of a group snapshot, which others cannot change until the commit."""
    held = (store.get(noun, each["id"], hold=True) for each in store.members(noun, group))
    return [doc for doc in held if doc is not None]


def has_source_in_use(store: VolumeStore, member: str, id: str) -> bool:
    """Whether a group is being made from this source; `member` says of which kind the source is."""
    return any(each["status"] == "creating" and each[member] == id for each in store.busy("group"))


def being_deleted(doc: Doc) -> bool:
    """Whether it is being deleted, also when an administrator said otherwise of its status."""
    return bool(doc["work"]) and doc["work"]["kind"] == "delete"


def check_no_group_has_type(store: VolumeStore, id: str) -> None:
    """Raises 400 while volumes of this type may be in a group."""
    if any(id in each["volume_types"] for each in store.many("group")):
        raise bad("Target volume type is still in use.")


def sees_type(call: VolumeCall, doc: Doc) -> bool:
    return call.who.admin or doc["is_public"] or call.who.project in doc["projects"]


def type_of(call: VolumeCall, store: VolumeStore, id: str, *, hold: bool = False) -> Doc:
    doc = store.get("type", id, hold=hold)
    if doc is None or not sees_type(call, doc):
        raise no_type(id)
    return doc


def type_named(call: VolumeCall, store: VolumeStore, said: str) -> Doc:
    """By its id or its name, as the caller sees it."""
    doc = store.get("type", said)
    if doc is None:
        found = store.many("type", where={"key": said}, limit=1)
        doc = found[0] if found else None
    if doc is None or not sees_type(call, doc):
        raise no_type(said)
    return doc


def default_type(call: VolumeCall, store: VolumeStore) -> Doc:
    """What volumes are that name no type: the project's own default, or the service's."""
    own = store.get("default_type", call.who.project)
    if own is not None and (doc := store.get("type", own["volume_type_id"])) is not None:
        return doc
    name = call.context.settings.default_type
    found = store.many("type", where={"key": name}, limit=1)
    if not found:
        raise bad(f"Volume type with name {name} could not be found.")
    return found[0]


def type_names(store: VolumeStore, ids: set[str]) -> dict[str, str]:
    if not ids:
        return {}
    return {each["id"]: each["name"] for each in store.many("type", where={"id": list(ids)})}


def is_true_spec(specs: dict[str, Any], name: str) -> bool:
    """Extra specs say true in their own way."""
    return str(specs.get(name, "")).strip().lower() == "<is> true"


def settle(doc: Doc, attachments: list[Doc]) -> None:
    """The volume's states, as they follow from its attachments: what is nearest to being used counts."""
    states = sorted(each["status"] for each in attachments if not each["status"].startswith("error_"))
    doc["attach_status"] = state = states[0] if states else "detached"
    moving = doc["migration_status"] not in (None, "success", "error")
    if state != "detached" or not (moving or doc["status"] == "uploading"):
        doc["status"] = ATTACH_TO_STATUS.get(state, state)
