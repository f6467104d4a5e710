"""The operator's files of metadata definitions: one namespace each, in the JSON form of Glance's `etc/metadefs`.

They are read once, at start, and what cannot be read is logged and left out.  Their namespaces are read-only over HTTP: a change is a
change of the files.
"""

import json as standard_json
import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from moorage_embedded.image.metadef_records import PUBLIC, Json, MetadefNamespace, NamespaceContents, NamespaceHeader
from moorage_embedded.image.request import fine, second

Metadefs: TypeAlias = Mapping[str, MetadefNamespace]

FILES_MAX = 500
FILE_MAX_BYTES = 1024 * 1024
_log = logging.getLogger(__name__)


def read_metadefs(directory: Path | None) -> dict[str, MetadefNamespace]:
    """Every namespace of a directory, by name; none without one."""
    found: dict[str, MetadefNamespace] = {}
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
        found[namespace.header.name] = namespace
    return found


def without_overridden(files: Metadefs, written: set[str]) -> dict[str, MetadefNamespace]:
    """The files' namespaces but for those that were written over HTTP before, as `glance-manage db_load_metadefs` skips them."""
    for name in sorted(written & files.keys()):
        _log.warning("the file of the metadata definitions %s is left out: there is a namespace of that name", name)
    return {name: each for name, each in files.items() if name not in written}


def _read(file: Path) -> MetadefNamespace:
    if file.stat().st_size > FILE_MAX_BYTES:
        raise ValueError(f"it is larger than {FILE_MAX_BYTES} bytes")
    said: dict[str, Any] = standard_json.loads(file.read_text(encoding="utf-8"))
    moment = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    at = second(moment)
    header = NamespaceHeader(
        name=str(said["namespace"]),
        owner=said.get("owner", "admin"),
        visibility=said.get("visibility", PUBLIC),
        protected=bool(said.get("protected", False)),
        created_at=at,
        updated_at=at,
        born=fine(moment),
        display_name=said.get("display_name", ""),
        description=said.get("description", ""),
        associations=[{**each, "created_at": at} for each in said.get("resource_type_associations", [])],
    )
    properties: dict[str, Any] = said.get("properties", {})
    contents = NamespaceContents(
        properties,
        [_object(each, at) for each in said.get("objects", [])],
        [{"name": each["name"], "created_at": at, "updated_at": at} for each in said.get("tags", [])],
    )
    if not all(isinstance(each["name"], str) for each in (*header.associations, *contents.objects, *contents.tags)):
        raise ValueError("a resource type, an object or a tag has no name")
    if not all(isinstance(each, dict) for each in properties.values()):
        raise ValueError("a property is no object")
    return MetadefNamespace(header, contents, from_file=True)


def _object(said: Json, at: str) -> Json:
    return {
        "name": said["name"],
        "description": said.get("description", ""),
        "required": list(said.get("required", [])),
        "properties": said.get("properties", {}),
        "created_at": at,
        "updated_at": at,
    }
