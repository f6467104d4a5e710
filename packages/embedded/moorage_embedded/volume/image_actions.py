"""Volumes and images: a volume uploaded as an image, a volume filled with another one, and what it remembers of its image."""

from starlette.responses import Response

from moorage.model.errors import Problem, Unavailable
from moorage.model.ids import new_uuid
from moorage_embedded.http_kit.answers import HttpFault, json_response
from moorage_embedded.volume import sources
from moorage_embedded.volume.faults import bad, conflict, forbidden, invalid_volume
from moorage_embedded.volume.listing import either
from moorage_embedded.volume.records import change_volume, my_volume, snapshot_of, type_names, volume_of
from moorage_embedded.volume.request import VolumeCall, touched
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import FLAG, ID, IMAGE_METADATA, NAME, TEXT_OR_NULL, Schema, flag, obj

FORMATS = ("raw", "vmdk", "vdi", "qcow2", "vhd", "vhdx", "ploop")
UPLOAD: Schema = obj(
    {
        "image_name": NAME,
        "force": FLAG,
        "disk_format": {"enum": list(FORMATS)},
        "container_format": TEXT_OR_NULL,
        "visibility": {"enum": ["community", "public", "private", "shared"]},
        "protected": FLAG,
    },
    "image_name",
)
REIMAGE: Schema = obj({"image_id": ID, "reimage_reserved": FLAG}, "image_id")
SET_METADATA: Schema = obj({"metadata": IMAGE_METADATA}, "metadata")
UNSET_METADATA: Schema = obj({"key": {"type": "string", "minLength": 1, "maxLength": 255}}, "key")
KEPT_NOT_SENT = frozenset(
    {"image_id", "image_name", "checksum", "size", "container_format", "disk_format", "signature_verified"}
)
DIGITS_MAX = 18
NUMBERS = ("min_disk", "min_ram")


async def upload(call: VolumeCall, said: Doc) -> Response:
    """A new image with the volume's bytes; Cinder converts to other formats with qemu-img, here an image is raw."""
    if call.version < 1 and {"visibility", "protected"} & said.keys():
        raise bad("Invalid input for field/attribute os-volume_upload_image. visibility and protected came with 3.1.")
    images = call.context.images
    if images is None:
        raise bad("There is no image service.")
    if said.get("disk_format", "raw") != "raw":
        raise bad(f"This service uploads raw images only, not {said['disk_format']}.")
    if call.version >= 1 and said.get("visibility") == "public" and not call.who.admin:
        raise forbidden("volume_extension:volume_actions:upload_public")
    force = flag(said.get("force", False))

    def reserve(store: VolumeStore) -> tuple[Doc, str]:
        doc = my_volume(call, store, call.path("id"), "volume_extension:volume_actions:upload_image")
        allowed = ("available", "in-use") if force else ("available",)
        if doc["status"] not in allowed:
            raise invalid_volume(f"Volume {doc['id']} status must be {either(allowed)}")
        doc |= {"previous_status": doc["status"], "status": "uploading"}
        store.put("volume", touched(doc))
        return doc, type_names(store, {doc["volume_type_id"]}).get(doc["volume_type_id"], "")

    doc, type_name = await call.context.write(reserve)
    wanted = _image_of(call, doc, said)
    try:
        image = await images.create(call.principal, wanted)
    except Unavailable:
        await call.context.write(lambda store: _roll_back(store, doc["id"]))
        raise
    except Problem as problem:
        await call.context.write(lambda store: _roll_back(store, doc["id"]))
        raise bad(problem.public) from None
    await call.context.write(lambda store: _uploads(store, doc["id"], image["id"], call.request_id))
    call.context.jobs.begin("volume", doc["id"])
    answer = {
        "id": doc["id"],
        "updated_at": doc["updated_at"],
        "status": "uploading",
        "display_description": doc["description"],
        "size": doc["size"],
        "volume_type": {"id": doc["volume_type_id"], "name": type_name},
        "image_id": image["id"],
        "container_format": wanted["container_format"],
        "disk_format": wanted["disk_format"],
        "image_name": wanted["name"],
    }
    for name in ("protected", "visibility"):
        if name in wanted:
            answer[name] = wanted[name]
    return json_response({"os-volume_upload_image": answer}, 202)


def _is_number(said: str) -> bool:
    return said.isdecimal() and len(said) <= DIGITS_MAX


def _image_of(call: VolumeCall, doc: Doc, said: Doc) -> Doc:
    """What the image says of itself: what the volume remembers of the one that it was made from goes with it."""
    kept = {name: value for name, value in doc["image_metadata"].items() if name not in KEPT_NOT_SENT}
    wanted: Doc = {name: int(kept.pop(name)) for name in NUMBERS if _is_number(str(kept.get(name, "")))}
    wanted["min_disk"] = max(wanted.get("min_disk", 0), doc["size"])
    wanted |= {name: value for name, value in kept.items() if name not in NUMBERS}
    wanted |= {
        "name": said["image_name"],
        "disk_format": said.get("disk_format", "raw"),
        "container_format": said.get("container_format") or "bare",
    }
    if call.version >= 1:
        wanted |= {"visibility": said.get("visibility", "private"), "protected": flag(said.get("protected", False))}
    return wanted


def _roll_back(store: VolumeStore, id: str) -> None:
    doc = store.get("volume", id, hold=True)
    if doc is not None and doc["status"] == "uploading":
        doc |= {"status": doc["previous_status"], "previous_status": None}
        store.put("volume", touched(doc))


def _uploads(store: VolumeStore, id: str, image: str, request: str) -> None:
    doc = store.get("volume", id, hold=True)
    if doc is not None and doc["status"] == "uploading":
        to = doc["previous_status"]
        work = {
            "kind": "upload",
            "turn": new_uuid(),
            "request": request,
            "image": image,
            "to": to,
            "while": "uploading",
        }
        doc["work"] = work
        store.put("volume", touched(doc))


async def reimage(call: VolumeCall, said: Doc) -> Response:
    """Fill a volume with another image; one that is reserved (compute rebuilds its server) on request."""
    image = await _image(call, said["image_id"])
    inside = sources.snapshot_inside(image)
    reserved = flag(said.get("reimage_reserved", False))

    def change(store: VolumeStore, doc: Doc) -> None:
        if inside is not None:
            snapshot_of(call, store, inside)
            _check_snapshot(image, doc)
        if len(store.children("attachment", doc["id"])) > 1:
            raise conflict("Cannot re-image a volume which is attached to more than one server.")
        allowed = ("available", "error", "reserved") if reserved else ("available", "error")
        if doc["status"] not in allowed:
            raise invalid_volume(
                f"Volume {doc['id']} status must be {either(allowed)}, but current status is {doc['status']}."
            )
        sources.check_image(image, doc["size"])
        doc |= {
            "previous_status": doc["status"],
            "status": "downloading",
            "work": {
                "kind": "reimage",
                "turn": new_uuid(),
                "request": call.request_id,
                "image": image["id"],
                "snapshot": inside,
                "disk_format": image.get("disk_format") or "raw",
                "image_metadata": sources.image_metadata(image),
                "to": doc["status"],
                "while": "downloading",
            },
        }

    return await change_volume(call, "volume:reimage", change, begins=True)


def _check_snapshot(image: Doc, doc: Doc) -> None:
    for each in sources.block_devices(image):
        size = each.get("volume_size")
        if each.get("source_type") == "snapshot" and each.get("boot_index") == 0 and (size or 0) > doc["size"]:
            raise bad(f"Volume size must be greater than the image size. (Image: {size}, Volume: {doc['size']}).")


async def _image(call: VolumeCall, id: str) -> Doc:
    images = call.context.images
    found = None if images is None else await images.show(call.principal, id)
    if found is None:
        raise HttpFault(404, f"Image {id} could not be found.")
    return found


# ---------------------------------------------------------------------------------------------------- what is remembered


async def set_metadata(call: VolumeCall, said: Doc) -> Response:
    def work(store: VolumeStore) -> Doc:
        doc = my_volume(call, store, call.path("id"), "volume_extension:volume_image_metadata:set")
        doc["image_metadata"] |= said["metadata"]
        if len(doc["image_metadata"]) > call.context.settings.metadata_max:
            raise HttpFault(413, f"There may be {call.context.settings.metadata_max} metadata items at most.")
        store.put("volume", touched(doc))
        kept: Doc = doc["image_metadata"]
        return kept

    return json_response({"metadata": await call.context.write(work)})


async def unset_metadata(call: VolumeCall, said: Doc) -> Response:
    def change(store: VolumeStore, doc: Doc) -> None:
        if said["key"] not in doc["image_metadata"]:
            raise HttpFault(404, f"Glance metadata for volume/snapshot {doc['id']} cannot be found.")
        del doc["image_metadata"][said["key"]]

    return await change_volume(call, "volume_extension:volume_image_metadata:remove", change, status=200)


async def show_metadata(call: VolumeCall, _: object) -> Response:
    doc = await call.context.read_inline(lambda store: volume_of(call, store, call.path("id")))
    return json_response({"metadata": doc["image_metadata"]})
