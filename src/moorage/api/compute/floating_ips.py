"""Floating addresses: below 2.36 the addresses themselves, below 2.44 `addFloatingIp` and `removeFloatingIp`.

All of it is at the network service, and is asked and done there with the user's token.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_lookup import the_server
from moorage.api.compute.service_proxy import checked_address, network_of
from moorage.api.routes import Params, Route
from moorage.api.schema import Body
from moorage.api.timestamps import now_us
from moorage.clients.http import Json
from moorage.model.errors import Conflict, Invalid, NotFound
from moorage.model.json_types import JsonObject
from moorage.model.server import Server
from moorage.operations.records import floating_ips as floats

RULE = "os_compute_api:os-floating-ips:"


class NewFloatingIp(msgspec.Struct):
    """Unknown fields were always taken here."""

    pool: str | None = None


class Association(Body):
    never_null: ClassVar[Mapping[str, str]] = {"fixed_address": "'string'"}

    address: str
    fixed_address: str | None = None


class AddFloatingIpBody(Body):
    add: Association = msgspec.field(name="addFloatingIp")


class FloatingIpAddress(Body):
    address: str


class RemoveFloatingIpBody(Body):
    remove: FloatingIpAddress = msgspec.field(name="removeFloatingIp")


# ------------------------------------------------------------------------------------------------ addresses


async def _shown(call: AnyCall, rows: list[Json]) -> list[JsonObject]:
    network = network_of(call)
    ids = sorted({row["floating_network_id"] for row in rows})
    query = {"id": ids, "fields": ["id", "name"]}
    names = {row["id"]: row["name"] for row in await network.list_as(call.token, "networks", query)} if ids else {}
    return [
        {
            "id": row["id"],
            "ip": row["floating_ip_address"],
            "fixed_ip": row["fixed_ip_address"],
            "instance_id": await floats.device_of(network, call.token, row) or None,
            "pool": names.get(row["floating_network_id"]) or row["floating_network_id"],
        }
        for row in rows
    ]


async def _one(call: AnyCall) -> Json:
    try:
        return await network_of(call).show_as(call.token, floats.FLOATING, call.path["id"])
    except NotFound as missing:
        raise NotFound(f"Floating IP not found for ID {call.path['id']}") from missing


async def index(call: Call[None]) -> Response:
    call.require(RULE + "list")
    rows = await network_of(call).list_as(call.token, floats.FLOATING, {"project_id": call.project})
    return Response(200, {"floating_ips": await _shown(call, rows)})


async def show(call: Call[None]) -> Response:
    call.require(RULE + "show")
    return Response(200, {"floating_ip": (await _shown(call, [await _one(call)]))[0]})


async def create(call: Call[NewFloatingIp]) -> Response:
    call.require(RULE + "create")
    made = await floats.allocate(network_of(call), call.token, call.body.pool)
    return Response(200, {"floating_ip": (await _shown(call, [made]))[0]})


async def delete(call: Call[None]) -> Response:
    call.require(RULE + "delete")
    await floats.release(network_of(call), call.token, (await _one(call))["id"])
    return Response(202)


# ------------------------------------------------------------------------------------------------ of servers


async def add(call: Call[AddFloatingIpBody]) -> Response:
    wanted = call.body.add
    address = checked_address("address", wanted.address)
    fixed_address = None if wanted.fixed_address is None else checked_address("fixed_address", wanted.fixed_address)
    server = await the_server(call, RULE + "add")
    await floats.put_on(network_of(call), call.token, server, address, _fixed(server, address, fixed_address))
    await _show_on(call, server)
    return Response(202)


async def _show_on(call: AnyCall, server: Server) -> None:
    cells, now = call.context.cells, now_us(call.context.clock)
    await floats.show_on(call.context.region, cells, network_of(call), server, now)


def _fixed(server: Server, address: str, fixed_address: str | None) -> str:
    """The server's address that the floating one will stand for. Raises Invalid."""
    nics = [nic for nic in server.nics if nic.port]
    if not nics:
        raise Invalid("Instance network is not ready yet")
    fixed = [each for nic in nics for each in nic.addresses]
    if not fixed:
        raise Invalid("No fixed IPs associated to instance")
    if fixed_address is not None:
        if fixed_address not in {each.address for each in fixed}:
            raise Invalid("Specified fixed address not assigned to instance")
        return fixed_address
    first = next((each.address for each in fixed if each.version == 4), None)
    if first is None:
        raise Invalid(
            f"Unable to associate floating IP {address} to any fixed IPs for instance {server.id}. "
            "Instance has no fixed IPv4 addresses to associate."
        )
    return first


async def remove(call: Call[RemoveFloatingIpBody]) -> Response:
    """Take a floating address from a server. Raises Conflict when the address is not associated with the server."""
    address = checked_address("address", call.body.remove.address)
    server = await the_server(call, RULE + "remove")
    network = network_of(call)
    floating = await floats.by_address(network, call.token, address)
    if await floats.device_of(network, call.token, floating) != server.id:
        raise Conflict(f"Floating IP {address} is not associated with instance {server.id}.")
    await floats.take_off(network, call.token, floating)
    await _show_on(call, server)
    return Response(202)


ACTION = "/servers/{id}/action"
AS_ASKED = Params(strict=None)

ROUTES = (
    Route("POST", ACTION, add, takes=AddFloatingIpBody, action="addFloatingIp"),
    Route("POST", ACTION, remove, takes=RemoveFloatingIpBody, action="removeFloatingIp"),
    Route("GET", "/os-floating-ips", index, params=AS_ASKED),
    Route("POST", "/os-floating-ips", create, takes=NewFloatingIp),
    Route("GET", "/os-floating-ips/{id}", show, params=AS_ASKED),
    Route("DELETE", "/os-floating-ips/{id}", delete),
)
