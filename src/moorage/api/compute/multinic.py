"""Below 2.44: `addFixedIp` and `removeFixedIp`."""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_lookup import not_locked, service_of, the_server
from moorage.api.compute.service_proxy import checked_address, network_of
from moorage.api.routes import Route
from moorage.api.schema import Body
from moorage.model.errors import Conflict, Invalid, NotFound
from moorage.model.server import Server

RULE = "os_compute_api:os-multinic:"
NetworkId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=36)] | int


class OneNetwork(Body):
    network: NetworkId = msgspec.field(name="networkId")


class AddFixedIpBody(Body):
    add: OneNetwork = msgspec.field(name="addFixedIp")


class FixedIpAddress(Body):
    address: str


class RemoveFixedIpBody(Body):
    remove: FixedIpAddress = msgspec.field(name="removeFixedIp")


async def _changeable(call: AnyCall, rule: str) -> Server:
    server = await the_server(call, RULE + rule)
    not_locked(call, server)
    if server.host is None:
        raise Conflict(f"Instance {server.id} is not ready")
    return server


async def add(call: Call[AddFixedIpBody]) -> Response:
    """Add a fixed address on a network.

    Raises NotFound when the server has no port there, and Invalid when no address is left.
    """
    server = await _changeable(call, "add")
    network = str(call.body.add.network)
    try:
        await network_of(call).show_as(call.token, "networks", network)  # may this user see it?
    except NotFound as missing:
        raise NotFound(f"Network could not be found for instance {server.id}.") from missing
    try:
        await service_of(call).add_fixed_ip(server, network)
    except Conflict as none_left:
        raise Invalid(none_left.public, private=none_left.private) from none_left
    return Response(202)


async def remove(call: Call[RemoveFixedIpBody]) -> Response:
    """Remove a fixed address. Raises Invalid when the server does not have it."""
    address = checked_address("address", call.body.remove.address)
    server = await _changeable(call, "remove")
    try:
        await service_of(call).remove_fixed_ip(server, address)
    except NotFound as missing:
        raise Invalid(missing.public) from missing
    return Response(202)


ROUTES = (
    Route("POST", "/servers/{id}/action", add, takes=AddFixedIpBody, action="addFixedIp"),
    Route("POST", "/servers/{id}/action", remove, takes=RemoveFixedIpBody, action="removeFixedIp"),
)
