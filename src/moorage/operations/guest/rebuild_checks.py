"""Checks that can refuse a rebuild before anything is destroyed, and the record that the server will have."""

from collections.abc import Mapping

import msgspec

from moorage.model import guest_hardware, guest_requests
from moorage.model.errors import Invalid, NotFound
from moorage.model.guest import InjectedFile
from moorage.model.ids import ImageId
from moorage.model.image import Image
from moorage.model.principal import Principal
from moorage.model.resources import needs_of
from moorage.model.server import Server
from moorage.model.volume import Volume
from moorage.model.world import Ask
from moorage.operations.context import SagaContext
from moorage.operations.disk_config import disk_config_of
from moorage.operations.image_checks import check_image, check_properties, rebased
from moorage.operations.named_images import checked_properties, kernel_of
from moorage.operations.steps import reimage
from moorage.store.region import keypairs


class RebuildRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The action's body in any version; UNSET: the field stays as it is."""

    image: str
    name: str | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType | None = msgspec.UNSET
    metadata: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    key_name: str | msgspec.UnsetType | None = msgspec.UNSET
    user_data: str | msgspec.UnsetType | None = msgspec.UNSET
    trusted_certs: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    hostname: str | msgspec.UnsetType = msgspec.UNSET
    access_ip_v4: str | msgspec.UnsetType | None = msgspec.UNSET
    access_ip_v6: str | msgspec.UnsetType | None = msgspec.UNSET
    disk_config: str | None = None
    preserve_ephemeral: bool = False
    files: tuple[InjectedFile, ...] = ()
    admin_password: str = ""
    may_zero_disk: bool = False
    reimage: bool = False
    """Whether the root volume of a server that boots from one is written again."""


async def image_of_volume(
    context: SagaContext, token: str, server: Server, request: RebuildRequest, volumes: Mapping[str, Volume]
) -> Image:
    """Return the image if it may be written over the root volume, or if the volume was made from it.

    Raises Invalid for another image, and for certificate validation, which does not exist for volumes.
    """
    if not isinstance(request.trusted_certs, msgspec.UnsetType) and request.trusted_certs:
        raise Invalid("Image certificate validation is not supported for volume-backed servers.")
    volume = volumes[reimage.root_of(server).volume or ""]
    other = volume.image_metadata.get("image_id") != request.image
    if other and not request.reimage:
        raise Invalid(
            f"Image {request.image} is unacceptable: Unable to rebuild with a different image for a volume-backed server."
        )
    image = await _shown(context, token, server, request)
    if request.reimage:
        reimage.check_written(image, volume, server.flavor.ram_mib)
    if other:
        await _check_host(context, server, image)
    return image


async def _shown(context: SagaContext, token: str, server: Server, request: RebuildRequest) -> Image:
    try:
        image = await context.images.show(request.image, token)
    except NotFound as missing:
        raise Invalid("Cannot find image for rebuild") from missing
    check_properties(image)
    await checked_properties(context, token, image.properties)
    guest_hardware.check(server.flavor.vcpus, server.flavor.ram_mib, server.flavor.extra_specs, image.properties)
    return image


async def image_of(context: SagaContext, token: str, server: Server, request: RebuildRequest) -> Image:
    """Return the image if server and host may use it. Raises Invalid if not."""
    image = await _shown(context, token, server, request)
    check_image(image, server.flavor, may_zero_disk=request.may_zero_disk)
    if image.id != server.image:
        await _check_host(context, server, image)
    return image


async def _check_host(context: SagaContext, server: Server, image: Image) -> None:
    """Check that the server's own host can run another image: its traits and its hypervisor.

    Amounts are not checked: they are the flavor's, which stays.
    """
    extra_specs = guest_requests.settled(server.flavor.extra_specs)  # the guest exists, and its flavor stays
    needs = needs_of(vcpus=0, memory_mb=0, disk_gb=0, extra_specs=extra_specs, image_properties=image.properties)
    by_image = guest_requests.resources_of(server.flavor.vcpus, extra_specs, image.properties)
    ask = Ask(
        resources={name: amount for name, amount in by_image.items() if name != guest_requests.VCPU},
        required=needs.required,
        forbidden=needs.forbidden,
        host=server.host,
        project=server.project,
        extra_specs=extra_specs,
        image_properties=dict(image.properties),
        staying=True,
    )
    verdict = context.placement.rank(ask)
    if not verdict.best:
        verdict = await context.placement.rank_fresh(ask)
    if not verdict.best:
        reason = next((miss.why for miss in verdict.ledger.misses if miss.host == server.host), "")
        raise Invalid(
            f"Image {image.id} is not acceptable for instance {server.id}: its host cannot run it. Rebuild from an image that "
            "asks for less, or create a new server.",
            private=reason or verdict.fault(),
        )


async def rebuilt_record(
    context: SagaContext, principal: Principal, server: Server, request: RebuildRequest, image: Image
) -> tuple[Server, tuple[str, ...]]:
    """Return the record as it will be, and the fields that change. Raises Invalid for an unknown key."""
    kernel, ramdisk = kernel_of(image.properties)
    new: dict[str, object] = {
        "image": ImageId(image.id),
        "image_name": image.name,
        "image_properties": image.properties,
        "base_image": rebased(server.base_image, image),
        "disk_config": disk_config_of(request.disk_config, image),
        "kernel_id": kernel,
        "ramdisk_id": ramdisk,
        "kernel_checked": True,
    }
    if server.volume_backed:  # clients recognize it by the missing image
        del new["image"], new["image_name"]
    plain = (
        "name",
        "description",
        "metadata",
        "user_data",
        "trusted_certs",
        "hostname",
        "access_ip_v4",
        "access_ip_v6",
    )
    for name in plain:
        if (value := getattr(request, name)) is not msgspec.UNSET:
            new[name] = value
    if request.key_name is not msgspec.UNSET:
        new["key_name"], new["public_key"] = request.key_name, None
        if request.key_name is not None:
            wanted = str(request.key_name)
            key = await context.region.read(lambda tx: keypairs.get(tx, principal.user, wanted))
            if key is None:
                raise Invalid("Invalid key_name provided.")
            new["public_key"] = key.public_key
    return msgspec.structs.replace(server, **new), tuple(new)
