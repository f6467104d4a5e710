"""What hangs on a server and is read from its record: addresses, the password."""

from typing import Any

from moorage.api.call import Call, Reply
from moorage.api.compute.server_access import the_server
from moorage.api.compute.server_view import addresses_of
from moorage.api.gather import cells_of
from moorage.api.routes import Route
from moorage.api.when import now_us
from moorage.model.errors import NotFound
from moorage.model.server import Server
from moorage.operations.nouns import servers as writes


def _bare(server: Server) -> dict[str, list[dict[str, Any]]]:
    return {
        network: [{"version": each["version"], "addr": each["addr"]} for each in addresses]
        for network, addresses in addresses_of(server).items()
    }


async def addresses(call: Call[Any]) -> Reply:
    server = await the_server(call, "os_compute_api:ips:index")
    return Reply(200, {"addresses": _bare(server)})


async def addresses_on(call: Call[Any]) -> Reply:
    server = await the_server(call, "os_compute_api:ips:show")
    network = call.path["network"]
    found = _bare(server)
    if network not in found:
        raise NotFound("Instance is not a member of specified network")
    return Reply(200, {network: found[network]})


async def password(call: Call[Any]) -> Reply:
    """What the guest stored through the metadata service, encrypted with its owner's key; empty before that."""
    server = await the_server(call, "os_compute_api:os-server-password:show")
    return Reply(200, {"password": server.guest_password})


async def clear_password(call: Call[Any]) -> Reply:
    """The guest may store another one then."""
    server = await the_server(call, "os_compute_api:os-server-password:clear")
    cleared, now = writes.with_fields(guest_password=""), now_us(call.desk.clock)
    await writes.change(call.desk.region, cells_of(call.desk), server.id, cleared, now)
    return Reply(204)


ROUTES = (
    Route("GET", "/servers/{id}/ips", addresses),
    Route("GET", "/servers/{id}/ips/{network}", addresses_on),
    Route("GET", "/servers/{id}/os-server-password", password),
    Route("DELETE", "/servers/{id}/os-server-password", clear_password),
)
