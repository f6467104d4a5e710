"""JSON schemas of metadata definitions: `/v2/schemas/metadefs/…`."""

from typing import Any

_TIME = {"type": "string", "readOnly": True, "format": "date-time"}
_NAME = {"type": "string", "maxLength": 80}
_TYPES = ["array", "boolean", "integer", "number", "object", "string", None]
_COUNT = {"type": "integer", "minimum": 0}
_PROPERTY: dict[str, Any] = {
    "name": {"type": "string", "maxLength": 255},
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
_PROPERTIES = {"type": "object", "additionalProperties": {"type": "object", "properties": _PROPERTY}}
_ASSOCIATION = {
    "name": _NAME,
    "prefix": {"type": "string", "maxLength": 80},
    "properties_target": {"type": "string", "maxLength": 80},
    "created_at": _TIME,
    "updated_at": _TIME,
}
_TAG = {"name": _NAME, "created_at": _TIME, "updated_at": _TIME}
_OBJECT = {
    "name": {"type": "string", "maxLength": 255},
    "description": {"type": "string"},
    "required": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    "properties": _PROPERTIES,
    "schema": {"type": "string", "readOnly": True},
    "self": {"type": "string", "readOnly": True},
    "created_at": _TIME,
    "updated_at": _TIME,
}
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
    "resource_type_associations": {"type": "array", "items": {"type": "object", "properties": _ASSOCIATION}},
    "properties": _PROPERTIES,
    "objects": {"type": "array", "items": {"type": "object", "properties": _OBJECT}},
    "tags": {"type": "array", "items": {"type": "object", "properties": _TAG}},
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
