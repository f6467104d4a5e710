"""`POST /servers/{id}/action` `evacuate`: an administrator lets a server be made again on another host, because its host is down."""

import msgspec
from msgspec import UNSET, UnsetType

from moorage.api.call import Call, Response
from moorage.api.compute.server_bodies import NO, Fqdn
from moorage.api.compute.server_lookup import in_state, may_cross_cells, service_of, the_server
from moorage.api.compute.servers import new_password
from moorage.api.routes import Route
from moorage.api.schema import Body, NovaBool
from moorage.api.version_changes import v2_014_servers, v2_095_servers
from moorage.model.errors import Conflict, Invalid
from moorage.model.server import Server, VmState
from moorage.operations.evacuate.accept_evacuate import EvacuateWish

RULE = "os_compute_api:os-evacuate"
FROM = (VmState.ACTIVE, VmState.STOPPED, VmState.ERROR)


class EvacuateFields(Body):
    host: Fqdn | UnsetType = UNSET
    admin_pass: str | UnsetType = msgspec.field(name="adminPass", default=UNSET)
    shared: NovaBool = msgspec.field(name="onSharedStorage", default=NO)
    force: NovaBool = NO


class EvacuateBody(Body):
    evacuate: EvacuateFields


async def evacuate(call: Call[EvacuateBody]) -> Response:
    """Begin an evacuation, and answer 200 when it is accepted, as Nova does.

    A forced host is judged like any other: the claim there must fit and is never skipped.
    Raises Invalid when a host is forced and not named, and for an admin password where the disk is kept.
    """
    server, fields = await the_server(call, RULE), call.body.evacuate
    shows, shared = call.version < v2_014_servers.NO_PASSWORD_SHOWN, bool(fields.shared)
    host = None if isinstance(fields.host, UnsetType) else str(fields.host)
    if fields.force and host is None:
        raise Invalid("Can't force to a non-provided destination")
    if isinstance(fields.admin_pass, str):
        if shared:
            raise Invalid("admin password can't be changed on existing disk")
        password: str | None = fields.admin_pass
    else:
        password = None if shared else new_password()
    wish = EvacuateWish(
        host=host,
        stopped=call.version >= v2_095_servers.STAYS_STOPPED,
        shared_storage=shared,
        password=password or "",
        cross_cell=may_cross_cells(call, server),
    )
    await service_of(call).evacuate(call.principal, server, wish, check=_check, request_id=call.request_id)
    shown = shows and call.context.config.enable_instance_password
    return Response(200, {"adminPass": password}) if shown else Response(200)


def _check(server: Server) -> None:
    """A server that is locked is evacuated too, as in Nova."""
    in_state(server, "evacuate", FROM)
    if server.host is None:
        raise Conflict(f"Cannot 'evacuate' instance {server.id}: it is on no host")


ROUTES = (Route("POST", "/servers/{id}/action", evacuate, takes=EvacuateBody, action="evacuate"),)
