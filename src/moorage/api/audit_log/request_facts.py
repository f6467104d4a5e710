"""The facts of one answered request, and what follows from its path: action and target."""

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

import msgspec

from moorage.model.json_types import JsonObject
from moorage.model.principal import Principal

AN_ID = re.compile(r"^(req-)?[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$|^[0-9]+$")
A_VERSION = re.compile(r"^v[0-9](\.[0-9]+)?$")
AN_ACTION = re.compile(rb'^\s*\{\s*"([A-Za-z][A-Za-z_-]{0,63})"\s*:')
VERBS = {"POST": "create", "PUT": "update", "PATCH": "update", "DELETE": "delete"}
READS = frozenset({"GET", "HEAD", "OPTIONS"})
PATH_CHARS_MAX = 2_000
"""Of a path with its query, as it is kept."""
HIDDEN = "***"
SECRET_PARTS = frozenset({"os-console-auth-tokens"})
"""What follows in a path opens something."""
SECRET_QUERY = re.compile(r"(?i)((?:^|[?&])[^=&]*(?:token|password|secret|signature)[^=&]*=)[^&]*")
TYPES = {
    "compute": "service/compute",
    "placement": "service/compute/placement",
    "identity": "service/security",
    "image": "service/storage/image",
    "network": "service/network",
    "volume": "service/storage/block",
}
"""Service → its place in CADF's taxonomy of resources."""


@dataclass
class Facts:
    """One request and its answer."""

    service: str
    method: str
    path: str
    query: str = ""
    status: int | None = None
    """None: there is no answer yet, or there never was one."""
    principal: Principal | None = None
    address: str = ""
    agent: str = ""
    request_id: str = ""
    global_request_id: str = ""
    action: str = ""
    """Of a body that names one."""
    made: str = ""
    """The id of what was made, where the answer says it."""
    login: JsonObject = field(default_factory=dict)
    """Of a login: who they say they are."""


def parts_of(path: str) -> list[str]:
    """Without the version, and without Placement's prefix."""
    parts = [unquote(part) for part in path.split("/") if part]
    if parts and parts[0] == "placement":
        parts = parts[1:]
    return parts[1:] if parts and A_VERSION.match(parts[0]) else parts


def action_of(facts: Facts) -> str:
    """The action in the form of OpenStack's audit middleware: `create`, `update/lock`, `read/list` …"""
    parts = parts_of(facts.path)
    if facts.method in READS:
        return "read" if parts and AN_ID.match(parts[-1]) else "read/list"
    if parts and parts[-1] == "action":
        return f"update/{facts.action}" if facts.action else "update"
    return VERBS.get(facts.method, "unknown")


def target_of(facts: Facts) -> tuple[str, str]:
    """(type, id): of the nearest thing in the path that has an id, or of what was made; else the service itself."""
    kind, target = TYPES.get(facts.service, "unknown"), ""
    parts = parts_of(facts.path)
    if parts and AN_ID.match(parts[0]):  # the project, in front of the resource
        parts = parts[1:]
    for before, part in zip(["", *parts], parts, strict=False):
        if AN_ID.match(part):
            kind, target = f"{kind}/{singular(before)}", part
        else:
            kind = f"{kind}/{HIDDEN if before in SECRET_PARTS else part[:64]}"
    return kind, target or facts.made or facts.service


def singular(name: str) -> str:
    return name[:-1] if name.endswith("s") else name or "thing"


def path_of(facts: Facts) -> str:
    """As it was asked, but for what opens something."""
    parts = facts.path.split("/")
    shown = [HIDDEN if before in SECRET_PARTS else part for before, part in zip(["", *parts], parts, strict=False)]
    query = SECRET_QUERY.sub(rf"\1{HIDDEN}", facts.query)
    return ("/".join(shown) + (f"?{query}" if query else ""))[:PATH_CHARS_MAX]


def action_in(body: bytes) -> str:
    """The one key of a body that names an action; nothing else of it is kept."""
    match = AN_ACTION.match(body)
    return match[1].decode() if match else ""


class _Domain(msgspec.Struct, frozen=True):
    id: str = ""
    name: str = ""


class _User(msgspec.Struct, frozen=True):
    """The user that a login request names; a password beside it is not even decoded."""

    id: str = ""
    name: str = ""
    domain: _Domain = _Domain()


class _Password(msgspec.Struct, frozen=True):
    user: _User = _User()


class _Credential(msgspec.Struct, frozen=True):
    id: str = ""
    user: _User = _User()


class _Identity(msgspec.Struct, frozen=True):
    methods: tuple[str, ...] = ()
    password: _Password = _Password()
    application_credential: _Credential = _Credential()


class _Auth(msgspec.Struct, frozen=True):
    identity: _Identity = _Identity()


class _Login(msgspec.Struct, frozen=True):
    auth: _Auth = _Auth()


class _Issued(msgspec.Struct, frozen=True):
    class Token(msgspec.Struct, frozen=True):
        user: _User = _User()
        project: _Domain | None = None
        domain: _Domain | None = None

    token: Token


_logins = msgspec.json.Decoder(_Login)
_issued = msgspec.json.Decoder(_Issued)
NAME_CHARS_MAX = 255


def login_in(body: bytes) -> JsonObject:
    """The user who asks for a token, as the request claims, and the method of authentication."""
    try:
        identity = _logins.decode(body).auth.identity
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    user = identity.password.user if "password" in identity.methods else identity.application_credential.user
    names = {
        "id": user.id,
        "name": user.name,
        "domain": user.domain.id or user.domain.name,
        "application_credential": identity.application_credential.id,
        "methods": ",".join(identity.methods),
    }
    return {name: value[:NAME_CHARS_MAX] for name, value in names.items() if value}


def holder_in(body: bytes) -> Principal | None:
    """Whose token was issued."""
    try:
        token = _issued.decode(body).token
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return Principal(
        user=token.user.id,
        user_name=token.user.name,
        user_domain=token.user.domain.id,
        project=None if token.project is None else token.project.id,
        domain=None if token.domain is None else token.domain.id,
    )
