"""Consoles: their types, the address at which a host offers one, and what a token gives access to."""

from enum import StrEnum

import msgspec


class ConsoleType(StrEnum):
    """The Compute API's names."""

    NOVNC = "novnc"
    SERIAL = "serial"
    SPICE_HTML5 = "spice-html5"
    SPICE_DIRECT = "spice-direct"
    WEBMKS = "webmks"


class ConsoleSocket(msgspec.Struct, frozen=True):
    """The network address of a guest's console, as its host reports it."""

    host: str
    port: int
    tls_port: int | None = None
    """SPICE."""
    path: str | None = None
    """The path of the CONNECT request that opens the console (the API's `internal_access_path`)."""


class ConsoleToken(msgspec.Struct, frozen=True):
    """What a token gives access to.  The token itself is not stored; `hash` is its SHA-256."""

    hash: str
    server: str
    type: str
    host: str
    """The name of the host that the server was on."""
    socket: ConsoleSocket
    expires_at: int
    """Microseconds since 1970 UTC."""
    created_at: int = 0
    used: bool = False
