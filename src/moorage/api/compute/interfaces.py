"""`/servers/{id}/os-interface`: the ports of a server, as the network service has them now; attached and detached."""

import ipaddress
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_bodies import Tag, Uuid
from moorage.api.compute.server_lookup import in_state, not_locked, service_of, target_of, the_server
from moorage.api.routes import Route
from moorage.api.schema import Body
from moorage.clients.network import NetworkBackend
from moorage.model.boot_request import NicWish
from moorage.model.errors import Invalid, NotFound, Unavailable
from moorage.model.json_types import JsonObject
from moorage.model.network import Port
from moorage.model.server import Nic, Server, VmState
from moorage.operations.steps import segment_change
from moorage.operations.steps.servers import StateCheck

RULE = "os_compute_api:os-attach-interfaces:"
EXTERNAL = "network:attach_external_network"
PATH = "/servers/{id}/os-interface"
ONE = PATH + "/{port}"
STATES = (VmState.ACTIVE, VmState.PAUSED, VmState.STOPPED)


class WantedAddress(Body):
    ip_address: str


class WantedInterface(Body):
    net_id: Uuid | UnsetType = UNSET
    port_id: Uuid | UnsetType = UNSET
    fixed_ips: Annotated[list[WantedAddress], Meta(min_length=1, max_length=1)] | UnsetType = UNSET
    tag: Tag | UnsetType = UNSET


class AttachInterfaceBody(Body):
    attachment: WantedInterface = msgspec.field(name="interfaceAttachment", default_factory=WantedInterface)


# ------------------------------------------------------------------------------------------------------- reading


async def index(call: AnyCall) -> Response:
    server = await the_server(call, RULE + "list")
    try:
        rows = await _rows(call, server)
    except Unavailable:
        rows = [_recorded(nic) for nic in server.nics if nic.port is not None]
    return Response(200, {"interfaceAttachments": rows})


async def _rows(call: AnyCall, server: Server) -> list[JsonObject]:
    """The server's ports, read with the user's token, without those that are only kept for a revert. Raises Unavailable."""
    if call.context.network is None:
        raise Unavailable("This API has no network service to ask.")
    tags = {str(nic.port): nic.tag for nic in server.nics}
    ports: tuple[Port, ...] = await call.context.network.ports_of(server.id, call.token)
    return [_shown(port, tags.get(port.id)) for port in segment_change.shown(server, ports)]


async def show(call: AnyCall) -> Response:
    server = await the_server(call, RULE + "show")
    return await _one(call, server, call.path["port"])


async def _one(call: AnyCall, server: Server, port: str) -> Response:
    try:
        rows = await _rows(call, server)
    except Unavailable:
        rows = [_recorded(nic) for nic in server.nics]
    for row in rows:
        if row["port_id"] == port:
            return Response(200, {"interfaceAttachment": row})
    if call.context.network is not None:
        await _must_be_there(call.context.network, port, call.token)
    raise NotFound(f"Instance {server.id} does not have a port with id {port}")


async def _must_be_there(network: NetworkBackend, port: str, token: str) -> None:
    """Find a port of the server. Raises NotFound for a port that the caller does not see."""
    try:
        await network.port(port, token)
    except NotFound as missing:
        raise NotFound(f"Port id {port} could not be found.") from missing
    except Unavailable:
        return  # the network service does not answer; the server's record has no such port, so the answer is 404


def _shown(port: Port, tag: str | None) -> JsonObject:
    return {
        "net_id": port.network,
        "port_id": port.id,
        "mac_addr": port.mac,
        "port_state": port.status,
        "fixed_ips": [{"subnet_id": each.subnet, "ip_address": each.address} for each in port.fixed_ips],
        "tag": tag,
    }


def _recorded(nic: Nic) -> JsonObject:
    """As the server's record has it, while the network service cannot be asked."""
    bound = nic.vif_type not in {"", "unbound", "binding_failed"}
    return {
        "net_id": nic.network,
        "port_id": nic.port,
        "mac_addr": nic.mac,
        "port_state": "ACTIVE" if bound else "DOWN",
        "fixed_ips": [{"subnet_id": each.subnet, "ip_address": each.address} for each in nic.addresses],
        "tag": nic.tag,
    }


# ------------------------------------------------------------------------------------------------------- writing


async def attach(call: Call[AttachInterfaceBody]) -> Response:
    """Answered when it is done, with the interface as it is then."""
    server = await the_server(call, RULE + "create")
    wish, check = _wish(call.body.attachment), _check(call, "attach_interface")
    check(server)
    port = await service_of(call).attach_interface(
        call.principal,
        call.token,
        server,
        wish,
        check=check,
        external_allowed=call.allows(EXTERNAL, target_of(server)),
        request_id=call.request_id,
    )
    return await _one(call, await the_server(call, None), port)


def _wish(fields: WantedInterface) -> NicWish:
    network = None if fields.net_id is UNSET else fields.net_id
    port = None if fields.port_id is UNSET else fields.port_id
    address = None if fields.fixed_ips is UNSET else _address(fields.fixed_ips[0].ip_address)
    if network and port:
        raise Invalid("Must not input both network_id and port_id")
    if address and not network:
        raise Invalid("Must input network_id when request IP address")
    return NicWish(network, port, address, None if fields.tag is UNSET else fields.tag)


def _address(value: str) -> str:
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        raise Invalid(
            f"Invalid input for field/attribute ip_address. Value: {value}. "
            f"{value!r} is not valid under any of the given schemas"
        ) from None


async def detach(call: AnyCall) -> Response:
    server = await the_server(call, RULE + "delete")
    check = _check(call, "detach_interface")
    check(server)
    await service_of(call).detach_interface(
        call.principal, server, call.path["port"], check=check, request_id=call.request_id
    )
    return Response(202)


def _check(call: AnyCall, action: str) -> StateCheck:
    def check(server: Server) -> None:
        not_locked(call, server)
        in_state(server, action, STATES)

    return check


ROUTES = (
    Route("GET", PATH, index),
    Route("GET", ONE, show),
    Route("POST", PATH, attach, takes=AttachInterfaceBody),
    Route("DELETE", ONE, detach),
)
