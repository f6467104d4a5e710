"""The fields of each resource: what may be said of it, by which it is found, and how it is shown."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from moorage.model.errors import Invalid
from moorage_embedded.identity.store import Record, table_of

Kind: TypeAlias = Literal["name", "text", "id", "flag", "number", "object", "strings"]
NAME_MAX_CHARS = {"projects": 64}
TEXT_MAX_CHARS = 65_535
EXTRA_MAX = 64


@dataclass(frozen=True)
class Field:
    kind: Kind
    required: bool = False
    default: Any = None
    fixed: bool = False
    """Given at creation and never again."""


@dataclass(frozen=True)
class ResourceSchema:
    one: str
    many: str
    table: str
    fields: Mapping[str, Field]
    filters: tuple[str, ...]
    hidden: frozenset[str] = frozenset()
    own_id: bool = False
    in_bulk: bool = False
    """Several are made by one call, and answered as a list."""
    equal: Mapping[str, Any] = field(default_factory=dict)
    """What is true of all rows of this noun in its table."""
    usually: Mapping[str, Any] = field(default_factory=dict)
    """What a list is limited to unless a filter says otherwise."""


_NAME = Field("name", required=True)
_TEXT = Field("text")
_ENABLED = Field("flag", default=True)
_OPTIONS = Field("object", default={})

PROJECT = ResourceSchema(
    "project", "projects", "projects",
    {"name": _NAME, "domain_id": Field("id", fixed=True), "parent_id": Field("id", fixed=True), "enabled": _ENABLED,
     "description": Field("text", default=""), "tags": Field("strings", default=[]), "options": _OPTIONS,
     "is_domain": Field("flag", default=False, fixed=True)},
    ("name", "domain_id", "parent_id", "enabled", "is_domain"), usually={"is_domain": False},
)  # fmt: skip
DOMAIN = ResourceSchema(
    "domain", "domains", "projects",
    {"name": _NAME, "enabled": _ENABLED, "description": Field("text", default=""), "tags": Field("strings", default=[]),
     "options": _OPTIONS},
    ("name", "enabled"), frozenset({"domain_id", "parent_id", "is_domain"}), equal={"is_domain": True},
)  # fmt: skip
USER = ResourceSchema(
    "user", "users", "users",
    {"name": _NAME, "domain_id": Field("id", fixed=True), "default_project_id": Field("id"), "enabled": _ENABLED,
     "description": _TEXT, "email": _TEXT, "password": Field("text"), "options": _OPTIONS},
    ("name", "domain_id", "enabled"), frozenset({"password_hash", "tokens_from"}),
)  # fmt: skip
GROUP = ResourceSchema(
    "group", "groups", "groups",
    {"name": _NAME, "domain_id": Field("id", fixed=True), "description": Field("text", default="")}, ("name", "domain_id"),
)  # fmt: skip
ROLE = ResourceSchema(
    "role", "roles", "roles",
    {"name": _NAME, "domain_id": Field("id", fixed=True), "description": _TEXT, "options": _OPTIONS},
    ("name", "domain_id"), usually={"domain_id": ""},
)  # fmt: skip
REGION = ResourceSchema(
    "region", "regions", "regions", {"description": Field("text", default=""), "parent_region_id": Field("text")},
    ("parent_region_id",), own_id=True,
)  # fmt: skip
SERVICE = ResourceSchema(
    "service", "services", "services",
    {"type": _NAME, "name": Field("text", default=""), "enabled": _ENABLED, "description": _TEXT}, ("type", "name"),
)  # fmt: skip
ENDPOINT = ResourceSchema(
    "endpoint", "endpoints", "endpoints",
    {"service_id": Field("id", required=True), "interface": _NAME, "url": Field("text", required=True),
     "region_id": Field("text"), "region": Field("text"), "enabled": _ENABLED, "name": _TEXT, "description": _TEXT},
    ("service_id", "interface", "region_id"),
)  # fmt: skip
_LIMITED = {
    "service_id": Field("id", required=True), "region_id": Field("text"), "resource_name": _NAME, "description": _TEXT
}  # fmt: skip
REGISTERED_LIMIT = ResourceSchema(
    "registered_limit", "registered_limits", "registered_limits",
    {**_LIMITED, "default_limit": Field("number", required=True)}, ("service_id", "region_id", "resource_name"),
    in_bulk=True,
)  # fmt: skip
LIMIT = ResourceSchema(
    "limit", "limits", "limits",
    {**_LIMITED, "resource_limit": Field("number", required=True), "project_id": Field("id", fixed=True),
     "domain_id": Field("id", fixed=True)},
    ("service_id", "region_id", "resource_name", "project_id", "domain_id"),
    in_bulk=True,
)  # fmt: skip
POLICY = ResourceSchema(
    "policy", "policies", "policies", {"type": _NAME, "blob": Field("text", required=True)}, ("type",)
)  # fmt: skip


def _fits(noun: ResourceSchema, name: str, kind: Kind, value: Any) -> bool:
    match kind:
        case "name":
            longest = NAME_MAX_CHARS.get(noun.table, 255)
            return isinstance(value, str) and len(value.strip()) > 0 and len(value) <= longest
        case "text":
            return value is None or (isinstance(value, str) and len(value) <= TEXT_MAX_CHARS)
        case "id":
            return value is None or (isinstance(value, str) and len(value) <= 64)
        case "flag":
            return isinstance(value, bool)
        case "number":
            return isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= 0x7FFFFFFF
        case "object":
            return isinstance(value, dict)
        case "strings":
            return isinstance(value, list) and len(value) <= 80 and all(isinstance(one, str) for one in value)


def checked(noun: ResourceSchema, said: Record) -> Record:
    """The known fields of a body, checked for their types; other fields go to `extra`, as in Keystone. Raises Invalid."""
    values: Record = {}
    extra: Record = {}
    for name, value in said.items():
        known = noun.fields.get(name)
        if known is None:
            if name not in {"id", "links", "is_domain", "region", "extra"}:
                extra[name] = value
        elif not _fits(noun, name, known.kind, value) or (known.required and value is None):
            raise Invalid(f"Invalid input for field '{name}': {str(value)[:100]!r} is not valid.")
        else:
            values[name] = value
    if extra and "extra" in table_of(noun.table).c:
        if len(extra) > EXTRA_MAX:
            raise Invalid(f"A {noun.one} has at most {EXTRA_MAX} fields of its own.")
        values["extra"] = extra
    return values


def fresh(noun: ResourceSchema, said: Record) -> Record:
    """A new row from a body. Raises Invalid for a missing field or a wrong id."""
    values = checked(noun, said)
    for name, known in noun.fields.items():
        if known.required and name not in values:
            raise Invalid(f"Invalid input for field '{noun.one}': '{name}' is a required property.")
        values.setdefault(name, known.default)
    given = said.get("id") if noun.own_id else None
    if given is not None and (not isinstance(given, str) or not 0 < len(given) <= 255):
        raise Invalid("Invalid input for field 'id'.")
    return {"id": given or uuid.uuid4().hex, **values, **noun.equal}


def patched(noun: ResourceSchema, said: Record, now: Record) -> Record:
    """The changes that a PATCH makes to a row. Raises Invalid for a field that cannot change."""
    if "id" in said and said["id"] != now["id"]:
        raise Invalid("Cannot change the id.")
    values = checked(noun, said)
    for name, known in noun.fields.items():
        if known.fixed and name in values:
            if (values[name] or None) != (now[name] or None):
                raise Invalid(f"Cannot change {name}.")
            del values[name]
    if "extra" in values:
        values["extra"] = {**(now.get("extra") or {}), **values["extra"]}
    return values


def shown(noun: ResourceSchema, row: Record, url: str) -> Record:
    """A row as clients see it."""
    found = {name: value for name, value in row.items() if name not in noun.hidden and name != "extra"}
    found.update(row.get("extra") or {})
    if found.get("domain_id") == "":
        found["domain_id"] = None
    if noun is USER:
        found["password_expires_at"] = None
        found["federated"] = []
        for name in ("description", "email", "default_project_id"):
            if found.get(name) is None:
                found.pop(name, None)
    if noun is ENDPOINT:
        found["region"] = found["region_id"]
    found["links"] = {"self": f"{url}/{noun.many}/{row['id']}"}
    return found
