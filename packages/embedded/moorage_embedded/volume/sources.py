"""What a volume is made of: nothing, an image, a snapshot or another volume; and what it becomes because of that."""

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from moorage.model.ids import new_uuid
from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.volume.faults import bad, conflict, invalid_group, invalid_input, invalid_snapshot, invalid_volume
from moorage_embedded.volume.files import GIB
from moorage_embedded.volume.records import (
    being_deleted,
    default_type,
    group_of,
    is_true_spec,
    snapshot_of,
    type_named,
    volume_of,
)
from moorage_embedded.volume.request import VolumeCall, stamp
from moorage_embedded.volume.store import Doc, VolumeStore

SERVICE_UUID = "5f1f1a3e-5a5c-5d2a-9b5e-6d6f6f726167"
"""There is one service, with one back end; its name never changes."""
SOURCE_STATES = ("available", "in-use")
GROUP_STATES = ("available", "creating")
_UUID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
IMAGE_BASE = (
    "checksum", "container_format", "disk_format", "min_disk", "min_ram", "size", "signature_verified"
)  # fmt: skip
IMAGE_NOT_KEPT = frozenset(
    {
        "id", "name", "status", "visibility", "owner", "created_at", "updated_at", "tags", "self", "file", "schema",
        "protected", "os_hidden", "os_hash_algo", "os_hash_value", "virtual_size", "stores", "locations", "direct_url",
        *IMAGE_BASE,
    }
)  # fmt: skip


@dataclass(frozen=True)
class Source:
    """What was asked to be made into a volume; at most one of them."""

    image: Doc | None = None
    snapshot: str | None = None
    volume: str | None = None


async def of(call: VolumeCall, said: Doc) -> Source:
    """The source that the body names. Raises HttpFault: 400 for an unknown image or one that is not ready, 404 for backups."""
    named = [name for name in ("snapshot_id", "source_volid", "imageRef", "image_id", "backup_id") if said.get(name)]
    if backup := said.get("backup_id") if call.version >= 47 else None:
        raise HttpFault(404, f"Backup {backup} could not be found.")
    image_ref = said.get("image_id") if "image_id" in said else said.get("imageRef")
    snapshot = said.get("snapshot_id")
    image = None
    if image_ref is not None:
        image = await image_named(call, image_ref)
        if call.version >= 46 and (inside := snapshot_inside(image)):
            image, snapshot = None, inside
    chosen = [each for each in (image, snapshot, said.get("source_volid")) if each]
    if len(chosen) > 1:
        raise invalid_input(f"May specify only one of {', '.join(named)}")
    return Source(image, snapshot, said.get("source_volid"))


async def image_named(call: VolumeCall, ref: str) -> Doc:
    """By id, address or name, as the caller sees it. Raises 400, or 409 for a name that several have."""
    images = call.context.images
    if images is None:
        raise bad("Invalid image identifier or unable to access requested image: there is no image service.")
    id = ref.rsplit("/", 1)[-1]
    found = await images.show(call.principal, id) if _UUID.fullmatch(id) else None
    if found is None:
        named = await images.named(call.principal, ref)
        if len(named) > 1:
            raise conflict(f"Multiple matches found for '{ref}', use an ID to be more specific.")
        found = named[0] if named else None
    if found is None:
        raise bad("Invalid image identifier or unable to access requested image.")
    return found


def snapshot_inside(image: Doc) -> str | None:
    """An image that compute made of a volume's server has no data: it names the snapshot of the root volume."""
    for each in block_devices(image):
        if each.get("source_type") == "snapshot" and each.get("boot_index") == 0:
            return each.get("snapshot_id")
    return None


def block_devices(image: Doc) -> list[dict[str, Any]]:
    """What compute wrote into the image's `block_device_mapping`; nothing where it is no such list."""
    said = image.get("block_device_mapping")
    if isinstance(said, str):
        try:
            said = msgspec.json.decode(said)
        except msgspec.DecodeError:
            return []
    return [each for each in said if isinstance(each, dict)] if isinstance(said, list) else []


def check_image(image: Doc, size: int) -> None:
    """Raises 400 for an image that is not active or does not fit."""
    if image["status"] != "active":
        raise invalid_input(f"Image {image['id']} is not active.")
    needed = -(-(image["size"] or 0) // GIB)
    if needed > size:
        raise invalid_input(f"Size of specified image {needed}GB is larger than volume size {size}GB.")
    if size < (image.get("min_disk") or 0):
        raise invalid_input(
            f"Volume size {size}GB cannot be smaller than the image minDisk size {image['min_disk']}GB."
        )
    virtual = -(-(image.get("virtual_size") or 0) // GIB)
    if virtual > size:
        raise bad(
            f"Image {image['id']} is unacceptable: Image virtual size is {virtual}GB and doesn't fit in a volume of"
            f" size {size}GB."
        )


def image_metadata(image: Doc) -> dict[str, str]:
    """What a volume remembers of the image that it was made from, as text."""
    kept: dict[str, str] = {"image_id": image["id"], "image_name": image.get("name") or ""}
    for name in IMAGE_BASE:
        if image.get(name) is not None:
            kept[name] = str(image[name])
    kept |= {name: str(value) for name, value in image.items() if name not in IMAGE_NOT_KEPT and value is not None}
    return kept


def _size(said: Doc, default: int | None) -> int:
    size = said.get("size")
    if size is None or size == "":
        size = default
    if size is None or int(size) <= 0:
        raise invalid_input(f"Volume size '{size}' must be an integer and greater than 0")
    return int(size)


def check_not_encrypted(type: Doc) -> None:
    """Raises 400: this service keeps no keys."""
    if type.get("encryption"):
        raise bad(f"Volume type {type['name']} asks for encrypted volumes, and this service has no key manager.")


def _group_of(call: VolumeCall, store: VolumeStore, said: Doc, type: Doc | None) -> Doc | None:
    """The group that the volume is to be in, which is held. Raises 400 where it takes no such volume, 404 for an unknown one."""
    named = [said[name] for name in ("group_id", "consistencygroup_id") if said.get(name) is not None]
    if not named:
        return None
    group = group_of(call, store, named[0], hold=True)
    if type is None:
        raise invalid_input("volume_type must be provided when creating a volume in a group.")
    if type["id"] not in group["volume_types"]:
        raise invalid_input(
            f"Invalid volume_type provided: {type['id']} (requested type must be supported by this group)."
        )
    if group["status"] not in GROUP_STATES or being_deleted(group):
        raise invalid_group(f"Originating group status must be one of '{', '.join(GROUP_STATES)}' values")
    return group


def new_volume(call: VolumeCall, store: VolumeStore, said: Doc, source: Source) -> Doc:
    """The record of a volume that is to be made, with the work that makes it."""
    settings = call.context.settings
    named = said.get("volume_type")
    snapshot = None if source.snapshot is None else snapshot_of(call, store, source.snapshot)
    origin = None if source.volume is None else volume_of(call, store, source.volume)
    chosen = type_named(call, store, named) if named else None
    group = _group_of(call, store, said, chosen)
    work: Doc = {"kind": "create", "turn": new_uuid(), "request": call.request_id, "from": "blank"}
    inherited, bootable, metadata = None, False, {}
    if snapshot is not None:
        if snapshot["status"] != "available":
            raise invalid_snapshot("Originating snapshot status must be one of 'available' values")
        size = _size(said, snapshot["size"])
        if size < snapshot["size"]:
            raise invalid_input(
                f"Volume size '{size}'GB cannot be smaller than the snapshot size {snapshot['size']}GB."
                " They must be >= original snapshot size."
            )
        inherited = snapshot
        work |= {"from": "snapshot", "id": snapshot["id"]}
    elif origin is not None:
        if origin["status"] not in SOURCE_STATES:
            raise invalid_volume(f"Originating source volume status must be one of '{', '.join(SOURCE_STATES)}' values")
        size = _size(said, origin["size"])
        if size < origin["size"]:
            raise invalid_input(
                f"Volume size '{size}'GB cannot be smaller than original volume size  {origin['size']}GB."
                " They must be >= original volume size."
            )
        inherited = origin
        work |= {"from": "volume", "id": origin["id"]}
    else:
        size = _size(said, None)
        if source.image is not None:
            check_image(source.image, size)
            work |= {"from": "image", "id": source.image["id"], "image_metadata": image_metadata(source.image)}
            wanted = source.image.get("cinder_img_volume_type")
            if chosen is None and wanted:
                chosen = type_named(call, store, wanted)
            work["disk_format"] = source.image.get("disk_format") or "raw"
    if inherited is not None:
        bootable, metadata = inherited["bootable"], inherited["image_metadata"]
        if chosen is None:
            chosen = store.get("type", inherited["volume_type_id"])
    chosen = chosen or default_type(call, store)
    check_not_encrypted(chosen)
    zone = said.get("availability_zone") or (group or origin or snapshot or {}).get("availability_zone")
    zone = zone or settings.availability_zone
    if zone != settings.availability_zone:
        raise bad(f"Availability zone '{zone}' is invalid.")
    return {
        "id": new_uuid(),
        "project_id": call.who.project,
        "user_id": call.who.user,
        "name": said.get("name", said.get("display_name")),
        "description": said.get("description", said.get("display_description")),
        "status": "creating",
        "attach_status": "detached",
        "migration_status": None,
        "previous_status": None,
        "size": size,
        "availability_zone": zone,
        "host": settings.host,
        "service_uuid": SERVICE_UUID,
        "volume_type_id": chosen["id"],
        "snapshot_id": source.snapshot,
        "source_volid": source.volume,
        "group_id": None if group is None else group["id"],
        "metadata": _bounded(call, said.get("metadata") or {}),
        "admin_metadata": {},
        "image_metadata": dict(metadata),
        "bootable": bootable,
        "multiattach": is_true_spec(chosen["extra_specs"], "multiattach"),
        "created_at": stamp(),
        "updated_at": None,
        "launched_at": None,
        "terminated_at": None,
        "work": work,
    }


def _bounded(call: VolumeCall, metadata: Doc) -> Doc:
    if len(metadata) > call.context.settings.metadata_max:
        raise HttpFault(413, f"There may be {call.context.settings.metadata_max} metadata items at most.")
    return metadata
