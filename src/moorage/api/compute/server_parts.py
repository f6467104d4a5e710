"""What hangs on a server and is read from its record: addresses, volumes, migrations, the password."""

from typing import Any

from moorage.api.call import Call, Reply
from moorage.api.compute.server_access import the_server
from moorage.api.compute.server_view import addresses_of
from moorage.api.routes import NUMBER, Param, Params, Route
from moorage.model.errors import NotFound
from moorage.model.server import Server

PAGED = Params({"limit": Param(form=NUMBER), "offset": Param(form=NUMBER)}, strict=(2, 75))


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


async def volumes(call: Call[Any]) -> Reply:
    await the_server(call, "os_compute_api:os-volumes-attachments:index")
    return Reply(200, {"volumeAttachments": []})


async def volume(call: Call[Any]) -> Reply:
    server = await the_server(call, "os_compute_api:os-volumes-attachments:show")
    raise NotFound(f"Instance {server.id} is not attached to volume {call.path['volume']}.")


async def migrations(call: Call[Any]) -> Reply:
    await the_server(call, "os_compute_api:servers:migrations:index")
    return Reply(200, {"migrations": []})


def _no_migration(rule: str) -> Any:
    async def answer(call: Call[Any]) -> Reply:
        server = await the_server(call, f"os_compute_api:servers:migrations:{rule}")
        raise NotFound(f"Migration {call.path['migration']} not found for server {server.id}.")

    return answer


async def password(call: Call[Any]) -> Reply:
    """Guests store no password here, so it is empty, as Nova's is then."""
    await the_server(call, "os_compute_api:os-server-password:show")
    return Reply(200, {"password": ""})


async def clear_password(call: Call[Any]) -> Reply:
    await the_server(call, "os_compute_api:os-server-password:clear")
    return Reply(204)


ROUTES = (
    Route("GET", "/servers/{id}/ips", addresses),
    Route("GET", "/servers/{id}/ips/{network}", addresses_on),
    Route("GET", "/servers/{id}/os-volume_attachments", volumes, params=PAGED),
    Route("GET", "/servers/{id}/os-volume_attachments/{volume}", volume),
    Route("GET", "/servers/{id}/migrations", migrations),
    Route("GET", "/servers/{id}/migrations/{migration}", _no_migration("show")),
    Route("DELETE", "/servers/{id}/migrations/{migration}", _no_migration("delete")),
    Route(
        "POST",
        "/servers/{id}/migrations/{migration}/action",
        _no_migration("force_complete"),
        action="force_complete",
    ),
    Route("GET", "/servers/{id}/os-server-password", password),
    Route("DELETE", "/servers/{id}/os-server-password", clear_password),
)
