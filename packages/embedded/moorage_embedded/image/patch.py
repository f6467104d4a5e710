"""JSON patch, in the two dialects Glance takes: of 2.1 (`op`, `path`) and of 2.0 (the operation is the key)."""

import re
from dataclasses import dataclass
from typing import Any

from jsonpatch import JsonPatch, JsonPatchConflict
from jsonpointer import JsonPointer, JsonPointerException

from moorage_embedded.http_kit.answers import HttpFault
from moorage_embedded.image import attributes
from moorage_embedded.image.faults import bad, conflict, forbidden, read_only
from moorage_embedded.image.policy import ImageCaller
from moorage_embedded.image.store import BASE, Doc

OPERATIONS = ("add", "remove", "replace")
CHANGES_MAX = 500
OLD = "application/openstack-images-v2.0-json-patch"
NEW = "application/openstack-images-v2.1-json-patch"


@dataclass(frozen=True)
class Change:
    op: str
    name: str
    value: Any
    strict: bool
    """In the old dialect, `add` of what is there already is a conflict."""


def check_media(media: str) -> None:
    """Check the content type of a PATCH. Raises HttpFault (415)."""
    if media not in {OLD, NEW}:
        raise HttpFault(
            415, f"Image PATCH expects Content-Type one of: {OLD}, {NEW}", {"Accept-Patch": f"{OLD}, {NEW}"}
        )


def changes_of(media: str, said: Any) -> list[Change]:
    """What the body asks to change, each on its own already found allowed."""
    if not isinstance(said, list):
        raise bad("Request body must be a JSON array of operation objects.")
    if len(said) > CHANGES_MAX:
        raise bad(f"There may be {CHANGES_MAX} changes at most.")
    return [_change(each, old=media == OLD) for each in said]


def _change(said: Any, *, old: bool) -> Change:
    if not isinstance(said, dict):
        raise bad("Operations must be JSON objects.")
    op, pointer = _old(said) if old else _new(said)
    path = _path(pointer)
    name = path[0]
    if name == "locations":
        raise forbidden(f"It's not allowed to {op} locations if locations are invisible.")
    if len(path) != 1:
        raise bad(f"Invalid JSON pointer for this resource: '/{'/'.join(path)}'")
    if op != "remove" and "value" not in said:
        raise bad(f'Operation "{op}" requires a member named "value".')
    if name in attributes.READ_ONLY:
        raise read_only(name)
    attributes.check_name(name)
    if op != "remove":
        attributes.check(name, said["value"])
    return Change(op, name, said.get("value"), old)


def _new(said: dict[str, Any]) -> tuple[str, Any]:
    op, names = said.get("op"), ", ".join(OPERATIONS)
    if op is None:
        raise bad(f"Unable to find `op` in JSON Schema change. It must be one of the following: {names}.")
    if op not in OPERATIONS:
        raise bad(f"Invalid operation: `{op}`. It must be one of the following: {names}.")
    if "path" not in said:
        raise bad("Unable to find 'path' in JSON Schema change")
    return op, said["path"]


def _old(said: dict[str, Any]) -> tuple[str, Any]:
    ops = [op for op in OPERATIONS if op in said]
    if len(ops) != 1:
        raise bad('Operation objects must contain exactly one member named "add", "remove", or "replace".')
    return ops[0], said[ops[0]]


def _path(pointer: Any) -> list[str]:
    if not isinstance(pointer, str) or not pointer.startswith("/"):
        raise bad(f'Pointer `{pointer}` does not start with "/".')
    if re.search(r"/\s*/", pointer):
        raise bad(f'Pointer `{pointer}` contains adjacent "/".')
    if len(pointer) > 1 and pointer.endswith("/"):
        raise bad(f'Pointer `{pointer}` end with "/".')
    try:
        return [part.strip() for part in JsonPointer(pointer).parts]
    except JsonPointerException:
        raise bad(f'Pointer `{pointer}` contains "~" not part of a recognized escape sequence.') from None


def apply(doc: Doc, changes: list[Change], who: ImageCaller) -> None:
    """Change the document; all or nothing, because the caller stores it only when this returns. Raises Fault."""
    for change in changes:
        _check_allowed(doc, change, who)
        value = sorted(set(change.value)) if change.name == "tags" else change.value
        operation = {"op": change.op, "path": JsonPointer.from_parts([change.name]).path, "value": value}
        try:
            JsonPatch([operation]).apply(doc, in_place=True)
        except JsonPatchConflict:
            raise conflict(f"Property {change.name} does not exist.") from None


def _check_allowed(doc: Doc, change: Change, who: ImageCaller) -> None:
    name, value = change.name, change.value
    if change.op == "remove":
        if name in BASE:
            raise forbidden(f"Property {name} may not be removed.")
        return
    if change.op == "add" and change.strict and name in doc:
        raise conflict(f"Property {name} already present.")
    if name == "owner" and not who.admin:
        raise forbidden("Owner can't be updated by non admin.")
    if name in {"disk_format", "container_format"} and doc["status"] != "queued" and value != doc[name]:
        raise forbidden(f"Attribute {name} can be only replaced for a queued image.")
    if name == "visibility" and value != doc[name]:
        attributes.check_visibility(who, value)
