"""Decides the block devices of a boot before it is accepted: what each is made from, which one boots, and Nova's
refusals.

Volumes are read and created with the user's token, so the user's rights and quota apply. This happens while the request
is answered, because the token is not stored. An intent is written before the first volume is made (`volume_intents`);
the commit that accepts the boot removes it.
"""

from collections.abc import Sequence

import msgspec

from moorage.model import guest_hardware, local_disks
from moorage.model.boot_request import BootRequest
from moorage.model.errors import Forbidden, Invalid, NotFound
from moorage.model.flavor import Flavor
from moorage.model.image import Image
from moorage.model.local_disks import FORMATS, LOCAL_MAX
from moorage.model.principal import Principal
from moorage.model.server import BlockDevice
from moorage.model.volume import Volume, VolumeSnapshot
from moorage.operations.context import SagaContext
from moorage.operations.image_checks import BYTES_PER_GIB, check_image, check_properties
from moorage.operations.image_mappings import merged
from moorage.operations.named_images import checked_properties
from moorage.operations.steps.volumes import volumes_of

DEVICES_MAX = 64
ROOT = "vda"
"""The device name of a root disk that is given none."""
BUSES = frozenset({"fdc", "ide", "sata", "scsi", "usb", "virtio", "xen", "lxc", "uml"})
WRONG = "Block Device Mapping is Invalid"
NO_ORDER = f"{WRONG}: Boot sequence for the instance and image/block device mapping combination is not valid."


class BootDevices(msgspec.Struct, frozen=True):
    """The devices of a request, with what was read about them."""

    devices: tuple[BlockDevice, ...] = ()
    image: Image | None = None
    """The image from which the server boots; None when it boots from a volume."""
    properties: dict[str, str] = {}
    """Properties of that image, or of the image that was written on the root volume."""
    local_root: bool = True
    zone: str | None = None
    """The volumes' zone, when servers must be in the same zone."""


async def understood(
    context: SagaContext, principal: Principal, token: str, request: BootRequest, flavor: Flavor, *, may_zero_disk: bool
) -> BootDevices:
    """Read everything that the request's devices name. Raises Invalid, Forbidden, and Unavailable when a service does
    not answer.
    """
    if request.trusted_certs and not request.image_ref:
        raise Invalid("Image certificate validation is not supported for servers that boot from a volume.")
    image = None if not request.image_ref else await _image(context, token, request.image_ref)
    if image is not None:
        check_properties(image)
        merged_devices = merged(image, request.block_devices, request.no_devices)
        request = msgspec.structs.replace(request, block_devices=merged_devices)
    if not request.block_devices:
        if image is None:
            raise Invalid("Invalid imageRef provided: a server without a volume is booted from an image.")
        check_image(image, flavor, may_zero_disk=may_zero_disk)
        guest_hardware.check(flavor.vcpus, flavor.ram_mib, flavor.extra_specs, image.properties)
        return BootDevices((), image, image.properties)
    check_form(request, flavor)
    project = principal.project or ""
    devices: list[BlockDevice] = []
    root, volumes = BootDevices(), list[Volume]()
    types = await _types(context, project, token, request.block_devices)
    for each in request.block_devices:
        device, volume, snapshot = each, None, None
        if each.volume_type is not None:
            device = msgspec.structs.replace(device, volume_type=types[each.volume_type])
        if each.source == "volume":
            device, volume = await _volume(context, project, token, device, request)
            volumes.append(volume)
        elif each.source == "snapshot":
            device, snapshot = await _snapshot(context, project, token, device)
        written = None
        if each.source == "image" and each.destination == "volume":
            written = image if each.uuid == request.image_ref else await _image_of_device(context, token, device)
        if each.boot_index == 0:
            if snapshot is not None and image is None and each.destination == "volume":
                properties = await _written_on(context, project, token, snapshot, flavor)
                root = BootDevices((), None, properties, local_root=False)
            else:
                root = _root(device, image, written, volume, flavor, may_zero_disk)
        devices.append(device)
    guest_hardware.check(flavor.vcpus, flavor.ram_mib, flavor.extra_specs, root.properties)
    zone = _zone(context, request, volumes)
    return msgspec.structs.replace(root, devices=tuple(devices), zone=zone)


async def _image(context: SagaContext, token: str, reference: str) -> Image:
    try:
        image = await context.images.show(reference, token)
    except NotFound as missing:
        raise Invalid(f"Image {reference} could not be found.") from missing
    await checked_properties(context, token, image.properties)
    return image


async def _image_of_device(context: SagaContext, token: str, device: BlockDevice) -> Image:
    try:
        image = await context.images.show(device.uuid or "", token)
    except NotFound as missing:
        raise Invalid(f"{WRONG}: failed to get image {device.uuid}.") from missing
    await checked_properties(context, token, image.properties)
    return image


def check_form(request: BootRequest, flavor: Flavor) -> None:
    """Check the form of the devices without calling a service. Raises Invalid; Forbidden when there are too many."""
    devices = request.block_devices
    if len(devices) > DEVICES_MAX:
        raise Forbidden(
            f"The maximum allowed number of disk devices ({DEVICES_MAX}) to attach to a single instance has been exceeded."
        )
    for each in devices:
        _check_one(request, each)
    if request.max_count > 1 and any(each.source == "volume" for each in devices):
        raise Invalid("Cannot attach one or more volumes to multiple instances")
    order = sorted(each.boot_index for each in devices if each.boot_index is not None and each.boot_index >= 0)
    if order != list(range(len(order))) or not order:
        raise Invalid(NO_ORDER)
    for named, what in (
        ([each.uuid for each in devices if each.source == "volume"], "a volume is named"),
        ([without_device_name(each.device) for each in devices if each.device], "a device name is given"),
    ):
        if len(set(named)) < len(named):
            raise Invalid(f"{WRONG}: {what} twice.")
    root = next(each for each in devices if each.boot_index == 0)
    root_name = without_device_name(root.device) or ROOT
    if any(each.device and without_device_name(each.device) == root_name for each in devices if each is not root):
        raise Invalid(f"The volume cannot be assigned the same device name as the root device {root_name}")
    _check_local(devices, flavor)


def _check_one(request: BootRequest, each: BlockDevice) -> None:
    to_volume = each.destination == "volume"
    mapped = each.source == "image" and not to_volume
    refusals = (
        (
            mapped and not (request.image_ref and each.boot_index == 0),
            f"{WRONG}: Mapping image to local is not supported.",
        ),
        (
            mapped and each.uuid != request.image_ref,
            f"{WRONG}: The disk on the host is made from imageRef, {request.image_ref}, and this device names another image.",
        ),
        (
            not to_volume and (each.disk_bus or each.device_type not in (None, "disk")),
            f"{WRONG}: The bus and the type of a disk on the host are its image's properties; a device cannot name others.",
        ),
        (
            local_disks.is_ephemeral(each) and (each.guest_format or FORMATS[0]) not in FORMATS,
            f"{WRONG}: {each.guest_format} format is not supported. An ephemeral disk is formatted as one of: {', '.join(FORMATS)}.",
        ),
        (
            each.volume_type and not to_volume,
            f"{WRONG}: Specifying a volume_type with destination_type=local is not supported.",
        ),
        (
            each.volume_type and each.source == "volume",
            f"{WRONG}: Specifying volume type to existing volume is not supported.",
        ),
        (
            each.disk_bus and each.disk_bus not in BUSES,
            f"{WRONG}: The provided disk bus {each.disk_bus} is not valid.",
        ),
        (
            to_volume and each.source == "image" and not each.size_gib,
            "Images with destination_type 'volume' need to have a non-zero size specified",
        ),
        (
            to_volume and each.source == "blank" and not each.size_gib,
            "Blank volumes (source: 'blank', dest: 'volume') need to have non-zero size",
        ),
    )
    for refused, reason in refusals:
        if refused:
            raise Invalid(reason)


def _check_local(devices: Sequence[BlockDevice], flavor: Flavor) -> None:
    swap = [each for each in devices if local_disks.is_swap(each)]
    sizes = [each.size_gib or flavor.ephemeral_gib for each in devices if local_disks.is_ephemeral(each)]
    if sum(sizes) > flavor.ephemeral_gib or 0 in sizes:  # a disk of no size would be left out
        raise Invalid(
            "Ephemeral disks requested are larger than the instance type allows. If no size is given in one block device "
            "mapping, flavor ephemeral size will be used."
        )
    if len(swap) > 1:
        raise Invalid(f"{WRONG}: More than one swap drive requested.")
    if swap and (swap[0].size_gib or 0) > flavor.swap_mib:
        raise Invalid("Swap drive requested is larger than instance type allows.")
    if sum(each.destination == "local" for each in devices) > LOCAL_MAX:
        raise Invalid(f"{WRONG}: You specified more local devices than the limit allows")


def without_device_name(device: str | None) -> str:
    return (device or "").removeprefix("/dev/")


async def _types(context: SagaContext, project: str, token: str, devices: Sequence[BlockDevice]) -> dict[str, str]:
    wanted = {each.volume_type for each in devices if each.volume_type is not None}
    if not wanted:
        return {}
    known = await volumes_of(context).types(project, token)
    for each in sorted(wanted - known.keys()):
        raise Invalid(f"Volume type {each} could not be found.")
    return known


async def _volume(
    context: SagaContext, project: str, token: str, device: BlockDevice, request: BootRequest
) -> tuple[BlockDevice, Volume]:
    try:
        volume = await volumes_of(context).show(device.uuid or "", project, token)
    except NotFound as missing:
        raise Invalid(f"{WRONG}: failed to get volume {device.uuid}.") from missing
    if volume.multiattach and not request.multiattach_allowed:
        raise Invalid("Multiattach volumes are only supported starting with compute API version 2.60.")
    if not volume.may_be_attached:
        raise Invalid(
            f"Invalid volume: Volume {volume.id} status must be available or downloading to reserve, but the current status "
            f"is {volume.status}."
        )
    understood = msgspec.structs.replace(
        device,
        volume=volume.id,
        size_gib=volume.size_gib,
        volume_type=volume.volume_type,
        multiattach=volume.multiattach,
    )
    return understood, volume


async def _snapshot(
    context: SagaContext, project: str, token: str, device: BlockDevice
) -> tuple[BlockDevice, VolumeSnapshot]:
    try:
        snapshot = await volumes_of(context).snapshot(device.uuid or "", project, token)
    except NotFound as missing:
        raise Invalid(f"{WRONG}: failed to get snapshot {device.uuid}.") from missing
    return msgspec.structs.replace(device, size_gib=device.size_gib or snapshot.size_gib), snapshot


async def _written_on(
    context: SagaContext, project: str, token: str, snapshot: VolumeSnapshot, flavor: Flavor
) -> dict[str, str]:
    """The properties of the image from which the volume of a snapshot was made."""
    try:
        volume = await volumes_of(context).show(snapshot.volume, project, token)
    except NotFound as missing:
        raise Invalid(f"{WRONG}: failed to get snapshot {snapshot.id}.") from missing
    _check_ram(volume.image_metadata, flavor)
    return _properties(volume.image_metadata)


def _root(
    device: BlockDevice,
    image: Image | None,
    written: Image | None,
    volume: Volume | None,
    flavor: Flavor,
    may_zero_disk: bool,
) -> BootDevices:
    """The device that the server boots from; checks that the flavor is large enough."""
    if device.destination == "local":
        if image is None:
            raise Invalid(NO_ORDER)
        check_image(image, flavor, may_zero_disk=may_zero_disk)
        return BootDevices((), image, image.properties)
    if written is not None:
        _check_written(written, device, flavor)
        return BootDevices((), image, written.properties, local_root=False)
    if image is not None:
        # # The server shows the image that it names, and boots from the volume: whether the volume is bootable is not
        # checked.
        _check_named(image, device, flavor)
        return BootDevices((), image, image.properties, local_root=False)
    if volume is not None:
        if not volume.bootable:
            raise Invalid(f"Block Device {volume.id} is not bootable.")
        _check_ram(volume.image_metadata, flavor)
        return BootDevices((), image, _properties(volume.image_metadata), local_root=False)
    return BootDevices((), image, {}, local_root=False)


def _check_named(image: Image, device: BlockDevice, flavor: Flavor) -> None:
    """An existing volume is taken to be large enough, as in Nova."""
    if device.source == "volume":
        device = msgspec.structs.replace(device, size_gib=max(device.size_gib or 0, image.min_disk_gib))
    _check_written(image, device, flavor)


def _check_written(image: Image, device: BlockDevice, flavor: Flavor) -> None:
    if image.status != "active":
        raise Invalid(f"Image {image.id} is not active.")
    if image.min_ram_mib > flavor.ram_mib:
        raise Invalid("Flavor's memory is too small for requested image.")
    if image.min_disk_gib > (device.size_gib or 0):
        raise Invalid(
            "Volume is smaller than the minimum size specified in image metadata. Volume size is "
            f"{(device.size_gib or 0) * BYTES_PER_GIB} bytes, minimum size is {image.min_disk_gib * BYTES_PER_GIB} bytes."
        )


def _check_ram(metadata: dict[str, str], flavor: Flavor) -> None:
    input = metadata.get("min_ram", "0")
    if input.isdecimal() and int(input) > flavor.ram_mib:
        raise Invalid("Flavor's memory is too small for requested image.")


PLAIN = frozenset(
    {"image_id", "image_name", "checksum", "container_format", "disk_format", "min_disk", "min_ram", "size"}
)
"""What the volume service stores about an image besides its properties."""


def _properties(metadata: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in metadata.items() if key not in PLAIN}


def _zone(context: SagaContext, request: BootRequest, volumes: Sequence[Volume]) -> str | None:
    """The volumes' zone, when servers and volumes must be in one zone. Raises Invalid when they are in different ones."""
    if context.settings.cross_az_attach or not volumes:
        return None
    zones = sorted({each.availability_zone or "" for each in volumes})
    mismatch = "The availability zone between the server and its attached volumes do not match: "
    if len(zones) > 1:
        raise Invalid(f"{mismatch}Volumes are in different availability zones: {','.join(zones)}.")
    input = (request.availability_zone or "").partition(":")[0]
    if input and input != zones[0]:
        raise Invalid(f"{mismatch}Server and volumes are not in the same availability zone. Server is in: {input}. "
                       f"Volumes are in: {zones[0]}.")  # fmt: skip
    return None if zones[0] == context.settings.default_availability_zone else zones[0]
