"""Consoles: `POST /servers/{id}/remote-consoles` (2.6) and the actions before it, and what a token stands for (Compute API)."""

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_lookup import the_server
from moorage.api.routes import Params, Route
from moorage.api.schema import Body
from moorage.api.version_changes import v2_031_servers
from moorage.model.console import ConsoleType
from moorage.model.errors import Invalid, NotBuilt, NotFound
from moorage.model.json_types import JsonObject
from moorage.operations.guest.consoles import Consoles

RULE = "os_compute_api:os-remote-consoles"
KINDS: dict[str, tuple[ConsoleType, ...]] = {
    "vnc": (ConsoleType.NOVNC,),
    "spice": (ConsoleType.SPICE_HTML5, ConsoleType.SPICE_DIRECT),
    "serial": (ConsoleType.SERIAL,),
    "mks": (ConsoleType.WEBMKS,),
}
"""Protocol → its types."""


class WantedConsole(Body):
    protocol: Literal["vnc", "spice", "serial", "rdp", "mks"]
    type: Literal["novnc", "xvpvnc", "spice-html5", "serial", "rdp-html5", "webmks", "spice-direct"]


class ConsoleBody(Body):
    remote_console: WantedConsole


class VncType(Body):
    type: Literal["novnc", "xvpvnc"]


class SpiceType(Body):
    type: Literal["spice-html5"]


class SerialType(Body):
    type: Literal["serial"]


class VncBody(Body):
    console: VncType = msgspec.field(name="os-getVNCConsole")


class SpiceBody(Body):
    console: SpiceType = msgspec.field(name="os-getSPICEConsole")


class SerialBody(Body):
    console: SerialType = msgspec.field(name="os-getSerialConsole")


def _consoles(call: AnyCall) -> Consoles:
    consoles = call.context.consoles
    if consoles is None:
        raise NotBuilt("This API process gives no consoles.")
    return consoles


def _kind(protocol: str, name: str) -> ConsoleType:
    if protocol == "rdp":
        raise Invalid("Unavailable console type rdp.")
    for kind in KINDS[protocol]:
        if kind.value == name:
            return kind
    raise Invalid(f"Invalid console type {name}")


async def create(call: Call[ConsoleBody]) -> Response:
    server = await the_server(call, RULE)
    fields = call.body.remote_console
    url = await _consoles(call).open(server, _kind(fields.protocol, fields.type))
    return Response(200, {"remote_console": {"protocol": fields.protocol, "type": fields.type, "url": url}})


def _older(protocol: str) -> Callable[[AnyCall], Awaitable[Response]]:
    async def act(call: AnyCall) -> Response:
        server = await the_server(call, RULE)
        name = call.body.console.type
        url = await _consoles(call).open(server, _kind(protocol, name))
        return Response(200, {"console": {"type": name, "url": url}})

    return act


async def no_rdp(call: AnyCall) -> Response:
    """Refuse RDP consoles, which no hypervisor has any more, for every server. Raises Invalid."""
    raise Invalid("Unavailable console type rdp.")


async def token(call: Call[None]) -> Response:
    """Show what a console token stands for, for proxies of other projects (`spice-direct`); this does not use up the
    token.

    Raises Invalid before version 2.31, and NotFound for an unknown or expired token.
    """
    call.require("os_compute_api:os-console-auth-tokens")
    if call.version < v2_031_servers.EVERY_TYPE:
        raise Invalid(
            "The server could not comply with the request since it is either malformed or otherwise incorrect."
        )
    try:
        console_token = await _consoles(call).resolve(call.path["id"])
    except NotFound as missing:
        raise NotFound("Token not found", private=missing.public) from missing
    console: JsonObject = {
        "instance_uuid": console_token.server,
        "host": console_token.socket.host,
        "port": console_token.socket.port,
        "internal_access_path": console_token.socket.path,
    }
    if console_token.type == ConsoleType.SPICE_DIRECT:
        console["tls_port"] = console_token.socket.tls_port
    return Response(200, {"console": console})


ACTION = "/servers/{id}/action"
ROUTES = (
    Route("POST", "/servers/{id}/remote-consoles", create, takes=ConsoleBody),
    Route("POST", ACTION, _older("vnc"), takes=VncBody, action="os-getVNCConsole"),
    Route("POST", ACTION, _older("spice"), takes=SpiceBody, action="os-getSPICEConsole"),
    Route("POST", ACTION, _older("serial"), takes=SerialBody, action="os-getSerialConsole"),
    Route("POST", ACTION, no_rdp, action="os-getRDPConsole"),
    Route("GET", "/os-console-auth-tokens/{id}", token, params=Params(strict=(2, 99))),
)
