"""The fields of each resource: what may be said of it, by which it is found, and how it is shown."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moorage.model.errors import Invalid
from moorage_embedded.http_kit.values import DRAFT_4, ValueSchema
from moorage_embedded.identity.store import Record, table_of

TEXT_MAX_CHARS = 65_535
EXTRA_MAX = 64


def _kind(**schema: Any) -> ValueSchema:
    return ValueSchema(DRAFT_4 | schema)


def _name(longest: int = 255) -> ValueSchema:
    return _kind(type="string", minLength=1, maxLength=longest, pattern=r"\S")


TEXT = _kind(type=["string", "null"], maxLength=TEXT_MAX_CHARS)
ID = _kind(type=["string", "null"], maxLength=64)
FLAG = _kind(type="boolean")
NUMBER = _kind(type="integer", minimum=-1, maximum=2**31 - 1)
OBJECT = _kind(type="object")
STRINGS = _kind(type="array", maxItems=80, items={"type": "string"})


@dataclass(frozen=True)
class Field:
    kind: ValueSchema
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


_NAME = Field(_name(), required=True)
_PROJECT_NAME = Field(_name(64), required=True)
_TEXT = Field(TEXT)
_ENABLED = Field(FLAG, default=True)
_OPTIONS = Field(OBJECT, default={})

PROJECT = ResourceSchema(
    "project", "projects", "projects",
    {"name": _PROJECT_NAME, "domain_id": Field(ID, fixed=True), "parent_id": Field(ID, fixed=True), "enabled": _ENABLED,
     "description": Field(TEXT, default=""), "tags": Field(STRINGS, default=[]), "options": _OPTIONS,
     "is_domain": Field(FLAG, default=False, fixed=True)},
    ("name", "domain_id", "parent_id", "enabled", "is_domain"), usually={"is_domain": False},
)  # fmt: skip
DOMAIN = ResourceSchema(
    "domain", "domains", "projects",
    {"name": _PROJECT_NAME, "enabled": _ENABLED, "description": Field(TEXT, default=""), "tags": Field(STRINGS, default=[]),
     "options": _OPTIONS},
    ("name", "enabled"), frozenset({"domain_id", "parent_id", "is_domain"}), equal={"is_domain": True},
)  # fmt: skip
USER = ResourceSchema(
    "user", "users", "users",
    {"name": _NAME, "domain_id": Field(ID, fixed=True), "default_project_id": Field(ID), "enabled": _ENABLED,
     "description": _TEXT, "email": _TEXT, "password": Field(TEXT), "options": _OPTIONS},
    ("name", "domain_id", "enabled"), frozenset({"password_hash", "tokens_from"}),
)  # fmt: skip
GROUP = ResourceSchema(
    "group", "groups", "groups",
    {"name": _NAME, "domain_id": Field(ID, fixed=True), "description": Field(TEXT, default="")}, ("name", "domain_id"),
)  # fmt: skip
ROLE = ResourceSchema(
    "role", "roles", "roles",
    {"name": _NAME, "domain_id": Field(ID, fixed=True), "description": _TEXT, "options": _OPTIONS},
    ("name", "domain_id"), usually={"domain_id": ""},
)  # fmt: skip
REGION = ResourceSchema(
    "region", "regions", "regions", {"description": Field(TEXT, default=""), "parent_region_id": Field(TEXT)},
    ("parent_region_id",), own_id=True,
)  # fmt: skip
SERVICE = ResourceSchema(
    "service", "services", "services",
    {"type": _NAME, "name": Field(TEXT, default=""), "enabled": _ENABLED, "description": _TEXT}, ("type", "name"),
)  # fmt: skip
ENDPOINT = ResourceSchema(
    "endpoint", "endpoints", "endpoints",
    {"service_id": Field(ID, required=True), "interface": _NAME, "url": Field(TEXT, required=True),
     "region_id": Field(TEXT), "region": Field(TEXT), "enabled": _ENABLED, "name": _TEXT, "description": _TEXT},
    ("service_id", "interface", "region_id"),
)  # fmt: skip
_LIMITED = {
    "service_id": Field(ID, required=True), "region_id": Field(TEXT), "resource_name": _NAME, "description": _TEXT
}  # fmt: skip
REGISTERED_LIMIT = ResourceSchema(
    "registered_limit", "registered_limits", "registered_limits",
    {**_LIMITED, "default_limit": Field(NUMBER, required=True)}, ("service_id", "region_id", "resource_name"),
    in_bulk=True,
)  # fmt: skip
LIMIT = ResourceSchema(
    "limit", "limits", "limits",
    {**_LIMITED, "resource_limit": Field(NUMBER, required=True), "project_id": Field(ID, fixed=True),
     "domain_id": Field(ID, fixed=True)},
    ("service_id", "region_id", "resource_name", "project_id", "domain_id"),
    in_bulk=True,
)  # fmt: skip
POLICY = ResourceSchema(
    "policy", "policies", "policies", {"type": _NAME, "blob": Field(TEXT, required=True)}, ("type",)
)  # fmt: skip


def checked(noun: ResourceSchema, said: Record) -> Record:
    """The known fields of a body, checked for their types; other fields go to `extra`, as in Keystone. Raises Invalid."""
    values: Record = {}
    extra: Record = {}
    for name, value in said.items():
        known = noun.fields.get(name)
        if known is None:
            if name not in {"id", "links", "is_domain", "region", "extra"}:
                extra[name] = value
        elif known.kind.wrong(value) is not None or (known.required and value is None):
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
