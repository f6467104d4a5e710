"""The calls for attaching that came before attachments (below 3.27), and that some clients still make."""

from typing import Any

from starlette.responses import Response

from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.volume import attachments
from moorage_embedded.volume.faults import bad, invalid_input, invalid_volume
from moorage_embedded.volume.listing import either
from moorage_embedded.volume.records import attachment_of, change_volume, my_volume, settle, volume_of
from moorage_embedded.volume.request import VolumeCall, stamp, touched
from moorage_embedded.volume.store import Doc, VolumeStore

STILL = (None, "deleting", "error", "success")


async def reserve(call: VolumeCall, _: Any) -> Response:
    def change(store: VolumeStore, doc: Doc) -> None:
        allowed = ("available", "in-use") if doc["multiattach"] else ("available",)
        if doc["status"] not in allowed:
            raise invalid_volume(
                f"Volume status must be {either(allowed)} to reserve, but the status is {doc['status']}."
            )
        doc["status"] = "attaching"

    return await change_volume(call, "volume_extension:volume_actions:reserve", change)


async def unreserve(call: VolumeCall, _: Any) -> Response:
    """Nothing happens to a volume that is not reserved."""

    def work(store: VolumeStore) -> None:
        doc = my_volume(call, store, call.path("id"), "volume_extension:volume_actions:unreserve")
        _unreserve(store, doc)

    await call.context.write(work)
    return empty_response(202)


def _unreserve(store: VolumeStore, doc: Doc) -> None:
    if doc["status"] == "attaching":
        doc["status"] = "in-use" if store.children("attachment", doc["id"]) else "available"
        store.put("volume", touched(doc))


async def begin_detaching(call: VolumeCall, _: Any) -> Response:
    def work(store: VolumeStore) -> None:
        doc = my_volume(call, store, call.path("id"), "volume_extension:volume_actions:begin_detaching")
        if doc["migration_status"] not in STILL:
            return  # what is moving is marked already, and nobody is to see that it is also detached
        if doc["status"] != "in-use" or doc["attach_status"] != "attached":
            raise invalid_volume(
                "Unable to detach volume. Volume status must be 'in-use' and attach_status must be 'attached' to detach."
            )
        doc["status"] = "detaching"
        store.put("volume", touched(doc))

    await call.context.write(work)
    return empty_response(202)


async def roll_detaching(call: VolumeCall, _: Any) -> Response:
    def work(store: VolumeStore) -> None:
        doc = my_volume(call, store, call.path("id"), "volume_extension:volume_actions:roll_detaching")
        if doc["status"] == "detaching":
            doc["status"] = "in-use"
            store.put("volume", touched(doc))

    await call.context.write(work)
    return empty_response(202)


async def attach(call: VolumeCall, said: Doc) -> Response:
    """Write down that a server or a host uses the volume."""
    server, host, mode = said.get("instance_uuid"), said.get("host_name"), said.get("mode", "rw")

    def change(store: VolumeStore, doc: Doc) -> None:
        if doc["status"] == "maintenance":
            raise invalid_volume("The volume cannot be attached in maintenance mode.")
        if doc["admin_metadata"].setdefault("readonly", "False") == "True" and mode != "ro":
            raise bad(f"Invalid attaching mode '{mode}' for volume {doc['id']}.")
        held = doc["admin_metadata"].get("attached_mode")
        if doc["status"] == "attaching" and held and held != mode:
            raise _cannot_attach("being attached by different mode")
        used = store.children("attachment", doc["id"])
        same = [each for each in used if (each["instance"] == server if server else each["host"] == host)]
        if not same:
            if doc["status"] == "in-use" and not doc["multiattach"] and not doc["migration_status"]:
                raise _cannot_attach("volume is already attached and multiple attachments are not enabled")
            made = attachments.new_attachment(doc, server, mode)
            made |= {"status": "attached", "host": host, "mountpoint": said["mountpoint"], "attached_at": stamp()}
            store.add("attachment", made)
            doc["admin_metadata"]["attached_mode"] = mode
            doc["attach_status"] = "attached"
        doc["status"] = "in-use"

    return await change_volume(call, "volume_extension:volume_actions:attach", change)


def _cannot_attach(why: str) -> Exception:
    return bad(f"Error attaching volume - InvalidVolume: Invalid volume: {why}")


async def detach(call: VolumeCall, said: Doc | None) -> Response:
    await end(call, call.path("id"), (said or {}).get("attachment_id"), "volume_extension:volume_actions:detach")
    return empty_response(202)


async def end(call: VolumeCall, id: str, attachment: str | None, rule: str) -> None:
    """Forget an attachment, or the only one. Raises 409 for a user while a server uses it."""
    await check_end(call, id, attachment)

    def work(store: VolumeStore) -> None:
        doc = my_volume(call, store, id, rule)
        if doc["status"] == "maintenance":
            raise invalid_volume("The volume cannot be detached in maintenance mode.")
        used = store.children("attachment", id)
        if attachment is None and len(used) > 1:
            raise bad(
                "Error detaching volume - InvalidVolume: Invalid volume: Detach volume failed: More than one attachment,"
                " but no attachment_id provided."
            )
        for each in used:
            if attachment in (None, each["id"]):
                attachments.drop(store, doc, each)
                return
        settle(doc, used)
        store.put("volume", touched(doc))

    await call.context.write(work)


async def check_end(call: VolumeCall, id: str, attachment: str | None) -> None:
    """Raises 409 where only a service may end it (CVE-2023-2088), 400 for an attachment of another volume."""
    if call.who.service_request:
        return

    def work(store: VolumeStore) -> tuple[Doc | None, bool]:
        volume_of(call, store, id)
        used = store.children("attachment", id)
        if attachment is None:
            return (used[0] if len(used) == 1 else None), not used
        try:
            return attachment_of(call, store, attachment), False
        except Exception:  # noqa: BLE001  one that nobody knows is refused as one that somebody uses
            return None, False

    found, unused = await call.context.read(work)
    if unused:
        return
    if found is not None and found["volume_id"] != id:
        raise invalid_input("Mismatched volume and attachment")
    await attachments.check_removable(call, found)


async def initialize(call: VolumeCall, said: Doc) -> Response:
    """How the connector's host reaches the volume."""
    connector = said["connector"]
    if not isinstance(connector, dict) or not connector.get("host"):
        raise invalid_input("Connector doesn't have required information: host")

    def work(store: VolumeStore) -> Doc:
        doc = my_volume(call, store, call.path("id"), "volume_extension:volume_actions:initialize_connection")
        if doc["status"] == "maintenance":
            raise invalid_volume("The volume connection cannot be initialized in maintenance mode.")
        info = attachments.connection_info(call, doc)
        kind = info.pop("driver_volume_type")
        multipath = bool(connector.get("enforce_multipath", False))
        info["enforce_multipath"] = multipath
        return {"driver_volume_type": kind, "data": info, "enforce_multipath": multipath}

    return json_response({"connection_info": await call.context.write(work)})


async def terminate(call: VolumeCall, said: Doc) -> Response:
    await end_connection(call, call.path("id"), "volume_extension:volume_actions:terminate_connection")
    return empty_response(202)


async def end_connection(call: VolumeCall, id: str, rule: str) -> None:
    """The host does not reach it any more; a volume that was being attached is not."""
    await check_end(call, id, None)

    def work(store: VolumeStore) -> None:
        _unreserve(store, my_volume(call, store, id, rule))

    await call.context.write(work)
