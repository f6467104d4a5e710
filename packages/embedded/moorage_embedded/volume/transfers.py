"""Transfers: a volume is offered to a user of another project who has the key."""

import hashlib
import hmac
import secrets
from collections.abc import Sequence

from starlette.responses import Response

from moorage.model.ids import new_uuid
from moorage_embedded.http_kit.answers import HttpFault, empty_response, json_response
from moorage_embedded.volume import listing, quotas, views
from moorage_embedded.volume.faults import bad, invalid_snapshot, invalid_volume
from moorage_embedded.volume.records import my_volume
from moorage_embedded.volume.request import VolumeCall, stamp, touched
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import FLAG, ID, NAME, TEXT_OR_NULL, Check, flag, obj, stripped, under

KEY_BYTES, SALT_BYTES = 8, 8
_SAID = {"name": TEXT_OR_NULL, "volume_id": ID}
CREATE = Check(under("transfer", obj(_SAID, "volume_id")))
CREATE_55 = Check(under("transfer", obj(_SAID | {"no_snapshots": FLAG}, "volume_id")))
ACCEPT = Check(under("accept", obj({"auth_key": NAME}, "auth_key")))


def _digest(salt: str, key: str) -> str:
    return hmac.new(salt.encode(), key.encode(), hashlib.sha256).hexdigest()


def _find(call: VolumeCall, store: VolumeStore, id: str) -> Doc:
    """Raises 404 for one that is not there, or not the caller's."""
    doc = store.get("transfer", id, hold=True)
    if doc is None or not call.who.reads(doc["project_id"]):
        raise HttpFault(404, f"Transfer {id} could not be found.")
    return doc


def _summary(call: VolumeCall, doc: Doc) -> Doc:
    return {
        "id": doc["id"],
        "volume_id": doc["volume_id"],
        "name": doc["name"],
        "links": views.links(call, call.parts[0], doc["id"]),
    }


def _detail(call: VolumeCall, doc: Doc) -> Doc:
    shown = _summary(call, doc) | {"created_at": doc["created_at"]}
    if call.version >= 55:
        shown["no_snapshots"] = doc["no_snapshots"]
    if call.version >= 57:
        shown |= {"source_project_id": doc["project_id"], "destination_project_id": None, "accepted": False}
    return shown


async def create(call: VolumeCall) -> Response:
    said = (CREATE if call.version < 55 else CREATE_55)(await call.body())["transfer"]
    stripped(said, "name")
    key, salt = secrets.token_hex(KEY_BYTES), secrets.token_hex(SALT_BYTES)

    def work(store: VolumeStore) -> Doc:
        volume = my_volume(call, store, said["volume_id"], "volume:create_transfer")
        if volume["status"] != "available":
            raise invalid_volume("status must be available")
        without = flag(said.get("no_snapshots", False))
        for snapshot in [] if without else store.children("snapshot", volume["id"]):
            if snapshot["status"] != "available":
                raise invalid_snapshot(f"snapshot: {snapshot['id']} status must be available")
        doc = {
            "id": new_uuid(),
            "name": said.get("name"),
            "volume_id": volume["id"],
            "project_id": volume["project_id"],
            "no_snapshots": without,
            "salt": salt,
            "digest": _digest(salt, key),
            "created_at": stamp(),
        }
        store.add("transfer", doc)
        volume["status"] = "awaiting-transfer"
        store.put("volume", touched(volume))
        return doc

    doc = await call.context.write(work)
    return json_response({"transfer": _detail(call, doc) | {"auth_key": key}}, 202)


async def show(call: VolumeCall) -> Response:
    doc = await call.context.write(lambda store: _find(call, store, call.path("id")))
    return json_response({"transfer": _detail(call, doc)})


def _shown(call: VolumeCall, store: VolumeStore, docs: Sequence[Doc], detailed: bool) -> list[Doc]:
    return [(_detail if detailed else _summary)(call, doc) for doc in docs]


index, detail = listing.verbs(listing.TRANSFERS, _shown)


async def delete(call: VolumeCall) -> Response:
    def work(store: VolumeStore) -> None:
        doc = _find(call, store, call.path("id"))
        volume = my_volume(call, store, doc["volume_id"], "volume:delete_transfer")
        store.remove("transfer", doc["id"])
        if volume["status"] == "awaiting-transfer":
            volume["status"] = "available"
            store.put("volume", touched(volume))

    await call.context.write(work)
    return empty_response(202)


async def accept(call: VolumeCall) -> Response:
    """A user with the key moves the volume, with its snapshots, into the project of the token."""
    call.require(call.who.writes(call.who.project), "volume:accept_transfer")
    key = ACCEPT(await call.body())["accept"]["auth_key"]

    def work(store: VolumeStore) -> Doc:
        doc = store.get("transfer", call.path("id"), hold=True)
        if doc is None:
            raise HttpFault(404, f"Transfer {call.path('id')} could not be found.")
        if not hmac.compare_digest(_digest(doc["salt"], key), doc["digest"]):
            raise bad(f"Invalid auth key: Attempt to transfer {doc['id']} with invalid auth key.")
        volume = store.get("volume", doc["volume_id"], hold=True)
        if volume is None or volume["status"] != "awaiting-transfer":
            raise bad("The volume does not wait for a transfer.")
        if volume.get("group_id"):  # whose owner could delete it, with the volume
            raise invalid_volume(f"Volume {volume['id']} must not be part of a consistency group.")
        kept = [] if doc["no_snapshots"] else store.children("snapshot", volume["id"])
        quotas.charge(call, store, call.who.project, "volume", volume["volume_type_id"], volume["size"])
        for each in kept:
            quotas.charge(call, store, call.who.project, "snapshot", each["volume_type_id"], each["size"])
            each |= {"project_id": call.who.project, "user_id": call.who.user}
            store.put("snapshot", touched(each))
        volume |= {"project_id": call.who.project, "user_id": call.who.user, "status": "available"}
        store.put("volume", touched(volume))
        store.remove("transfer", doc["id"])
        return doc

    return json_response({"transfer": _summary(call, await call.context.write(work))}, 202)
