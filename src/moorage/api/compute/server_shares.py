"""`/servers/{id}/shares` (2.97): no host here can give its guests file shares, so no server has any, and none is attached.

What is refused is refused as Nova refuses it on hosts without virtio-fs, in the same order.
"""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_bodies import Uuid
from moorage.api.compute.server_lookup import the_server
from moorage.api.routes import Params, Route
from moorage.api.schema import Body
from moorage.model.errors import Conflict, NotFound
from moorage.model.server import Server, VmState

RULE = "os_compute_api:os-server-shares:"
Tag = Annotated[str, Meta(min_length=1, max_length=255, pattern="^[a-zA-Z0-9-]*$")]


class Share(Body):
    share_id: Uuid
    tag: Tag | UnsetType = UNSET


class CreateShareBody(Body):
    share: Share


def _in_state(server: Server, action: str, *states: VmState) -> None:
    if server.vm_state not in states:
        raise Conflict(f"Cannot '{action}' instance {server.id} while it is in vm_state {server.vm_state.value}")


async def index(call: AnyCall) -> Response:
    await the_server(call, RULE + "index")
    return Response(200, {"shares": []})


async def show(call: AnyCall) -> Response:
    """Show one share of a server. Raises NotFound, because servers have no shares here."""
    await the_server(call, RULE + "show")
    raise NotFound(f"Share {call.path['share']} could not be found.")


async def create(call: Call[CreateShareBody]) -> Response:
    """Refuse to attach a share. Raises Conflict, as Nova does where shares are not configured."""
    server = await the_server(call, RULE + "create")
    _in_state(server, "create share", VmState.STOPPED)
    raise Conflict("Feature not supported because either compute or instance are not configured correctly.")


async def delete(call: AnyCall) -> Response:
    """Detach a share. Raises NotFound, because servers have no shares here."""
    server = await the_server(call, RULE + "delete")
    _in_state(server, "delete share", VmState.STOPPED, VmState.ERROR)
    raise NotFound(f"Share {call.path['share']} could not be found.")


NO_QUERY = Params({}, strict=(2, 97))
ROUTES = (
    Route("GET", "/servers/{id}/shares", index, params=NO_QUERY),
    Route("POST", "/servers/{id}/shares", create, takes=CreateShareBody),
    Route("GET", "/servers/{id}/shares/{share}", show, params=NO_QUERY),
    Route("DELETE", "/servers/{id}/shares/{share}", delete),
)
