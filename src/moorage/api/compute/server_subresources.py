"""Subresources of a server that are read from its record: addresses, the password."""

from moorage.api.call import AnyCall, Response
from moorage.api.compute.server_lookup import the_server
from moorage.api.compute.server_view import addresses_of
from moorage.api.routes import Route
from moorage.api.timestamps import now_us
from moorage.model.errors import NotFound
from moorage.model.json_types import JsonObject
from moorage.model.server import Server
from moorage.operations.records import servers as writes


def _bare(server: Server) -> dict[str, list[JsonObject]]:
    return {
        network: [{"version": each["version"], "addr": each["addr"]} for each in addresses]
        for network, addresses in addresses_of(server).items()
    }


async def addresses(call: AnyCall) -> Response:
    server = await the_server(call, "os_compute_api:ips:index")
    return Response(200, {"addresses": _bare(server)})


async def addresses_on(call: AnyCall) -> Response:
    """Show a server's addresses on one network. Raises NotFound when it has none there."""
    server = await the_server(call, "os_compute_api:ips:show")
    network = call.path["network"]
    addresses = _bare(server)
    if network not in addresses:
        raise NotFound("Instance is not a member of specified network")
    return Response(200, {network: addresses[network]})


async def password(call: AnyCall) -> Response:
    """What the guest stored through the metadata service, encrypted with its owner's key; empty before that."""
    server = await the_server(call, "os_compute_api:os-server-password:show")
    return Response(200, {"password": server.guest_password})


async def clear_password(call: AnyCall) -> Response:
    """The guest may store another one then."""
    server = await the_server(call, "os_compute_api:os-server-password:clear")
    cleared, now = writes.with_fields(guest_password=""), now_us(call.context.clock)
    await writes.change(call.context.region, call.context.cells, server.id, cleared, now)
    return Response(204)


ROUTES = (
    Route("GET", "/servers/{id}/ips", addresses),
    Route("GET", "/servers/{id}/ips/{network}", addresses_on),
    Route("GET", "/servers/{id}/os-server-password", password),
    Route("DELETE", "/servers/{id}/os-server-password", clear_password),
)
