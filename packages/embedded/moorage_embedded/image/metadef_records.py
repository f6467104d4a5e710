"""A namespace of metadata definitions: what it says of itself, and the definitions in it."""

from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

import msgspec

Json: TypeAlias = dict[str, Any]
PUBLIC, PRIVATE = "public", "private"
RESOURCE_TYPES = (
    "OS::Cinder::Volume",
    "OS::Glance::Image",
    "OS::Nova::Aggregate",
    "OS::Nova::Flavor",
    "OS::Nova::Server",
)
"""Types that there are from the start: those of the services beside this one, as Glance's own definitions name them."""


class NamespaceHeader(msgspec.Struct):
    """All of a namespace but the definitions in it."""

    name: str
    owner: str
    visibility: str
    protected: bool
    created_at: str
    updated_at: str
    born: str
    """To the microsecond: namespaces made in one second are listed in the order they were made in."""
    display_name: str | None = None
    description: str | None = None
    associations: list[Json] = []


class NamespaceContents(msgspec.Struct):
    properties: dict[str, Json] = {}
    objects: list[Json] = []
    tags: list[Json] = []


@dataclass(frozen=True)
class MetadefNamespace:
    header: NamespaceHeader
    contents: NamespaceContents
    from_file: bool = False
    """The operator's file says it, so nothing of it is changed over HTTP."""


def href(namespace: str, *more: str) -> str:
    """Where a namespace, or something in it, is found."""
    return "/".join(("/v2/metadefs/namespaces", *(quote(each, safe=":") for each in (namespace, *more))))


def without_nulls(shown: Json) -> Json:
    """Glance leaves out what has no value."""
    return {name: value for name, value in shown.items() if value is not None}


def namespace_view(header: NamespaceHeader) -> Json:
    return without_nulls(
        {
            "namespace": header.name,
            "display_name": header.display_name,
            "description": header.description,
            "visibility": header.visibility,
            "protected": header.protected,
            "owner": header.owner,
            "created_at": header.created_at,
            "updated_at": header.updated_at,
            "resource_type_associations": header.associations or None,
            "self": href(header.name),
            "schema": "/v2/schemas/metadefs/namespace",
        }
    )


def object_view(namespace: str, record: Json) -> Json:
    said = {"required": [], "properties": {}, **without_nulls(record)}
    return said | {"self": href(namespace, "objects", record["name"]), "schema": "/v2/schemas/metadefs/object"}


def prefix_of(header: NamespaceHeader, resource_type: str) -> str | None:
    """What the names of properties begin with at things of this type; None: the type is not associated."""
    for each in header.associations:
        if each["name"] == resource_type:
            return str(each.get("prefix") or "")
    return None


def prefixed(properties: Json, prefix: str) -> Json:
    return {prefix + name: said for name, said in properties.items()}
