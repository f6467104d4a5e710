"""Block devices in an image's properties: the volumes of a server that booted from a volume, when an image was made of
it.

Nova writes them as JSON into the property `block_device_mapping`, in the form of `block_device_mapping_v2` when
`bdm_v2` is true. A device of the request replaces the image's device of the same name.
"""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from moorage.model.errors import Invalid
from moorage.model.image import Image
from moorage.model.server import BlockDevice
from moorage.operations.steps.snapshot_image import TRUE

PROPERTY, SECOND_FORM = "block_device_mapping", "bdm_v2"
DEVICES_MAX = 64
SOURCES = {"snapshot": "snapshot_id", "volume": "volume_id", "image": "image_id", "blank": ""}


def merged(image: Image, input: Sequence[BlockDevice], without: Collection[str] = ()) -> tuple[BlockDevice, ...]:
    """Return the request's devices and the image's, without the device names in `without`. Raises Invalid for a
    property that cannot be read.
    """
    left_out = {_bare(each) for each in without}
    defined = [each for each in devices_of(image) if not each.device or _bare(each.device) not in left_out]
    if not defined:
        return tuple(input)
    if any(each.boot_index == 0 for each in defined):
        input = [each for each in input if not (each.boot_index == 0 and each.source == "image")]
    elif not any(each.boot_index == 0 for each in input):
        input = [BlockDevice("image", "local", 0, image.id, delete_on_termination=True), *input]
    named = {_bare(each.device) for each in input if each.device}
    return (*input, *(each for each in defined if not each.device or _bare(each.device) not in named))


def devices_of(image: Image) -> tuple[BlockDevice, ...]:
    """Return the devices that the image's property lists; none when it has the form before `bdm_v2`.

    Raises Invalid when the property cannot be read or lists too many devices.
    """
    text = image.properties.get(PROPERTY, "")
    if not text or image.properties.get(SECOND_FORM, "").lower() not in TRUE:
        return ()
    try:
        rows = msgspec.json.decode(text.encode(), type=list[dict[str, Any]])
        if len(rows) > DEVICES_MAX:
            raise Invalid(f"The image {image.id} names more than {DEVICES_MAX} block devices.")
        return tuple(_device(row) for row in rows if not row.get("no_device"))
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as broken:
        raise Invalid(
            f"The property {PROPERTY} of image {image.id} cannot be read as block devices.", private=str(broken)
        ) from broken


def _device(row: dict[str, Any]) -> BlockDevice:
    source = row.get("source_type")
    if source not in SOURCES:
        raise msgspec.ValidationError(f"source_type {source!r}")
    fields = {
        "source": source,
        "destination": row.get("destination_type") or ("local" if source == "blank" else "volume"),
        "boot_index": row.get("boot_index"),
        "uuid": row.get(SOURCES[source]) or None,
        "size_gib": row.get("volume_size"),
        "device": row.get("device_name"),
        "device_type": row.get("device_type"),
        "disk_bus": row.get("disk_bus"),
        "guest_format": row.get("guest_format"),
        "delete_on_termination": bool(row.get("delete_on_termination")),
        "volume_type": row.get("volume_type"),
        "tag": row.get("tag"),
    }
    device = msgspec.convert(fields, BlockDevice, strict=False)
    if device.destination not in {"local", "volume"} or (source != "blank" and not device.uuid):
        raise msgspec.ValidationError(f"a device from {source} to {device.destination} without its source")
    return device


def _bare(device: str | None) -> str:
    return (device or "").removeprefix("/dev/")
