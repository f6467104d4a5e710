"""Volumes of a server at the volume service: reserved, exported to a host, released.

`POST /attachments` has no idempotency key. So a step that is unsure lists the attachments of the server and the volume,
and uses an existing one. In the end one volume has one attachment for one server: late or double ones are removed with
it.

Connections are secrets and are in no journal: a step returns ids, and a later step reads the connection again.
"""

import logging
from collections.abc import Awaitable, Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from moorage.bus.agent_calls import HostAddress
from moorage.clients.volume import VolumeClient
from moorage.model import local_disks
from moorage.model.errors import Conflict, HostFailed, Invalid, NotBuilt, NotFound, Unavailable
from moorage.model.guest import VolumeDisk
from moorage.model.ids import ServerId
from moorage.model.principal import Principal
from moorage.model.server import BlockDevice, Server
from moorage.model.volume import ATTACHED, IN_USE, RESERVED, Attachment, Volume
from moorage.operations.context import SagaContext
from moorage.operations.steps import unfinished_images
from moorage.operations.steps.hosts import COMMAND_ENDS, NO_GUEST, SILENT, command_context
from moorage.operations.steps.servers import AboutServer, is_deleting
from moorage.saga import Run

logger = logging.getLogger(__name__)

VOLUME_PATIENCE_S = 300.0
LETTERS = "abcdefghijklmnopqrstuvwxyz"
GONE = ""
"""In place of an attachment: the volume no longer exists, so nothing is exported, and the guest goes without it."""
DEVICES_MAX = 26 * 27
"""Names from /dev/vda to /dev/vdzz."""


def volumes_of(context: SagaContext) -> VolumeClient:
    """The volume service. Raises NotBuilt in a cloud without one."""
    if context.volumes is None:
        raise NotBuilt("This cloud has no volume service.")
    return context.volumes


# ----------------------------------------------------------------------------------------------- the record


def with_device(server: Server, device: BlockDevice, now: int) -> Server:
    """The record with one more device, or with this one replaced."""
    others = tuple(each for each in server.block_devices if each.bdm != device.bdm)
    place = next((at for at, each in enumerate(server.block_devices) if each.bdm == device.bdm), len(others))
    devices = (*others[:place], device, *others[place:])
    return msgspec.structs.replace(server, block_devices=devices, updated_at=now)


def without_device(server: Server, bdm: str, now: int) -> Server:
    left = tuple(each for each in server.block_devices if each.bdm != bdm)
    return msgspec.structs.replace(server, block_devices=left, updated_at=now)


def device_name(place: int, prefix: str = "/dev/vd") -> str:
    """The device name at this place: `/dev/vda`, … `/dev/vdz`, `/dev/vdaa`, …"""
    many = len(LETTERS)
    return prefix + (LETTERS[place] if place < many else LETTERS[place // many - 1] + LETTERS[place % many])


def next_device(server: Server, taken: Iterable[str | None] = ()) -> str:
    """The first name after the root's that neither a device of the server nor a local disk of its flavor has, which gets the first free
    names.

    Raises Conflict when all names are taken.
    """
    prefix = server.root_device.rstrip("0123456789")[:-1] or "/dev/vd"
    used = {server.root_device, *(each.device for each in server.block_devices), *taken}
    free = (name for name in (device_name(place, prefix) for place in range(1, DEVICES_MAX)) if name not in used)
    for name in islice(free, sum(local_disks.unlisted(server.flavor, server.block_devices)), None):
        return name
    raise Conflict("The server has a disk device for every possible name.", code="too_many_disk_devices")


# ---------------------------------------------------------------------------------- at the volume service


async def held(context: SagaContext, server: ServerId, volume: str, *, unsure: bool) -> Attachment:
    """Reserve the volume for the server; a repeat finds the same attachment. Raises Invalid when another server has it,
    NotFound.
    """
    client = volumes_of(context)
    if unsure:
        for each in await client.attachments_of(server, volume):
            return each
    return await client.reserve(volume, server)


async def exported(
    context: SagaContext, to: HostAddress, server: ServerId, device: BlockDevice, attachment: str | None, *, again: bool
) -> str:
    """Export the volume to a host and mark it as in use; return the attachment.

    `again`: it may be exported already, to this host or to an earlier one. An attachment is exported once, and not
    while another is. So a new one is reserved, which a server may do while it uses the volume; then the others are
    removed; then it is exported. The server keeps the volume all the time, and two hosts never have it. An attachment
    that is not complete was never given to a guest.

    Raises VolumeUnreachable when the back end cannot reach the host.
    """
    assert device.volume is not None
    client = volumes_of(context)
    connector = await connector_of(context, to, server, device)
    if again:
        attachments = await client.attachments_of(server, device.volume)
        hosts: dict[str, str] = {}
        if any(each.status == ATTACHED for each in attachments):
            hosts = (await client.show(device.volume)).hosts
        kept = next(
            (each.id for each in attachments if each.status == ATTACHED and hosts.get(each.id) == to.host), None
        )
        attachment = kept or await _fresh(client, server, device.volume, attachments)
        for each in attachments:
            if each.id != attachment:
                await client.drop_attachment(each.id)
        if kept is not None:
            return kept
    if attachment is None:
        attachment = (await client.reserve(device.volume, server)).id
    await client.connect(attachment, device.volume, connector, to.host)
    await client.complete(attachment)
    return attachment


async def exported_if_there(
    context: SagaContext, to: HostAddress, server: ServerId, device: BlockDevice, *, again: bool
) -> str:
    """Export as `exported` does, where there is no way but forward: of a volume that no longer exists return `GONE`.

    Only the answer that this very volume does not exist counts. Raises Unavailable when something else was not found, for
    example an attachment that somebody removed meanwhile: the next try makes another one.
    """
    assert device.volume is not None
    try:
        return await exported(context, to, server, device, device.attachment, again=again)
    except NotFound as missing:
        if not await is_gone(context, device.volume):
            raise Unavailable(missing.public, private=missing.private) from missing
    logger.warning("volume %s of server %s no longer exists, and is left out", device.volume, server)
    return GONE


async def is_gone(context: SagaContext, volume: str) -> bool:
    """Whether the volume service says that this volume does not exist."""
    try:
        await volumes_of(context).show(volume)
    except NotFound:
        return True
    return False


async def held_only(context: SagaContext, server: ServerId, volume: str) -> str:
    """Reserve a volume for the server without a host: a new attachment is made, then the others are removed.

    So no other server gets the volume meanwhile. A repeat returns the same attachment.
    """
    client = volumes_of(context)
    attachments = await client.attachments_of(server, volume)
    kept = await _fresh(client, server, volume, attachments)
    for each in attachments:
        if each.id != kept:
            await client.drop_attachment(each.id)
    return kept


async def all_held_only(context: SagaContext, server: Server) -> dict[str, str]:
    """Reserve all volumes of a server for it, without a host: mapping (`bdm`) → attachment. A volume that no longer
    exists is left out.
    """
    attachments: dict[str, str] = {}
    for each in server.volumes:
        assert each.volume is not None
        try:
            attachments[each.bdm] = await held_only(context, server.id, each.volume)
        except NotFound:
            logger.warning("volume %s of server %s no longer exists at the volume service", each.volume, server.id)
    return attachments


async def _fresh(client: VolumeClient, server: ServerId, volume: str, attachments: Sequence[Attachment]) -> str:
    """A reservation without an export: an existing one, or a new one."""
    reserved = next((each.id for each in attachments if each.status == RESERVED), None)
    if reserved is not None:
        return reserved
    for each in attachments:
        if each.status != ATTACHED:  # the service makes no reservation for a volume that is being attached
            await client.complete(each.id)
    return (await client.reserve(volume, server)).id


async def connector_of(context: SagaContext, to: HostAddress, server: ServerId, device: BlockDevice) -> dict[str, Any]:
    """The description of the host for the volume service. Raises HostFailed for a host whose agent or driver does not
    support volumes.
    """
    try:
        connector = await context.hosts.volume_connector(to, server)
    except HostFailed as failed:
        if failed.code != "not_supported":
            raise
        raise HostFailed("the host cannot have volumes", private=failed.private, code=failed.code) from failed
    return {**connector, **({"mountpoint": device.device} if device.device else {})}


async def disk_of(context: SagaContext, device: BlockDevice, attachment: str) -> VolumeDisk:
    """What the host is sent of a volume: with its connection, which is read from the volume service.

    That other servers may have the volume too is said where Nova says it (`multiattach` beside the connection's data).
    """
    assert device.volume is not None
    connection = (await volumes_of(context).connected(attachment)).connection
    return VolumeDisk(
        volume=device.volume,
        connection={**connection, "multiattach": True} if device.multiattach else connection,
        boot_index=device.boot_index,
        device=device.device or "",
        size_gib=device.size_gib or 0,
        tag=device.tag,
        attachment=attachment,
        bus=device.disk_bus,
        device_type=device.device_type,
        bdm=device.bdm,
    )


async def drop_attachments(context: SagaContext, server: ServerId, volume: str) -> None:
    """Remove all attachments of a volume for a server; none counts as success."""
    client = volumes_of(context)
    for each in await client.attachments_of(server, volume):
        await client.drop_attachment(each.id)


async def or_left_to_delete(context: SagaContext, server: ServerId, call: Awaitable[None]) -> None:
    """Undo something at the volume service; if it does not answer, and a delete waits for the server, the delete does
    it later.

    So a user who deletes a server does not wait twice for the volume service.
    """
    try:
        await call
    except Unavailable:
        if not await is_deleting(context, server):
            raise


async def release_all(
    context: SagaContext, server: ServerId, devices: Sequence[BlockDevice], *, owed: bool = False
) -> None:
    """Release every volume of a server that is being deleted; delete those that are to go with it, if the volume
    service allows it. `devices`: its volumes by its record. `owed`: a host owes it something, so it may have attachments
    that its record does not list.

    Raises Unavailable while the volume service does not answer.
    """
    if not (devices or owed) or context.volumes is None:
        return
    client = volumes_of(context)
    for each in await client.attachments_of(server):
        await client.drop_attachment(each.id)
    to_go = [each.volume for each in devices if each.delete_on_termination and each.volume is not None]
    stay = [each for each in to_go if not await delete_or_leave(context, each)]
    if stay and await unfinished_images.went(context, server):
        for volume in stay:
            await delete_or_leave(context, volume)


async def in_use(context: SagaContext, principal: Principal, token: str, server: Server) -> dict[str, Volume]:
    """The server's volumes, by id, before its guest is made again. Raises Invalid when one is not in use: it could not
    be connected again.
    """
    volumes: dict[str, Volume] = {}
    for device in server.block_devices:
        if device.volume is not None:
            volume = await volumes_of(context).show(device.volume, principal.project or "", token)
            if volume.status != IN_USE:
                raise Invalid(
                    f"Invalid volume: volume '{volume.id}' status must be 'in-use'. Currently in '{volume.status}' status"
                )
            volumes[volume.id] = volume
    return volumes


async def delete_or_leave(context: SagaContext, volume: str) -> bool:
    """Delete a volume that was to go with its server. Returns False when the service refuses, because others use it;
    then it stays.
    """
    try:
        await volumes_of(context).delete(volume)
    except (Invalid, Conflict) as refused:
        logger.warning("volume %s was to go with its server, and stays: %s", volume, refused.public)
        return False
    return True


# ------------------------------------------------------------------------------------------------ at the host


async def unplug_volume_or_leave(run: Run[AboutServer, SagaContext], step: str, server: Server, volume: str) -> bool:
    """Unplug a volume from the guest; no guest counts as success. Returns False when the host is silent."""
    if server.cell is None or server.host is None:
        return True
    to = HostAddress(server.cell, server.host)
    try:
        await run.context.hosts.detach_volume(to, command_context(run, step), server.id, volume)
    except COMMAND_ENDS as failed:
        if failed.code == NO_GUEST:
            return True
        if failed.code not in SILENT:
            raise
        return False
    return True
