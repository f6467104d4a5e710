"""`/servers`: create, list, show, update and delete."""

import secrets
import string

import msgspec
from msgspec import UNSET

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_bodies import CreateServerBody, UpdateServerBody, boot_request, checked_address
from moorage.api.compute.server_files import files_of
from moorage.api.compute.server_filters import LISTING, wanted
from moorage.api.compute.server_lookup import not_locked, notification_of, service_of, the_server
from moorage.api.compute.server_metadata import metadata_most
from moorage.api.compute.server_view import basic, full, rendered_rows, rights_of
from moorage.api.cross_cell import ServerPage, find_partial, find_server, gather
from moorage.api.host_status import host_statuses, status_of_host
from moorage.api.routes import Params, Route
from moorage.api.schema import plain, write_json
from moorage.api.timestamps import now_us, seconds
from moorage.api.version_changes import v2_069_servers
from moorage.model.errors import Conflict, Forbidden, Invalid, NotFound, Unavailable
from moorage.model.json_types import JsonObject
from moorage.model.server import Server
from moorage.operations.boot.boot_checks import BootRights
from moorage.operations.records import servers as writes
from moorage.store.region.server_lists import Partial

RULE = "os_compute_api:servers:"
PASSWORD_CHARACTERS = 12
PASSWORD_ALPHABET = string.ascii_letters + string.digits


def new_password() -> str:
    """From one draw of 128 bits, of which it takes 72: even but for one part in 2**56."""
    drawn, letters = secrets.randbits(128), []
    for _ in range(PASSWORD_CHARACTERS):
        drawn, place = divmod(drawn, len(PASSWORD_ALPHABET))
        letters.append(PASSWORD_ALPHABET[place])
    return "".join(letters)


async def create(call: Call[CreateServerBody]) -> Response:
    """Accept the order of servers, begin their boots, and answer at once.

    Raises Forbidden when policy does not let the user choose a host, and Invalid when a host is named in two ways.
    """
    call.require(RULE + "create")
    password = call.body.server.admin_pass or new_password()
    request = msgspec.structs.replace(boot_request(call), admin_password=password)
    files = await files_of(call, call.body.server.personality)
    request = msgspec.structs.replace(request, files=files)
    rights = BootRights(
        may_force_host=call.allows(RULE + "create:forced_host"),
        may_request_host=call.allows("compute:servers:create:requested_destination"),
        may_zero_disk=call.allows(RULE + "create:zero_disk_flavor"),
        may_external_network=call.allows("network:attach_external_network"),
        sees_all_flavors=call.is_admin,
        may_wait=call.allows("moorage:servers:wait"),
        is_admin=call.is_admin,
    )
    if (request.host or request.hypervisor_hostname) and not rights.may_request_host:
        raise Forbidden("Policy doesn't allow compute:servers:create:requested_destination to be performed.")
    if request.availability_zone and ":" in request.availability_zone:
        call.require(RULE + "create:forced_host")
        if request.host or request.hypervisor_hostname:
            raise Invalid("A host is asked for twice: by host or hypervisor_hostname, and by zone:host:node.")
    if request.nics not in ("unspecified", "none"):
        call.require(RULE + "create:attach_network")
    if request.trusted_certs:
        call.require(RULE + "create:trusted_certs")
    if any(device.destination == "volume" for device in request.block_devices):
        call.require(RULE + "create:attach_volume")
    if request.metadata:
        writes.check_count(request.metadata, await metadata_most(call, call.project))
    made = await service_of(call).boot(call.principal, call.token, request, rights, call.request_id)
    first = made[0]
    if call.body.server.return_reservation_id:
        return Response(202, {"reservation_id": first.reservation_id})
    body: JsonObject = {
        "id": first.id,
        "links": call.links(f"servers/{first.id}"),
        "OS-DCF:diskConfig": first.disk_config,
        "security_groups": [{"name": name} for name in request.security_groups or ("default",)],
    }
    if call.context.config.enable_instance_password:
        body["adminPass"] = password
    return Response(202, {"server": body}, {"Location": call.self_link(f"servers/{first.id}")})


async def _page(call: AnyCall, *, detail: bool) -> tuple[ServerPage, int]:
    query = wanted(call, detail=detail)
    limit, marker = call.page()
    if query is None:
        return ServerPage([], {}), limit
    partial = call.version >= v2_069_servers.PARTIAL_ROWS
    return await gather(
        call.context, msgspec.structs.replace(query, limit=limit), marker or None, partial=partial
    ), limit


async def index(call: AnyCall) -> Response:
    call.require(RULE + "index")
    page, limit = await _page(call, detail=False)
    rows: list[JsonObject] = [basic(call, row.id, row.server.name) for row in page.rows]
    rows += [{"id": each.id, "status": "UNKNOWN", "links": call.links(f"servers/{each.id}")} for each in page.partial]
    return Response(200, {"servers": rows, **_next(call, "servers", page, limit)})


async def detail(call: AnyCall) -> Response:
    """Rows are rendered once per state, version and rights, and joined here."""
    call.require(RULE + "detail")
    page, limit = await _page(call, detail=True)
    rights = rights_of(call)
    statuses = await host_statuses(call.context) if rights.host_status != "none" and page.rows else {}
    rows = rendered_rows(call, page, rights, statuses)
    rows += [write_json(_partial(call, each)) for each in page.partial]
    links = _next(call, "servers/detail", page, limit)
    tail = b',"servers_links":' + write_json(links["servers_links"]) if links else b""
    return Response(200, b'{"servers":[' + b",".join(rows) + b"]" + tail + b"}", finished=True)


def _next(call: AnyCall, path: str, page: ServerPage, limit: int) -> JsonObject:
    ids = [row.id for row in page.rows] + [each.id for each in page.partial]
    links = call.next_links(path, ids, ids[-1], limit) if ids and call.first("limit") is not None else []
    if not links and len(ids) >= call.context.config.page_max_rows:
        links = call.next_links(path, ids, ids[-1], limit)
    return {"servers_links": links} if links else {}


def _partial(call: AnyCall, each: Partial) -> JsonObject:
    return {
        "id": each.id,
        "status": "UNKNOWN",
        "tenant_id": each.project,
        "created": seconds(each.created_at),
        "links": call.links(f"servers/{each.id}"),
    }


async def show(call: AnyCall) -> Response:
    """Show one server. If its cell is out, show what the region knows of it.

    Raises NotFound when the user may not see the server, and Unavailable for old versions while its cell is out.
    """
    try:
        server = await the_server(call, RULE + "show")
    except Unavailable:
        known = await find_partial(call.context, call.path["id"])
        if known is not None and known.project != call.principal.project and not call.is_admin:
            raise NotFound(f"Instance {known.id} could not be found.") from None
        if known is None or call.version < v2_069_servers.PARTIAL_ROWS:
            raise
        return Response(200, write_json({"server": _partial(call, known)}), finished=True)
    rights = rights_of(call, server.project)
    on = await status_of_host(call.context, server) if rights.host_status != "none" else ""
    return Response(200, {"server": plain(full(call, server, rights, on))})


async def update(call: Call[UpdateServerBody]) -> Response:
    """Change a server's name, description or host name, or pin its zone.

    Raises Invalid when its zone cannot be changed during an operation.
    """
    server = await the_server(call, RULE + "update")
    body = call.body.server
    fields: JsonObject = {}
    if body.name is not UNSET:
        fields["name"] = str(body.name)
    if body.disk_config is not UNSET:
        fields["disk_config"] = body.disk_config
    if body.access_ip_v4 is not UNSET:
        fields["access_ip_v4"] = checked_address(body.access_ip_v4, 4, "accessIPv4")
    if body.access_ip_v6 is not UNSET:
        fields["access_ip_v6"] = checked_address(body.access_ip_v6, 6, "accessIPv6")
    if body.description is not UNSET:
        fields["description"] = body.description
    if body.hostname is not UNSET:
        fields["hostname"] = body.hostname
    if body.pinned_availability_zone is not UNSET:
        if server.operation is not None and server.task_state is not None:
            raise Invalid("The zone cannot be changed while something is being done to the server.")
        zone = body.pinned_availability_zone
        fields["pinned_az"] = _pinned(server, None if zone is None else str(zone))
    if fields:
        await writes.change(
            call.context.region,
            call.context.cells,
            server.id,
            writes.with_fields(**fields),
            now_us(call.context.clock),
            listener=notification_of(call, "update"),
        )
        server = await find_server(call.context, server.id)
    rights = rights_of(call, server.project)
    on = await status_of_host(call.context, server) if rights.host_status != "none" else ""
    return Response(200, {"server": plain(full(call, server, rights, on))})


def _pinned(server: Server, zone: str | None) -> str | None:
    """The zone that it is to be pinned to (2.104). Raises Conflict: only to its own, and to another only when it is pinned to none."""
    if zone is None or zone == server.pinned_az:
        return zone
    if server.pinned_az is not None:
        raise Conflict(
            "Cannot change pinned availability zone directly. Unpin first by setting pinned_availability_zone to null."
        )
    if zone != server.availability_zone:
        raise Conflict(
            f"Server can only be pinned to its current availability zone '{server.availability_zone}', but '{zone}' was requested."
        )
    return zone


async def delete(call: AnyCall) -> Response:
    server = await the_server(call, RULE + "delete")
    not_locked(call, server)
    await service_of(call).delete(call.principal, server, force=False, request_id=call.request_id)
    return Response(204)


NO_QUERY = Params()
ROUTES = (
    Route("POST", "/servers", create, takes=CreateServerBody),
    Route("GET", "/servers", index, params=LISTING),
    Route("GET", "/servers/detail", detail, params=LISTING),
    Route("GET", "/servers/{id}", show, params=NO_QUERY),
    Route("PUT", "/servers/{id}", update, takes=UpdateServerBody),
    Route("DELETE", "/servers/{id}", delete),
)
