"""The metadata service as an ASGI application.

The header fields of Neutron's proxy name the server that asks (`X-Instance-ID`, `X-Tenant-ID`, and `X-Instance-ID-Signature`:
HMAC-SHA256 of the id with the shared secret); where networks are flat, the address from which the connection comes does.  Statuses
are Nova's: 400 for missing headers, 403 for a wrong signature, 404 for everything that does not exist or is not the caller's.

    /                                        EC2's versions, told to everybody
    /latest/meta-data/…, /latest/user-data   EC2's tree (`/ec2/…` is the same)
    /openstack, /openstack/<version>/…       OpenStack's
    /openstack/<version>/password            GET, and POST once
"""

import hashlib
import hmac
import ipaddress
import logging
import posixpath
from collections.abc import Awaitable, Callable, Collection, MutableMapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from moorage.api.metadata.servers import GuestLookup
from moorage.model.errors import Conflict, Forbidden, Invalid, NotFound, Problem, Unavailable
from moorage.model.metadata_tree import (
    EC2_VERSIONS,
    GRIZZLY,
    LATEST,
    NETWORK_DATA,
    OPENSTACK_VERSIONS,
    PASSWORD,
    VENDOR_DATA2,
    NoSuchPath,
    content,
    ec2,
    found,
    openstack,
    openstack_names,
    openstack_version,
    printed,
)
from moorage.model.server import Server
from moorage.model.tracing import request

PASSWORD_MAX_BYTES = 4096
PATH_MAX_CHARACTERS = 1024
ID_MAX_CHARACTERS = 255
REQUESTS_AT_ONCE_MAX = 500
BUSY_RETRY_S = 2
TEXT = "text/plain; charset=UTF-8"
JSON = "application/json"
STATUS: dict[type[Problem], int] = {Invalid: 400, Forbidden: 403, NotFound: 404, Conflict: 409, Unavailable: 503}

_log = logging.getLogger(__name__)

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class MetadataApp:
    """Answers guests."""

    def __init__(
        self,
        guests: GuestLookup,
        *,
        shared_secret: str,
        by_address: bool = False,
        trusted_proxies: Collection[str] = (),
    ) -> None:
        """`by_address`: there is no proxy of Neutron's. `trusted_proxies`: addresses whose `X-Forwarded-For` is believed then."""
        self._guests = guests
        self._secret = shared_secret.encode()
        self._by_address = by_address
        self._trusted = frozenset(_plain(each) for each in trusted_proxies)
        self._at_once = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if self._at_once >= REQUESTS_AT_ONCE_MAX:
            await _send(send, 503, b"Too many requests at once; ask again.", TEXT, retry_s=BUSY_RETRY_S)
            return
        self._at_once += 1
        try:
            status, body, kind, retry_s = await self._answered(scope, receive)
        finally:
            self._at_once -= 1
        await _send(send, status, b"" if scope["method"] == "HEAD" else body, kind, retry_s=retry_s)

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[int, bytes, str, int]:
        try:
            body, kind = await self._answer(scope, receive)
        except NoSuchPath:
            return 404, b"The resource could not be found.", TEXT, 0
        except Problem as problem:
            status = next((number for kind_, number in STATUS.items() if isinstance(problem, kind_)), 500)
            if status >= 500:
                _log.error("%s: %s %s", scope["path"][:PATH_MAX_CHARACTERS], problem.public, problem.private)
            text = problem.public if status < 500 else "The metadata cannot be told now; ask again."
            return status, text.encode(), TEXT, BUSY_RETRY_S if status == 503 else 0
        except Exception:  # noqa: BLE001 - a boundary: a guest is told nothing of what broke
            _log.exception("%s", scope["path"][:PATH_MAX_CHARACTERS])
            return 500, b"An unknown error has occurred. Please try your request again.", TEXT, 0
        return 200, body, kind, 0

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[bytes, str]:
        words = _segments(str(scope["path"]))
        request("metadata").annotate(route=f"/{words[0]}")
        if words == ["ec2"]:
            return printed([*EC2_VERSIONS, LATEST]), TEXT
        server = await self._caller(scope)
        if words[0] == "openstack":
            return await self._openstack(server, words[1:], scope, receive)
        if scope["method"] not in {"GET", "HEAD"}:
            raise Invalid("Only GET is supported here.")
        return printed(found(ec2(await self._guests.metadata_of(server), words[1]), words[2:])), TEXT

    async def _openstack(
        self, server: Server, words: Sequence[str], scope: Scope, receive: Receive
    ) -> tuple[bytes, str]:
        if len(words) == 2 and words[1] == PASSWORD and openstack_version(words[0]) >= GRIZZLY:
            return await self._password(server, scope, receive), TEXT
        if scope["method"] not in {"GET", "HEAD"}:
            raise Invalid("Only GET is supported here.")
        if not words:
            today = datetime.now(UTC).strftime("%Y-%m-%d")
            return printed([*(each for each in OPENSTACK_VERSIONS if each <= today), LATEST]), TEXT
        name = "/".join(words[1:])
        model = await self._guests.metadata_of(
            server, with_networks=name == NETWORK_DATA, with_vendors=name == VENDOR_DATA2
        )
        if words[0] == "content":
            return content(model, name), TEXT
        if not name:
            return printed(openstack_names(model, words[0])), TEXT
        return openstack(model, words[0], name), JSON if name.endswith(".json") else TEXT

    async def _password(self, server: Server, scope: Scope, receive: Receive) -> bytes:
        if scope["method"] in {"GET", "HEAD"}:
            return server.guest_password.encode()
        if scope["method"] != "POST":
            raise Invalid("GET and POST only are supported.")
        if server.guest_password:
            raise Conflict("The password was stored before.")
        try:
            password = (await _body(receive)).decode()
        except UnicodeDecodeError:
            raise Invalid("The password is text, encrypted and in base64.") from None
        if password:
            await self._guests.store_password(server, password)
        return b""

    # ------------------------------------------------------------------------------------------------- who asks

    async def _caller(self, scope: Scope) -> Server:
        """The server that asks. Raises Invalid, Forbidden or NotFound."""
        if self._by_address:
            server = await self._guests.at(self._address(scope))
            if server is None:
                raise NotFound("The resource could not be found.")
            return server
        instance, project = self._proven(scope)
        server = await self._guests.server(instance)
        if server is None or server.project != project:
            _log.info("no server %s in project %s", instance, project)
            raise NotFound("The resource could not be found.")
        return server

    def _proven(self, scope: Scope) -> tuple[str, str]:
        given = {name: _header(scope, name) for name in ("X-Instance-ID", "X-Instance-ID-Signature", "X-Tenant-ID")}
        for name, value in given.items():
            if value is None:
                raise Invalid(f"{name} header is missing from request.")
        instance, signature, project = (str(value) for value in given.values())
        wanted = hmac.new(self._secret, instance.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(wanted.encode(), signature.encode()):
            principal = (_header(scope, "X-Forwarded-For") or "an unknown address")[:ID_MAX_CHARACTERS]
            _log.warning("the signature of %r does not fit; it comes from %r", instance, principal)
            raise Forbidden("Invalid proxy request signature.")
        return instance, project

    def _address(self, scope: Scope) -> str:
        client = scope.get("client")
        address = _plain(str(client[0])) if client else ""
        if address in self._trusted:
            address = _plain((_header(scope, "X-Forwarded-For") or "").rpartition(",")[2].strip())
        return address


def _plain(address: str) -> str:
    """Return the address in its shortest form, and mapped IPv4 as IPv4; empty if it is not an address."""
    try:
        read = ipaddress.ip_address(address)
    except ValueError:
        return ""
    mapped = getattr(read, "ipv4_mapped", None)
    return str(mapped or read)


def _header(scope: Scope, name: str) -> str | None:
    """Its one value; None without. Raises Invalid for more than one."""
    wanted = name.lower().encode()
    values = [value.decode("latin-1") for each, value in scope["headers"] if each == wanted]
    if len(values) > 1:
        raise Invalid(f"Multiple {name} headers found within request.")
    if values and len(values[0]) > ID_MAX_CHARACTERS:
        raise Invalid(f"The {name} header is too long.")
    return values[0] if values else None


def _segments(path: str) -> list[str]:
    """The path below one of the two trees; what names none is EC2's. Raises NoSuchPath for one that is too long."""
    if len(path) > PATH_MAX_CHARACTERS:
        raise NoSuchPath(path[:PATH_MAX_CHARACTERS])
    words = [word for word in posixpath.normpath("/" + path.lstrip("/")).split("/") if word]
    return words if words and words[0] in {"ec2", "openstack"} else ["ec2", *words]


async def _body(receive: Receive) -> bytes:
    """Raises Invalid as soon as it is too long."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Invalid("The request ended early.")
        body += message.get("body", b"")
        if len(body) > PASSWORD_MAX_BYTES:
            raise Invalid("Request is too large.")
        if not message.get("more_body", False):
            return bytes(body)


async def _send(send: Send, status: int, body: bytes, kind: str, *, retry_s: int = 0) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    if retry_s:
        headers.append((b"retry-after", str(retry_s).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
