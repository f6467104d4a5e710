"""Actions `createImage` and `createBackup`: an image of a server's disk; it is there, queued, when they are answered."""

import msgspec

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_bodies import Metadata
from moorage.api.compute.server_lookup import in_state, service_of, target_of, the_server
from moorage.api.routes import Route
from moorage.api.schema import Body, Name, NotNegative
from moorage.api.version_changes import v2_039, v2_045_servers
from moorage.model.errors import Forbidden, Invalid
from moorage.model.server import Server, VmState
from moorage.operations.images.snapshot import SnapshotRequest
from moorage.operations.steps.servers import StateCheck
from moorage.store.region.quotas import both_limits

PATH = "/servers/{id}/action"
STATES = (VmState.ACTIVE, VmState.STOPPED, VmState.PAUSED, VmState.SUSPENDED)
SNAPSHOT_RULE = "os_compute_api:servers:create_image"
BACKUP_RULE = "os_compute_api:os-create-backup"


class NewImage(Body):
    name: Name
    metadata: Metadata = msgspec.field(default_factory=dict)


class ImageBody(Body):
    wanted: NewImage = msgspec.field(name="createImage")


class NewBackup(Body):
    name: Name
    backup_type: str
    rotation: NotNegative
    metadata: Metadata = msgspec.field(default_factory=dict)


class BackupBody(Body):
    wanted: NewBackup = msgspec.field(name="createBackup")


async def create_image(call: Call[ImageBody]) -> Response:
    server, wanted = await the_server(call, SNAPSHOT_RULE), call.body.wanted
    await _few_enough(call, wanted.metadata)
    check = _check("createImage")
    check(server)
    if server.volume_backed:
        call.require(f"{SNAPSHOT_RULE}:allow_volume_backed", target_of(server))
    image = await service_of(call).snapshot(
        call.principal,
        call.token,
        server,
        SnapshotRequest(str(wanted.name), wanted.metadata),
        check=check,
        request_id=call.request_id,
    )
    return _accepted(call, image, f"{call.context.config.image_url}/images/{image}")


async def create_backup(call: Call[BackupBody]) -> Response:
    """Make a backup image, and delete older ones. Raises Invalid for servers that boot from a volume."""
    server, wanted = await the_server(call, BACKUP_RULE), call.body.wanted
    await _few_enough(call, wanted.metadata)
    check = _check("createBackup")
    check(server)
    if server.volume_backed:
        raise Invalid("Backup is not supported for volume-backed instances.")
    rotation = int(wanted.rotation)
    image = await service_of(call).snapshot(
        call.principal,
        call.token,
        server,
        SnapshotRequest(str(wanted.name), wanted.metadata, wanted.backup_type, rotation),
        check=check,
        request_id=call.request_id,
    )
    return _accepted(call, image, call.self_link(f"images/{image}") if rotation else None)


def _accepted(call: AnyCall, image: str, location: str | None) -> Response:
    if call.version >= v2_045_servers.IMAGE_IN_THE_BODY:
        return Response(202, {"image_id": image}, finished=True)
    return Response(202, headers={} if location is None else {"Location": location})


def _check(action: str) -> StateCheck:
    """A lock does not forbid it, as in Nova: it changes nothing about the server."""

    def check(server: Server) -> None:
        in_state(server, action, STATES)

    return check


async def _few_enough(call: AnyCall, metadata: dict[str, str]) -> None:
    """Below 2.39 the quota of metadata items holds for images too. Raises Forbidden."""
    if not metadata or call.version >= v2_039.CHANGE.at:
        return
    if call.context.unified_limits is not None:  # Nova's driver has no limit for images
        return
    project, user, config = call.project, call.principal.user, call.context.config.quotas
    most = (await call.context.region.read(lambda tx: both_limits(tx, project, user, config)))["metadata_items"]
    if 0 <= most < len(metadata):
        raise Forbidden("Image metadata limit exceeded")


ROUTES = (
    Route("POST", PATH, create_image, takes=ImageBody, action="createImage"),
    Route("POST", PATH, create_backup, takes=BackupBody, action="createBackup"),
)
