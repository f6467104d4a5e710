"""`/servers/{id}/os-volume_attachments`: the volumes of a server; listed from its record, attached, changed and detached."""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_bodies import Tag, Uuid
from moorage.api.compute.server_lookup import in_state, not_locked, service_of, the_server
from moorage.api.routes import NUMBER, Param, Params, Route
from moorage.api.schema import Body, NovaBool
from moorage.api.timestamps import now_us
from moorage.api.version_changes import (
    v2_020_volumes_servers,
    v2_060_volumes_servers,
    v2_085_volumes_servers,
    v2_089_volumes_servers,
    v2_101_volumes_servers,
)
from moorage.model.errors import Conflict, Invalid, NotFound
from moorage.model.json_types import JsonObject
from moorage.model.server import BlockDevice, Server, VmState
from moorage.operations.records import servers as writes
from moorage.operations.steps.servers import StateCheck
from moorage.operations.volumes.attach_volume import VolumeWish

RULE = "os_compute_api:os-volumes-attachments:"
PATH = "/servers/{id}/os-volume_attachments"
ONE = PATH + "/{volume}"
PAGED = Params({"limit": Param(form=NUMBER), "offset": Param(form=NUMBER)}, strict=(2, 75))
SHELVED = (VmState.SHELVED, VmState.SHELVED_OFFLOADED)
STATES = (
    VmState.ACTIVE,
    VmState.PAUSED,
    VmState.STOPPED,
    VmState.RESIZED,
    VmState.SOFT_DELETED,
    *SHELVED,
)


SWAPPED = (VmState.ACTIVE, VmState.PAUSED, VmState.RESIZED)
"""States in which a guest can go on with another volume."""


DevicePath: TypeAlias = Annotated[str, Meta(max_length=255, pattern="^/dev/x?[a-z]?d?[a-z]+[0-9]*$")]


class WantedVolume(Body):
    volume_id: Uuid = msgspec.field(name="volumeId")
    device: DevicePath | UnsetType | None = UNSET
    tag: Tag | UnsetType = UNSET
    delete_on_termination: NovaBool | UnsetType = UNSET


class AttachVolumeBody(Body):
    attachment: WantedVolume = msgspec.field(name="volumeAttachment")


class ChangedVolume(Body):
    volume_id: Uuid = msgspec.field(name="volumeId")
    device: DevicePath | UnsetType | None = UNSET
    tag: Tag | UnsetType = UNSET
    delete_on_termination: NovaBool | UnsetType = UNSET
    server_id: Uuid | UnsetType = msgspec.field(name="serverId", default=UNSET)
    id: Uuid | UnsetType = UNSET


class UpdateAttachmentBody(Body):
    attachment: ChangedVolume = msgspec.field(name="volumeAttachment")


# ------------------------------------------------------------------------------------------------------- reading


async def index(call: AnyCall) -> Response:
    """As Nova pages them: devices are counted before those that are no volumes are left out."""
    server = await the_server(call, RULE + "index")
    limit, _ = call.page()
    first = call.number("offset")
    rows = server.block_devices[first : first + limit] if call.first("limit") != "0" else server.block_devices[first:]
    return Response(200, {"volumeAttachments": [_shown(server, each) for each in rows if _visible(call, each)]})


async def show(call: AnyCall) -> Response:
    server = await the_server(call, RULE + "show")
    return Response(200, {"volumeAttachment": _shown(server, _device(call, server))})


def _visible(call: AnyCall, device: BlockDevice) -> bool:
    """From 2.89 on a device that the volume service does not know yet is not shown: it has no id to show."""
    return device.volume is not None and (call.version < v2_089_volumes_servers.IDS or device.attachment is not None)


def _device(call: AnyCall, server: Server) -> BlockDevice:
    wanted = call.path["volume"]
    for each in server.volumes:
        if each.volume == wanted and _visible(call, each):
            return each
    raise NotFound(f"Instance {server.id} is not attached to volume {wanted}")


def _shown(server: Server, device: BlockDevice) -> JsonObject:
    row: JsonObject = {
        "id": device.volume,
        "volumeId": device.volume,
        "serverId": server.id,
        "tag": device.tag,
        "delete_on_termination": device.delete_on_termination,
        "attachment_id": device.attachment,
        "bdm_uuid": device.bdm,
    }
    if device.device:
        row["device"] = device.device
    return row


# ------------------------------------------------------------------------------------------------------- writing


async def attach(call: Call[AttachVolumeBody]) -> Response:
    """Accepted when the volume is held for the server; until 2.101 the answer shows the device."""
    server = await the_server(call, RULE + "create")
    attachment = call.body.attachment
    check = _check(call, "attach_volume")
    check(server)
    wish = VolumeWish(
        volume=attachment.volume_id,
        device=None if attachment.device is UNSET else attachment.device,
        tag=None if attachment.tag is UNSET else attachment.tag,
        delete_on_termination=False
        if attachment.delete_on_termination is UNSET
        else bool(attachment.delete_on_termination),
        multiattach_allowed=call.version >= v2_060_volumes_servers.MULTIATTACH,
    )
    device = await service_of(call).attach_volume(
        call.principal, call.token, server, wish, check=check, request_id=call.request_id
    )
    if call.version >= v2_101_volumes_servers.NO_BODY:
        return Response(202)
    shown = _shown(server, device)
    return Response(
        200, {"volumeAttachment": {name: shown[name] for name in shown if name not in ("attachment_id", "bdm_uuid")}}
    )


async def update(call: Call[UpdateAttachmentBody]) -> Response:
    """From 2.85 on: whether the volume goes with its server.  Another volume in its place is asked for by Cinder alone (a swap).

    Before 2.85 every such request is a swap; from then on both may be asked for at once.
    """
    attachment, id = call.body.attachment, call.path["volume"]
    swap = call.version < v2_085_volumes_servers.CHANGED or attachment.volume_id != id
    server = await the_server(call, None if swap else RULE + "update")
    if swap:
        call.require(RULE + "swap", {})
    if call.version >= v2_085_volumes_servers.CHANGED:
        await _change(call, server, id)
    if swap:
        await service_of(call).swap_volume(
            call.principal,
            call.token,
            server,
            id,
            attachment.volume_id,
            check=_swap_check(call),
            request_id=call.request_id,
        )
    return Response(202)


async def _change(call: Call[UpdateAttachmentBody], server: Server, id: str) -> None:
    """Whether it goes with its server; all else that may be named must be as it is."""
    attachment = call.body.attachment
    device = next((each for each in server.volumes if each.volume == id), None)
    if device is None:
        raise NotFound(f"Instance {server.id} is not attached to volume {id}")
    fixed = (
        ("id", attachment.id, id),
        ("serverId", attachment.server_id, server.id),
        ("device", attachment.device, device.device),
        ("tag", attachment.tag, device.tag),
    )
    for name, given, is_now in fixed:
        if given is not UNSET and given != is_now:
            raise Invalid(f"The {name} property is not mutable")
    goes = attachment.delete_on_termination
    if goes is not UNSET:
        await writes.change(
            call.context.region, call.context.cells, server.id, _going(id, bool(goes)), now_us(call.context.clock)
        )


def _swap_check(call: AnyCall) -> StateCheck:
    def check(server: Server) -> None:
        not_locked(call, server)
        in_state(server, "swap_volume", SWAPPED)

    return check


def _going(volume: str, goes: bool) -> writes.Changed:
    def changed(server: Server) -> Server:
        devices = tuple(
            msgspec.structs.replace(each, delete_on_termination=goes) if each.volume == volume else each
            for each in server.block_devices
        )
        return msgspec.structs.replace(server, block_devices=devices)

    return changed


async def detach(call: AnyCall) -> Response:
    server = await the_server(call, RULE + "delete")
    check = _check(call, "detach_volume")
    _shelved(call, server, "detach_volume")
    await service_of(call).detach_volume(
        call.principal, call.token, server, call.path["volume"], check=check, request_id=call.request_id
    )
    return Response(202)


def _check(call: AnyCall, action: str) -> StateCheck:
    def check(server: Server) -> None:
        _shelved(call, server, action)
        not_locked(call, server)
        in_state(server, action, STATES)

    return check


def _shelved(call: AnyCall, server: Server, action: str) -> None:
    if server.vm_state in SHELVED and call.version < v2_020_volumes_servers.SHELVED_VOLUMES:
        raise Conflict(f"Cannot '{action}' instance {server.id} while it is in vm_state {server.vm_state.value}")


ROUTES = (
    Route("GET", PATH, index, params=PAGED),
    Route("GET", ONE, show),
    Route("POST", PATH, attach, takes=AttachVolumeBody),
    Route("PUT", ONE, update, takes=UpdateAttachmentBody),
    Route("DELETE", ONE, detach),
)
