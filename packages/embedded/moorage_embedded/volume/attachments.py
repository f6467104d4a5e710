"""Attachments: the use of a volume, from the reservation over the connection to the end (microversions 3.27, 3.44,
3.54).
"""

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from moorage.model.ids import new_uuid
from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.volume import listing, views
from moorage_embedded.volume.faults import bad, conflict, invalid_volume, nova_uses_it
from moorage_embedded.volume.records import attachment_of, settle, volume_of
from moorage_embedded.volume.request import VolumeCall, stamp, touched
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import ANY, ID, Check, obj, under

_CONNECTOR_OR_NULL = {"type": ["object", "null"]}
_CREATED = {"instance_uuid": ID, "connector": _CONNECTOR_OR_NULL, "volume_uuid": ID}
CREATE = Check(under("attachment", obj(_CREATED, "volume_uuid")))
CREATE_WITH_MODE = Check(
    under("attachment", obj(_CREATED | {"mode": {"type": "string", "enum": ["rw", "ro"]}}, "volume_uuid"))
)
UPDATE = Check(under("attachment", obj({"connector": {"type": "object", "minProperties": 1}}, "connector")))
COMPLETE = Check(under("os-complete", ANY))


async def create(call: VolumeCall) -> Response:
    """Reserve a volume for a server, and connect it at once where a connector is given."""
    call.since(27)
    said = (CREATE if call.version < 54 else CREATE_WITH_MODE)(await call.body())["attachment"]
    connector = said.get("connector")

    def work(store: VolumeStore) -> Doc:
        volume = volume_of(call, store, said["volume_uuid"], hold=True)
        call.require(call.who.writes(volume["project_id"]), "volume:attachment_create")
        if "error" in volume["status"]:
            raise invalid_volume(
                "Volume attachments can not be created if the volume is in an error state. "
                f"The Volume {volume['id']} currently has a status of: {volume['status']} "
            )
        used = store.children("attachment", volume["id"])
        if len(used) >= call.context.settings.attachments_max:
            raise invalid_volume(f"The volume has {len(used)} attachments, which is the limit.")
        server = said.get("instance_uuid")
        _reserve(volume, used, server)
        mode = "ro" if volume["admin_metadata"].get("readonly") == "True" else said.get("mode", "null")
        doc = new_attachment(volume, server, mode)
        store.add("attachment", doc)
        shown = views.attachment_detail(doc)
        if connector:
            connect(call, volume, doc, connector)
            doc["attach_mode"] = mode
            store.put("attachment", doc)
        store.put("volume", touched(volume))
        return shown | {"connection_info": doc["connection_info"]}

    return json_response({"attachment": await call.context.write(work)})


def _reserve(volume: Doc, used: list[Doc], server: str | None) -> None:
    """`reserved`, from a state where that is allowed; a server that has it already may have it a second time (it moves)."""
    allowed = ("available", "in-use", "downloading") if volume["multiattach"] else ("available", "downloading")
    if volume["status"] in allowed:
        volume["status"] = "reserved"
        return
    again = server and volume["status"] in ("in-use", "reserved") and any(each["instance"] == server for each in used)
    if not again:
        raise invalid_volume(
            f"Volume {volume['id']} status must be {listing.either(allowed)} to reserve, but the current status is"
            f" {volume['status']}."
        )


def new_attachment(volume: Doc, server: str | None, mode: str) -> Doc:
    return {
        "id": new_uuid(),
        "volume_id": volume["id"],
        "project_id": volume["project_id"],
        "instance": server,
        "status": "reserved",
        "attach_mode": mode,
        "host": None,
        "mountpoint": None,
        "connector": None,
        "connection_info": {},
        "attached_at": None,
        "detached_at": None,
        "created_at": stamp(),
        "updated_at": None,
    }


def connection_info(call: VolumeCall, volume: Doc) -> Doc:
    """How a host reaches the volume: it is a file, where the data directory is.

    The mode is the volume's own, as in Cinder; the attachment's is outside the connection.
    """
    held = volume["admin_metadata"]
    mode = held.get("attached_mode") or ("ro" if held.get("readonly") == "True" else "rw")
    return {
        "driver_volume_type": "local",
        "device_path": str(call.context.files.volume(volume["id"])),
        "volume_id": volume["id"],
        "format": "raw",
        "access_mode": mode,
        "qos_specs": None,
        "encrypted": False,
        "cacheable": False,
    }


def connect(call: VolumeCall, volume: Doc, doc: Doc, connector: dict[str, Any]) -> None:
    """Give the attachment its connection; raises 400 for a connector without a host."""
    host = connector.get("host")
    if not isinstance(host, str) or not host:
        raise bad("Invalid input received: Connector doesn't have required information: host")
    mode = doc["attach_mode"] if doc["attach_mode"] != "null" else str(connector.get("mode") or "rw")
    info = connection_info(call, volume)
    info |= {"attachment_id": doc["id"], "enforce_multipath": bool(connector.get("enforce_multipath", False))}
    doc |= {
        "connector": connector | {"mode": mode},
        "connection_info": info,
        "status": "attaching",
        "attach_mode": mode,
        "host": host,
        "mountpoint": str(connector.get("mountpoint") or "na"),
        "attached_at": stamp(),
    }
    touched(doc)
    volume |= {"status": "attaching", "attach_status": "attaching"}


async def show(call: VolumeCall) -> Response:
    call.since(27)
    doc = await call.context.read_inline(lambda store: attachment_of(call, store, call.path("id")))
    return json_response({"attachment": views.attachment_detail(doc)})


def _shown(call: VolumeCall, store: VolumeStore, docs: Sequence[Doc], detailed: bool) -> list[Doc]:
    return [(views.attachment_detail if detailed else views.attachment_summary)(doc) for doc in docs]


index, detail = listing.verbs(listing.ATTACHMENTS, _shown)


def _mine(call: VolumeCall, store: VolumeStore, rule: str) -> tuple[Doc, Doc]:
    """The attachment and its volume, held in the order in which everybody holds them: the volume first."""
    seen = attachment_of(call, store, call.path("id"))
    volume = volume_of(call, store, seen["volume_id"], hold=True)
    doc = attachment_of(call, store, call.path("id"), hold=True)
    call.require(call.who.writes(doc["project_id"]), rule)
    return volume, doc


async def update(call: VolumeCall) -> Response:
    """Connect: the connector says which host, and the answer how the host reaches the volume.

    As in Cinder, all else in the answer is as it was before.
    """
    call.since(27)
    connector = UPDATE(await call.body())["attachment"]["connector"]

    def work(store: VolumeStore) -> Doc:
        volume, doc = _mine(call, store, "volume:attachment_update")
        if "error" in volume["status"]:
            raise conflict(
                "Resource conflict: Volume attachments can not be updated if the volume is in an error state. "
                f"The Volume {volume['id']} currently has a status of: {volume['status']} "
            )
        used = store.children("attachment", volume["id"])
        if len(used) > 1 and not volume["multiattach"] and any(each["connection_info"] for each in used):
            raise conflict(f"Resource conflict: duplicate connectors detected on volume {volume['id']}")
        shown = views.attachment_detail(doc)
        connect(call, volume, doc, connector)
        store.put("attachment", doc)
        store.put("volume", touched(volume))
        return shown | {"connection_info": doc["connection_info"]}

    return json_response({"attachment": await call.context.write(work)})


async def act(call: VolumeCall) -> Response:
    """`os-complete`, the one action: the host has it."""
    body = await call.body()
    if "os-complete" not in body:
        name = next(iter(body), "")
        raise bad(f"There is no such action: {name}. Verify the request body and Content-Type header and try again.")
    call.since(44)
    COMPLETE(body)

    def work(store: VolumeStore) -> None:
        volume, doc = _mine(call, store, "volume:attachment_complete")
        doc["status"] = "attached"
        store.put("attachment", touched(doc))
        volume |= {"status": "in-use", "attach_status": "attached"}
        store.put("volume", touched(volume))

    await call.context.write(work)
    return empty_response(204)


async def delete(call: VolumeCall) -> Response:
    """End it. 409 for a user while compute's server uses it (CVE-2023-2088)."""
    call.since(27)
    doc = await call.context.read_inline(lambda store: attachment_of(call, store, call.path("id")))
    call.require(call.who.writes(doc["project_id"]), "volume:attachment_delete")
    await check_removable(call, doc)

    def work(store: VolumeStore) -> list[Doc]:
        volume, doc = _mine(call, store, "volume:attachment_delete")
        left = drop(store, volume, doc)
        return [views.attachment_summary(each) for each in left]

    return json_response({"attachments": await call.context.write(work)})


def drop(store: VolumeStore, volume: Doc, doc: Doc) -> list[Doc]:
    """Remove an attachment; the volume's state follows from those that are left."""
    store.remove("attachment", doc["id"])
    left = store.children("attachment", volume["id"])
    settle(volume, left)
    volume["admin_metadata"].pop("attached_mode", None)
    store.put("volume", touched(volume))
    return left


async def check_removable(call: VolumeCall, doc: Doc | None) -> None:
    """Raises 409 when a server uses the volume by this attachment and no service asks; None: by one of several."""
    if call.who.service_request:
        return
    if doc is None:
        raise nova_uses_it("")
    server = doc["instance"]
    if not server or not doc["connection_info"]:
        return
    ask = call.context.server_volumes
    if ask is not None and await ask(server, doc["volume_id"]) != doc["id"]:
        return
    raise nova_uses_it(server)
