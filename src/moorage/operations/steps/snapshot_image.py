"""The image into which a server's disk is copied: Nova's properties, and our own key.

It is created with the user's token while the request is answered, so that the image service checks rights and quota,
and it belongs to the user; afterwards it is handled with our own rights (docs/decisions/0015). `MADE_FOR` marks images
that were made here, and their purpose: with it `stray_images` finds those that no operation works on any more.

The image of a move to another cell is created by the move itself, with our own rights, and belongs to no user
(`operations/resize/transfer_image.py`).
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from moorage.model.errors import Forbidden, Invalid, NotFound, OverQuota, Problem, TooLarge
from moorage.model.guest import Quiesce
from moorage.model.ids import ImageId, new_uuid
from moorage.model.principal import Principal
from moorage.model.server import BaseImage, Server
from moorage.operations.context import SagaContext

log = logging.getLogger(__name__)

Purpose: TypeAlias = Literal["snapshot", "backup", "shelve", "resize"]
MADE_FOR = "moorage_made_for"
"""Our key: the property that names the purpose."""
OF_SERVER = "instance_uuid"
"""Nova's property that names the server."""
PURPOSES: tuple[Purpose, ...] = ("snapshot", "backup", "shelve", "resize")
ONLY_FOR_US: tuple[Purpose, ...] = ("shelve", "resize")
"""Images of these purposes are useless to users even when they are complete; a complete snapshot belongs to its owner.
"""
OURS_PREFIX = "moorage_"
VALUE_CHARACTERS_MAX = 255
NAME_CHARACTERS_MAX = 255
BMP_MAX = 0xFFFF
NEVER_INHERITED = frozenset(
    {
        "cinder_encryption_key_id",
        "cinder_encryption_key_deletion_policy",
        "img_signature",
        "img_signature_hash_method",
        "img_signature_key_type",
        "img_signature_certificate_uuid",
        "block_device_mapping",
        "mappings",
        "img_block_device_mapping",
        "img_mappings",
    }
)
NEVER_INHERITED_PREFIXES = ("os_glance", OURS_PREFIX)
TRUE = frozenset({"true", "1", "yes", "on", "t", "y"})


def name_of(server: Server, what: str) -> str:
    """The name of an image that Moorage names itself. The image service takes characters of the Basic Multilingual Plane
    only; servers may have others in their names, which are replaced.
    """
    kept = "".join(each if ord(each) <= BMP_MAX else "\N{REPLACEMENT CHARACTER}" for each in server.name)
    return f"{kept[: NAME_CHARACTERS_MAX - len(what) - 1]}-{what}"


async def make(
    context: SagaContext,
    principal: Principal,
    token: str,
    server: Server,
    name: str,
    purpose: Purpose,
    also: Mapping[str, str],
) -> ImageId:
    """Create a queued image of the caller's project. Raises OverQuota, and what else the image service refuses."""
    image = ImageId(new_uuid())
    record = record_of(context, principal, server, name, purpose, also) | {"id": image}
    try:
        await context.images.make_as(token, record)
        if record["visibility"] == "shared":
            await context.images.share_as(token, image, server.project)
    except TooLarge as full:
        raise OverQuota(full.public, private=full.private, code=full.code) from full
    except Problem as refused:
        if not isinstance(refused, Forbidden | Invalid):  # it may exist though no answer came
            await drop(context, image)
        raise
    return image


async def make_for_move(context: SagaContext, server: Server, image: ImageId) -> None:
    """Create a queued image of the service's own project, or find it. Raises NotFound when it was deleted."""
    record = {
        "id": image,
        "name": name_of(server, "resize-temp"),
        "visibility": "private",
        "image_type": "snapshot",
        OF_SERVER: server.id,
        MADE_FOR: "resize",
    }
    await context.images.make(record)


async def drop(context: SagaContext, image: ImageId) -> None:
    """Delete an image that is no longer needed; if the image service does not answer, a later round does it."""
    try:
        await asyncio.shield(context.images.delete(image))
    except Problem as problem:
        log.info("image %s is no longer needed, and could not be deleted yet: %s", image, problem)


def record_of(
    context: SagaContext, principal: Principal, server: Server, name: str, purpose: Purpose, also: Mapping[str, str]
) -> dict[str, Any]:
    """The image as it is created; the caller's own properties replace ours, except our key."""
    base = server.base_image or BaseImage()
    barred = NEVER_INHERITED | set(context.settings.non_inheritable_image_properties)
    inherited = {
        key: value
        for key, value in server.image_properties.items()
        if key not in barred and not key.startswith(NEVER_INHERITED_PREFIXES)
    }
    properties: dict[str, Any] = {
        **inherited,
        "base_image_ref": inherited.get("base_image_ref") or server.image or "",
        "owner_user_name": base.owner_user_name,
        "owner_project_name": base.owner_project_name,
        "boot_roles": base.boot_roles,
        OF_SERVER: server.id,
        "user_id": principal.user,
        "image_type": "backup" if purpose == "backup" else "snapshot",
        "visibility": "private",
    }
    if principal.project != server.project:  # an administrator's image of another project's server
        properties |= {"visibility": "shared", "instance_owner": server.project}
    properties |= {key: value for key, value in also.items() if key != "id"}
    cut = {key: value[:VALUE_CHARACTERS_MAX] if isinstance(value, str) else value for key, value in properties.items()}
    record = {
        "min_disk": max(base.min_disk_gib, server.flavor.disk_gib),
        "min_ram": base.min_ram_mib,
        **cut,
        "name": name[:NAME_CHARACTERS_MAX],
        MADE_FOR: purpose,
    }
    if purpose == "backup":
        record |= {"disk_format": base.disk_format, "container_format": base.container_format}
    return record


def quiesce_of(server: Server) -> Quiesce:
    """The wish of the server's image: with a guest agent quiescing is tried, and some images forbid copies without it."""
    properties = server.image_properties
    if properties.get("os_require_quiesce", "").lower() in TRUE:
        return Quiesce.MUST
    return Quiesce.TRY if has_agent(server) else Quiesce.NO


def has_agent(server: Server) -> bool:
    """Whether the server's image says that the guest has an agent."""
    return server.image_properties.get("hw_qemu_guest_agent", "").lower() in TRUE


async def is_usable(context: SagaContext, image: ImageId) -> bool:
    """Whether a server could be made from it. Raises Unavailable when the image service does not answer."""
    try:
        return (await context.images.show(image)).status == "active"
    except NotFound:
        return False
