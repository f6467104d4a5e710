"""JSON schemas of metadata definitions: `/v2/schemas/metadefs/…`."""

from typing import Any

from moorage_embedded.http_kit.values import DRAFT_4, ValueSchema

_TIME = {"type": "string", "readOnly": True, "format": "date-time"}
_NAME = {"type": "string", "maxLength": 80}
_TYPES = ["array", "boolean", "integer", "number", "object", "string", None]
_COUNT = {"type": "integer", "minimum": 0}
_PROPERTY: dict[str, Any] = {
    "name": _NAME,
    "title": {"type": "string"},
    "description": {"type": "string"},
    "operators": {"type": "array", "items": {"type": "string"}},
    "type": {"type": "string", "enum": _TYPES},
    "required": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    "minimum": {"type": "number"},
    "maximum": {"type": "number"},
    "minLength": _COUNT,
    "maxLength": _COUNT,
    "pattern": {"type": "string", "format": "regex"},
    "enum": {"type": "array"},
    "readonly": {"type": "boolean"},
    "default": {},
    "items": {"type": "object", "properties": {"type": {"type": "string", "enum": _TYPES}, "enum": {"type": "array"}}},
    "minItems": _COUNT,
    "maxItems": _COUNT,
    "uniqueItems": {"type": "boolean", "default": False},
    "additionalItems": {"type": "boolean"},
}
_PROPERTIES = {
    "type": "object",
    "additionalProperties": {"type": "object", "properties": _PROPERTY, "required": ["title", "type"]},
}
_ASSOCIATION = {
    "name": _NAME,
    "prefix": {"type": "string", "maxLength": 80},
    "properties_target": {"type": "string", "maxLength": 80},
    "created_at": _TIME,
    "updated_at": _TIME,
}
_TAG = {"name": _NAME, "created_at": _TIME, "updated_at": _TIME}
_OBJECT = {
    "name": _NAME,
    "description": {"type": "string"},
    "required": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    "properties": _PROPERTIES,
    "schema": {"type": "string", "readOnly": True},
    "self": {"type": "string", "readOnly": True},
    "created_at": _TIME,
    "updated_at": _TIME,
}


def _part(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": ["name"]}


_NAMESPACE = {
    "namespace": _NAME,
    "display_name": {"type": "string", "maxLength": 80},
    "description": {"type": "string", "maxLength": 500},
    "visibility": {"type": "string", "enum": ["public", "private"]},
    "protected": {"type": "boolean"},
    "owner": {"type": "string", "maxLength": 255},
    "schema": {"type": "string", "readOnly": True},
    "self": {"type": "string", "readOnly": True},
    "created_at": _TIME,
    "updated_at": _TIME,
    "resource_type_associations": {"type": "array", "items": _part(_ASSOCIATION)},
    "properties": _PROPERTIES,
    "objects": {"type": "array", "items": _part(_OBJECT)},
    "tags": {"type": "array", "items": _part(_TAG)},
}


def _one(name: str, properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"name": name, "properties": properties, "required": list(required), "additionalProperties": False}


def _many(name: str, one: dict[str, Any]) -> dict[str, Any]:
    paged = {"first": {"type": "string"}, "next": {"type": "string"}, "schema": {"type": "string"}}
    return {
        "name": name,
        "properties": {name: {"type": "array", "items": one}, **paged},
        "links": [
            {"rel": "first", "href": "{first}"},
            {"rel": "next", "href": "{next}"},
            {"rel": "describedby", "href": "{schema}"},
        ],
    }


_ONE = {
    "namespace": _one("namespace", _NAMESPACE, "namespace"),
    "object": _one("object", _OBJECT, "name"),
    "property": _one("property", _PROPERTY, "name", "title", "type"),
    "tag": _one("tag", _TAG, "name"),
    "resource_type": _one("resource_type_association", _ASSOCIATION, "name"),
}
SCHEMAS: dict[str, dict[str, Any]] = {
    **_ONE,
    "namespaces": _many("namespaces", _ONE["namespace"]),
    "objects": _many("objects", _ONE["object"]),
    "properties": {"name": "properties", "properties": {"properties": _PROPERTIES}, "links": []},
    "tags": _many("tags", _ONE["tag"]),
    "resource_types": _many("resource_type_associations", _ONE["resource_type"]),
}
"""By the last part of their path."""


def _closed(schema: Any) -> Any:
    """The schema with every object in it limited to what it names: what Glance's types know of a body."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    more = {"additionalProperties": False} if schema.get("type") == "object" and "properties" in schema else {}
    return {name: _closed(each) for name, each in schema.items()} | more


_TAG_LIST = _one("tags", {"tags": {"type": "array", "items": _part({"name": _NAME})}})
_BODIES = {
    **{name: ValueSchema(DRAFT_4 | _closed(schema)) for name, schema in _ONE.items()},
    "tags": ValueSchema(DRAFT_4 | _closed(_TAG_LIST)),
}


def body_of(kind: str) -> ValueSchema:
    """What may be sent to make or change one (`namespace`, `object`, `property`, `tag`, `resource_type`), or all tags (`tags`)."""
    return _BODIES[kind]
