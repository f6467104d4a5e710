"""What bodies and queries may say, by version (facts of Placement's API reference)."""

from typing import Any

from moorage.api.placement.http import Schema, is_dashed_uuid
from moorage.model.json_types import JsonObject
from moorage.model.resources import AMOUNT_MAX

RATIO_MAX = 3.40282e38
UUID_KEY = "^[0-9a-fA-F-]{36}$"
NAME_KEY = "^[A-Z0-9_]+$"
CUSTOM_KEY = "^CUSTOM_[A-Z0-9_]+$"

_UUID = {"type": "string", "format": "uuid"}
_INT = {"type": "integer"}
_TEXT = {"type": "string"}
_ID = {"type": "string", "minLength": 1, "maxLength": 255}


def _object(properties: JsonObject, required: tuple[str, ...] = (), **more: Any) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    } | {name: rules for name, rules in more.items() if rules}


def _count(least: int) -> JsonObject:
    return {"type": "integer", "minimum": least, "maximum": AMOUNT_MAX}


_PROVIDER = {"name": {"type": "string", "maxLength": 200}}
_PARENT = {"parent_provider_uuid": {"anyOf": [_UUID, {"type": "null"}]}}
POST_PROVIDER = Schema(_object(_PROVIDER | {"uuid": _UUID}, ("name",)))
POST_PROVIDER_14 = Schema(_object(_PROVIDER | {"uuid": _UUID} | _PARENT, ("name",)))
PUT_PROVIDER = Schema(_object(_PROVIDER, ("name",)))
PUT_PROVIDER_14 = Schema(_object(_PROVIDER | _PARENT, ("name",)))

_LIST = {"name": _TEXT, "uuid": _UUID}
LIST_PROVIDERS = [
    (since, Schema(_object(fields), is_dashed_uuid))
    for since, fields in (
        (18, _LIST | dict.fromkeys(("member_of", "resources", "required"), _TEXT) | {"in_tree": _UUID}),
        (14, _LIST | dict.fromkeys(("member_of", "resources"), _TEXT) | {"in_tree": _UUID}),
        (4, _LIST | dict.fromkeys(("member_of", "resources"), _TEXT)),
        (3, _LIST | {"member_of": _TEXT}),
        (0, _LIST),
    )
]

_INVENTORY = {
    "resource_provider_generation": _INT,
    "total": _count(1),
    "reserved": _count(0),
    "min_unit": _count(1),
    "max_unit": _count(1),
    "step_size": _count(1),
    "allocation_ratio": {"type": "number", "maximum": RATIO_MAX},
}
PUT_INVENTORY = Schema(_object(_INVENTORY, ("total", "resource_provider_generation")))
POST_INVENTORY = Schema(
    _object(_INVENTORY | {"resource_class": {"type": "string", "pattern": NAME_KEY}}, ("total", "resource_class"))
)
_PUT_INVENTORIES = _object(
    {
        "resource_provider_generation": _INT,
        "inventories": {"type": "object", "additionalProperties": _object(_INVENTORY, ("total",))},
    },
    ("resource_provider_generation", "inventories"),
)
PUT_INVENTORIES = Schema(_PUT_INVENTORIES)

PUT_TRAITS = Schema(
    _object(
        {"traits": {"type": "array", "items": _ID}, "resource_provider_generation": _INT},
        ("traits", "resource_provider_generation"),
    )
)
LIST_TRAITS = Schema(_object({"name": _TEXT, "associated": _TEXT}))
CLASS = Schema(_object({"name": {"type": "string", "pattern": CUSTOM_KEY, "maxLength": 255}}, ("name",)))

_AGGREGATES = {"type": "array", "items": _UUID, "uniqueItems": True}
PUT_AGGREGATES = Schema(_AGGREGATES)
PUT_AGGREGATES_19 = Schema(
    _object(
        {"aggregates": _AGGREGATES, "resource_provider_generation": _INT},
        ("aggregates", "resource_provider_generation"),
    )
)

_USAGES = {"project_id": _ID, "user_id": _ID}
USAGES = Schema(_object(_USAGES, ("project_id",)))
USAGES_38 = Schema(
    _object(_USAGES | {"consumer_type": _ID | {"pattern": "^[A-Z0-9_]+$|^all|^unknown$"}}, ("project_id",))
)

_RESOURCES = {
    "type": "object",
    "minProperties": 1,
    "patternProperties": {NAME_KEY: {"type": "integer", "minimum": 1}},
    "additionalProperties": False,
}
_WHO = {"project_id": _ID, "user_id": _ID}
_LISTED = {
    "type": "array",
    "minItems": 1,
    "items": _object(
        {"resource_provider": _object({"uuid": _UUID}, ("uuid",)), "resources": _RESOURCES},
        ("resource_provider", "resources"),
    ),
}


def _mapped(least: int) -> JsonObject:
    return {
        "type": "object",
        "minProperties": least,
        "patternProperties": {UUID_KEY: _object({"generation": _INT, "resources": _RESOURCES}, ("resources",))},
        "additionalProperties": False,
    }


_GENERATION = {"consumer_generation": {"type": ["integer", "null"]}}
_MAPPINGS = {
    "mappings": {
        "type": "object",
        "minProperties": 1,
        "patternProperties": {"[a-zA-Z0-9_-]{1,64}": {"type": "array", "minItems": 1, "items": _UUID}},
    }
}
_TYPE = {"consumer_type": _ID | {"pattern": NAME_KEY}}


def _consumer(minor: int, least: int) -> JsonObject:
    """One consumer's allocations in the form since 1.12."""
    properties: JsonObject = {"allocations": _mapped(least)} | _WHO
    required: tuple[str, ...] = ("allocations", "project_id", "user_id")
    if minor >= 28:
        properties |= _GENERATION
        required += ("consumer_generation",)
    if minor >= 34:
        properties |= _MAPPINGS
    if minor >= 38:
        properties |= _TYPE
        required += ("consumer_type",)
    return _object(properties, required)


def _consumers(minor: int, least: int) -> JsonObject:
    return {
        "type": "object",
        "minProperties": least,
        "patternProperties": {UUID_KEY: _consumer(minor, 0)},
        "additionalProperties": False,
    }


PUT_ALLOCATIONS = [
    (38, Schema(_consumer(38, 0))),
    (34, Schema(_consumer(34, 0))),
    (28, Schema(_consumer(28, 0))),
    (12, Schema(_consumer(12, 1))),
    (8, Schema(_object({"allocations": _LISTED} | _WHO, ("allocations", "project_id", "user_id")))),
    (0, Schema(_object({"allocations": _LISTED}, ("allocations",)))),
]
POST_ALLOCATIONS = [(minor, Schema(_consumers(minor, 1))) for minor in (38, 34, 28, 13)]
RESHAPER = [
    (
        minor,
        Schema(
            _object(
                {
                    "inventories": {
                        "type": "object",
                        "minProperties": 1,
                        "patternProperties": {UUID_KEY: _PUT_INVENTORIES},
                        "additionalProperties": False,
                    },
                    "allocations": _consumers(minor, 0),
                },
                ("inventories", "allocations"),
            )
        ),
    )
    for minor in (38, 34, 28)
]


def _candidates(minor: int) -> Schema:
    properties: JsonObject = {}
    patterns: JsonObject = {}
    suffix = "([a-zA-Z0-9_-]{1,64})?" if minor >= 33 else "([1-9][0-9]*)?"
    plain = [("resources", 10), ("required", 17), ("member_of", 21)]
    if minor < 25:
        properties = {name: _TEXT for name, since in plain if minor >= since}
    else:
        names = ["resources", "required", "member_of"] + (["in_tree"] if minor >= 31 else [])
        patterns = {f"^{name}{suffix}$": _TEXT for name in names}
        properties["group_policy"] = {"type": "string", "enum": ["none", "isolate"]}
    if minor >= 16:
        properties["limit"] = {"type": "string", "pattern": "^[1-9][0-9]*$"}
    if minor >= 35:
        properties["root_required"] = _TEXT
    if minor >= 36:
        properties["same_subtree"] = _TEXT
    required = ("resources",) if minor < 25 else ()
    return Schema(_object(properties, required, patternProperties=patterns))


CANDIDATES = [(minor, _candidates(minor)) for minor in (36, 35, 33, 31, 25, 21, 17, 16, 10)]


def pick(table: list[tuple[int, Schema]], minor: int) -> Schema:
    """The newest schema that is not newer than the version asked for."""
    return next(schema for since, schema in table if minor >= since)
