"""Checks whether a server of a flavor may use an image: at boot, and at a rebuild from another image."""

from typing import Protocol

import msgspec

from moorage.model.errors import Forbidden, Invalid
from moorage.model.image import Image
from moorage.model.principal import Principal
from moorage.model.server import BaseImage

BYTES_PER_GIB = 1024**3
DRIVE_WISHES = ("optional", "mandatory")


class Size(Protocol):
    """The part of a flavor that the checks need."""

    @property
    def ram_mib(self) -> int: ...
    @property
    def disk_gib(self) -> int: ...


def check_properties(image: Image) -> None:
    """Raises Invalid for an image from which no guest can be made: its data are encrypted, or a property has an unknown
    value.
    """
    if image.properties.get("cinder_encryption_key_id"):
        raise Invalid(
            f"Image {image.id} is unacceptable: it was made of an encrypted volume, and cannot be booted from."
        )
    drive = image.properties.get("img_config_drive", DRIVE_WISHES[0])
    if drive not in DRIVE_WISHES:
        raise Invalid(f"Image's config drive option '{drive}' is invalid")


def check_image(image: Image, flavor: Size, *, may_zero_disk: bool) -> None:
    """Raises Invalid when the image is not active or the flavor too small, and Forbidden for a flavor without disk;
    with Nova's messages.
    """
    if image.status != "active":
        raise Invalid(f"Image {image.id} is not active.")
    if image.min_ram_mib > flavor.ram_mib:
        raise Invalid("Flavor's memory is too small for requested image.")
    _check_disk(image, flavor, may_zero_disk)


def _check_disk(image: Image, flavor: Size, may_zero_disk: bool) -> None:
    if flavor.disk_gib == 0:
        if not may_zero_disk:
            raise Forbidden("Only volume-backed servers are allowed for flavors with zero disk.")
        return
    largest = flavor.disk_gib * BYTES_PER_GIB
    size = image.size_bytes or 0
    if size > largest:
        raise Invalid(
            f"Flavor's disk is too small for requested image. Flavor disk is {largest} bytes, image is {size} bytes."
        )
    if image.min_disk_gib > flavor.disk_gib:
        raise Invalid(
            f"Flavor's disk is smaller than the minimum size specified in image metadata. Flavor disk is {largest} bytes, "
            f"minimum size is {image.min_disk_gib * BYTES_PER_GIB} bytes."
        )


def base_of(image: Image, principal: Principal) -> BaseImage:
    """What a server's record keeps of its image: for images that are made of the server, and who booted it, as in Nova."""
    return BaseImage(
        image.min_disk_gib,
        image.min_ram_mib,
        image.disk_format,
        image.container_format,
        principal.user_name,
        principal.project_name,
        ",".join(principal.roles),
    )


def rebased(before: BaseImage | None, image: Image) -> BaseImage:
    """The same after a rebuild from another image: who booted the server stays."""
    return msgspec.structs.replace(
        before or BaseImage(),
        min_disk_gib=image.min_disk_gib,
        min_ram_mib=image.min_ram_mib,
        disk_format=image.disk_format,
        container_format=image.container_format,
    )
