"""`POST /servers/{id}/action` `rebuild`: every microversion's body, and the server in the shape of that version."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from moorage.api.call import Call, Response
from moorage.api.compute.server_bodies import (
    CERTIFICATES_MAX,
    FILES_MAX,
    NO,
    TEXT,
    USER_DATA_CHARACTERS_MAX,
    Description,
    Fqdn,
    Metadata,
    Uuid,
    WantedFile,
    checked_address,
    checked_base64,
)
from moorage.api.compute.server_files import files_of
from moorage.api.compute.server_lookup import in_state, not_locked, service_of, target_of, the_server
from moorage.api.compute.server_metadata import metadata_most
from moorage.api.compute.server_view import full, rights_of
from moorage.api.compute.servers import new_password
from moorage.api.host_status import status_of_host
from moorage.api.routes import Route
from moorage.api.schema import Body, Name, NovaBool, plain
from moorage.api.version_changes import v2_057_servers
from moorage.model.json_types import JsonObject
from moorage.model.server import VmState
from moorage.operations.guest.rebuild_checks import RebuildRequest
from moorage.operations.records import servers as writes

VOLUMES_WRITTEN_ANEW = (2, 93)
RULE = "os_compute_api:servers:"
FROM = (VmState.ACTIVE, VmState.STOPPED, VmState.ERROR)
Certificates = Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1, max_length=CERTIFICATES_MAX)]


class RebuildFields(Body):
    never_null: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("adminPass", "OS-DCF:diskConfig", "accessIPv4", "accessIPv6"), TEXT
    )

    image_ref: Uuid = msgspec.field(name="imageRef")
    name: Name | UnsetType = UNSET
    admin_pass: str | None = msgspec.field(name="adminPass", default=None)
    metadata: Metadata | UnsetType = UNSET
    preserve_ephemeral: NovaBool = NO
    disk_config: Literal["AUTO", "MANUAL"] | None = msgspec.field(name="OS-DCF:diskConfig", default=None)
    access_ip_v4: str | UnsetType | None = msgspec.field(name="accessIPv4", default=UNSET)
    access_ip_v6: str | UnsetType | None = msgspec.field(name="accessIPv6", default=UNSET)
    personality: Annotated[list[WantedFile], Meta(max_length=FILES_MAX)] = msgspec.field(default_factory=list)
    description: Description | UnsetType | None = UNSET
    key_name: Name | UnsetType | None = UNSET
    user_data: Annotated[str, Meta(max_length=USER_DATA_CHARACTERS_MAX)] | UnsetType | None = UNSET
    trusted_image_certificates: Certificates | UnsetType | None = UNSET
    hostname: Fqdn | UnsetType = UNSET


class RebuildBody(Body):
    rebuild: RebuildFields


async def rebuild(call: Call[RebuildBody]) -> Response:
    """Accepted when it is answered; the answer is the server as it is to be."""
    server = await the_server(call, RULE + "rebuild")
    fields = call.body.rebuild
    if fields.trusted_image_certificates is not UNSET:
        call.require(RULE + "rebuild:trusted_certs", target_of(server))
    not_locked(call, server)
    check = partial(in_state, action="rebuild", states=FROM)
    check(server)
    request = await _request(call, fields)
    password = fields.admin_pass or new_password()
    request = msgspec.structs.replace(request, admin_password=password)
    becomes = await service_of(call).rebuild(
        call.principal, call.token, server, request, check=check, request_id=call.request_id
    )
    rights = rights_of(call, becomes.project)
    on = await status_of_host(call.context, becomes) if rights.host_status != "none" else ""
    shown: JsonObject = plain(full(call, becomes, rights, on))
    if call.version >= v2_057_servers.REBUILD_SHOWS_USER_DATA:
        shown.pop("OS-EXT-SRV-ATTR:user_data", None)
        shown["user_data"] = call.context.user_data(becomes.user_data)
    if call.context.config.enable_instance_password:
        shown["adminPass"] = password
    return Response(202, {"server": shown}, {"Location": call.self_link(f"servers/{server.id}")})


async def _request(call: Call[RebuildBody], fields: RebuildFields) -> RebuildRequest:
    if isinstance(fields.user_data, str):
        checked_base64(fields.user_data)
    if not isinstance(fields.metadata, UnsetType):
        writes.check_count(fields.metadata, await metadata_most(call, call.project))
    certs = fields.trusted_image_certificates
    v4, v6 = fields.access_ip_v4, fields.access_ip_v6
    return RebuildRequest(
        image=fields.image_ref,
        name=UNSET if isinstance(fields.name, UnsetType) else str(fields.name),
        description=fields.description,
        metadata=UNSET if isinstance(fields.metadata, UnsetType) else dict(fields.metadata),
        key_name=fields.key_name if isinstance(fields.key_name, UnsetType | None) else str(fields.key_name),
        user_data=fields.user_data,
        trusted_certs=UNSET if isinstance(certs, UnsetType) else tuple(certs or ()),
        hostname=fields.hostname,
        access_ip_v4=UNSET if isinstance(v4, UnsetType) else checked_address(v4, 4, "accessIPv4"),
        access_ip_v6=UNSET if isinstance(v6, UnsetType) else checked_address(v6, 6, "accessIPv6"),
        disk_config=fields.disk_config,
        preserve_ephemeral=bool(fields.preserve_ephemeral),
        files=await files_of(call, fields.personality),
        reimage=call.version >= VOLUMES_WRITTEN_ANEW,
        may_zero_disk=call.allows(RULE + "create:zero_disk_flavor"),
    )


ROUTES = (Route("POST", "/servers/{id}/action", rebuild, takes=RebuildBody, action="rebuild"),)
