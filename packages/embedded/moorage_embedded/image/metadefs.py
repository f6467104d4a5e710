"""Metadata definitions: which properties images, flavors and volumes may have, for dashboards to offer.

The operator's files are the truth, one namespace each, in the JSON form of Glance's `etc/metadefs`; they are read once, at start, and
what cannot be read is logged and left out.  Nothing is written over HTTP: a change is a change of the files.
"""

import json as standard_json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from starlette.responses import Response

from moorage_embedded.http_kit.answers import HttpFault, json_response
from moorage_embedded.image.faults import bad, not_allowed, not_found
from moorage_embedded.image.request import ImageCall, second

Json: TypeAlias = dict[str, Any]

FILES_MAX = 500
FILE_MAX_BYTES = 1024 * 1024
PUBLIC, PRIVATE = "public", "private"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Namespace:
    """One file."""

    name: str
    at: str
    """When the file was written, as it is shown."""
    said: Json = field(default_factory=dict)

    @property
    def associations(self) -> list[Json]:
        return [{**each, "created_at": self.at} for each in self.said.get("resource_type_associations", [])]

    @property
    def properties(self) -> Json:
        found: Json = self.said.get("properties", {})
        return found

    @property
    def objects(self) -> list[Json]:
        return list(self.said.get("objects", []))

    @property
    def tags(self) -> list[Json]:
        return [{"name": each["name"]} for each in self.said.get("tags", [])]


Metadefs: TypeAlias = Mapping[str, Namespace]


def read_metadefs(directory: Path | None) -> Metadefs:
    """Every namespace of a directory, by name; none without one."""
    found: dict[str, Namespace] = {}
    if directory is None:
        return found
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".json"))[:FILES_MAX]
    except OSError as failure:
        _log.error("metadata definitions cannot be read from %s: %s", directory, failure)
        return found
    for name in names:
        try:
            namespace = _read(directory / name)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as failure:
            _log.error("%s is no file of metadata definitions and is left out: %r", directory / name, failure)
            continue
        found[namespace.name] = namespace
    return found


def _read(file: Path) -> Namespace:
    if file.stat().st_size > FILE_MAX_BYTES:
        raise ValueError(f"it is larger than {FILE_MAX_BYTES} bytes")
    said = standard_json.loads(file.read_text(encoding="utf-8"))
    at = second(datetime.fromtimestamp(file.stat().st_mtime, UTC))
    namespace = Namespace(str(said["namespace"]), at, said)
    if not all(
        isinstance(each["name"], str) for each in (*namespace.associations, *namespace.objects, *namespace.tags)
    ):
        raise ValueError("a resource type, an object or a tag has no name")
    if not all(isinstance(each, dict) for each in namespace.properties.values()):
        raise ValueError("a property is no object")
    return namespace


# ----------------------------------------------------------------------------------------------------- shown


def _path(namespace: Namespace, *more: str) -> str:
    return "/".join(("/v2/metadefs/namespaces", *(quote(each, safe=":") for each in (namespace.name, *more))))


def _brief(namespace: Namespace) -> Json:
    said = namespace.said
    shown: Json = {
        "namespace": namespace.name,
        "display_name": said.get("display_name", ""),
        "description": said.get("description", ""),
        "visibility": said.get("visibility", PUBLIC),
        "protected": bool(said.get("protected", False)),
        "owner": said.get("owner", "admin"),
        "created_at": namespace.at,
        "updated_at": namespace.at,
        "self": _path(namespace),
        "schema": "/v2/schemas/metadefs/namespace",
    }
    if namespace.associations:
        shown["resource_type_associations"] = namespace.associations
    return shown


def _object(namespace: Namespace, said: Json) -> Json:
    return {
        "name": said["name"],
        "description": said.get("description", ""),
        "required": list(said.get("required", [])),
        "properties": said.get("properties", {}),
        "created_at": namespace.at,
        "updated_at": namespace.at,
        "self": _path(namespace, "objects", said["name"]),
        "schema": "/v2/schemas/metadefs/object",
    }


def _prefix(namespace: Namespace, resource_type: str | None) -> str:
    """What the names of properties begin with, at things of this type. Raises 404 for one that is not associated."""
    if resource_type is None:
        return ""
    for each in namespace.associations:
        if each["name"] == resource_type:
            return str(each.get("prefix") or "")
    raise not_found(
        f"The metadata definition resource-type association of resource-type={resource_type} to "
        f"namespace={namespace.name} was not found."
    )


def _prefixed(properties: Json, prefix: str) -> Json:
    return {prefix + name: said for name, said in properties.items()}


# -------------------------------------------------------------------------------------------------------- verbs


def _all(call: ImageCall) -> list[Namespace]:
    """Those that the caller may see; without a role that reads, none."""
    if not call.who.reader:
        raise not_allowed("get_metadef_namespaces")
    every = call.context.metadefs.values()
    mine = (call.who.project, "admin" if call.who.admin else None)
    return [
        each
        for each in every
        if each.said.get("visibility", PUBLIC) == PUBLIC or each.said.get("owner", "admin") in mine
    ]


def _one(call: ImageCall) -> Namespace:
    name = call.path("namespace")
    for each in _all(call):
        if each.name == name:
            return each
    raise not_found(f"Metadata definition namespace not found: {name}")


def _query_value(call: ImageCall, name: str) -> str | None:
    return next((value for key, value in call.pairs if key == name), None)


async def index(call: ImageCall) -> Response:
    """In the order of their names; `resource_types`, `visibility`, `limit` and `marker` narrow it."""
    found = sorted(_all(call), key=lambda each: each.name)
    types, visibility = _query_value(call, "resource_types"), _query_value(call, "visibility")
    if visibility not in (None, PUBLIC, PRIVATE):
        raise bad(f"Invalid visibility value: {visibility}")
    if types is not None:
        wanted = set(types.split(","))
        found = [each for each in found if wanted & {assoc["name"] for assoc in each.associations}]
    if visibility is not None:
        found = [each for each in found if each.said.get("visibility", PUBLIC) == visibility]
    limit = _limit(call)
    marker = _query_value(call, "marker")
    if marker is not None:
        if marker not in {each.name for each in found}:
            raise not_found(f"Metadata definition namespace not found: {marker}")
        found = [each for each in found if each.name > marker]
    page = found[:limit]
    answer: Json = {
        "namespaces": [_brief(each) for each in page],
        "first": "/v2/metadefs/namespaces",
        "schema": "/v2/schemas/metadefs/namespaces",
    }
    if len(found) > len(page) and page:
        kept = "".join(f"&{key}={quote(value)}" for key, value in call.pairs if key not in {"marker", "limit"})
        answer["next"] = f"/v2/metadefs/namespaces?marker={quote(page[-1].name)}&limit={limit}{kept}"
    return json_response(answer)


def _limit(call: ImageCall) -> int:
    asked, most = _query_value(call, "limit"), call.context.settings.page_max
    if asked is None:
        return most
    if not asked.isascii() or not asked.isdecimal() or len(asked) > 9:
        raise bad("limit param must be an integer")
    return min(int(asked), most)


async def show(call: ImageCall) -> Response:
    namespace = _one(call)
    shown, prefix = _brief(namespace), _prefix(namespace, _query_value(call, "resource_type"))
    if namespace.properties:
        shown["properties"] = _prefixed(namespace.properties, prefix)
    if namespace.objects:
        shown["objects"] = [
            {**_object(namespace, each), "properties": _prefixed(each.get("properties", {}), prefix)}
            for each in namespace.objects
        ]
    if namespace.tags:
        shown["tags"] = namespace.tags
    return json_response(shown)


async def properties(call: ImageCall) -> Response:
    return json_response({"properties": _one(call).properties})


async def property_(call: ImageCall) -> Response:
    namespace, name = _one(call), call.path("name")
    asked_without = name.removeprefix(_prefix(namespace, _query_value(call, "resource_type")))
    if asked_without not in namespace.properties:
        raise not_found(
            f"The metadata definition property with name={name} was not found in namespace={namespace.name}."
        )
    return json_response({"name": name, **namespace.properties[asked_without]})


async def objects(call: ImageCall) -> Response:
    namespace = _one(call)
    found = [_object(namespace, each) for each in namespace.objects]
    return json_response(
        {"objects": found, "first": _path(namespace, "objects"), "schema": "/v2/schemas/metadefs/objects"}
    )


async def object_(call: ImageCall) -> Response:
    namespace, name = _one(call), call.path("name")
    for each in namespace.objects:
        if each["name"] == name:
            return json_response(_object(namespace, each))
    raise not_found(f"The metadata definition object with name={name} was not found in namespace={namespace.name}.")


async def tags(call: ImageCall) -> Response:
    namespace = _one(call)
    return json_response(
        {"tags": namespace.tags, "first": _path(namespace, "tags"), "schema": "/v2/schemas/metadefs/tags"}
    )


async def tag(call: ImageCall) -> Response:
    namespace, name = _one(call), call.path("name")
    if name not in {each["name"] for each in namespace.tags}:
        raise not_found(f"The metadata definition tag with name={name} was not found in namespace={namespace.name}.")
    return json_response({"name": name, "created_at": namespace.at, "updated_at": namespace.at})


async def associations(call: ImageCall) -> Response:
    return json_response({"resource_type_associations": _one(call).associations})


async def resource_types(call: ImageCall) -> Response:
    """Every type that some namespace is associated with."""
    found: dict[str, str] = {}
    for namespace in _all(call):
        for each in namespace.associations:
            found.setdefault(each["name"], namespace.at)
    rows = [{"name": name, "created_at": at, "updated_at": at} for name, at in sorted(found.items())]
    return json_response({"resource_types": rows})


async def refuse(call: ImageCall) -> Response:
    """Refuse changes: metadata definitions are the operator's files. Raises HttpFault (403)."""
    if not call.who.admin:
        raise not_allowed("metadef_admin")
    raise HttpFault(
        403, "Metadata definitions are files of the operator here: change them there, and start the service again."
    )
