"""`/{noun}/{id}/tags`."""

from typing import Any

from moorage_embedded.network import crud
from moorage_embedded.network.faults import NeutronFault, bad, forbidden
from moorage_embedded.network.request import NetworkCall, touched
from moorage_embedded.network.resources import ResourceType
from moorage_embedded.network.store import Doc
from moorage_embedded.network.validators import listed, text

TAGS_MAX = 50
_tags = listed(text(255), TAGS_MAX, unique=True)


def _locked(call: NetworkCall, noun: ResourceType, id: str) -> Doc:
    doc = crud.find(call, noun, id, lock=True)
    if not (call.who.writes(doc["project_id"]) or call.who.service):
        raise forbidden(f"update_{noun.name}:tags")
    return doc


def _keep(call: NetworkCall, noun: ResourceType, doc: Doc, tags: list[str]) -> Doc:
    if len(tags) > TAGS_MAX:
        raise bad(f"The number of tags exceed the per-resource limit of {TAGS_MAX}")
    if set(tags) != set(doc["tags"]):
        doc["tags"] = sorted(tags)
        noun.put(call, touched(doc))
    return {"tags": sorted(doc["tags"])}


def _tags_of_body(body: Any) -> list[str]:
    if not isinstance(body, dict) or set(body) != {"tags"}:
        raise bad("Invalid tags body")
    if reason := _tags(body["tags"]):
        raise bad(f"Invalid input for tags. Reason: {reason}.")
    return list(body["tags"])


def show(call: NetworkCall, noun: ResourceType, id: str) -> Doc:
    return {"tags": sorted(crud.find(call, noun, id)["tags"])}


def replace(call: NetworkCall, noun: ResourceType, id: str, body: Any) -> Doc:
    said = _tags_of_body(body)
    return _keep(call, noun, _locked(call, noun, id), said)


def extend(call: NetworkCall, noun: ResourceType, id: str, body: Any) -> Doc:
    """Several added to those there are."""
    said = _tags_of_body(body)
    doc = _locked(call, noun, id)
    return _keep(call, noun, doc, [*doc["tags"], *(tag for tag in said if tag not in doc["tags"])])


def clear(call: NetworkCall, noun: ResourceType, id: str) -> None:
    _keep(call, noun, _locked(call, noun, id), [])


def check(call: NetworkCall, noun: ResourceType, id: str, tag: str) -> None:
    """Check a tag. Raises NeutronFault (404)."""
    if tag not in crud.find(call, noun, id)["tags"]:
        raise NeutronFault(404, "TagNotFound", f"Tag {tag} could not be found.")


def add(call: NetworkCall, noun: ResourceType, id: str, tag: str) -> None:
    if reason := text(255)(tag):
        raise bad(f"Invalid input for tag. Reason: {reason}.")
    doc = _locked(call, noun, id)
    _keep(call, noun, doc, doc["tags"] if tag in doc["tags"] else [*doc["tags"], tag])


def remove(call: NetworkCall, noun: ResourceType, id: str, tag: str) -> None:
    """Remove a tag. Raises NeutronFault (404)."""
    doc = _locked(call, noun, id)
    if tag not in doc["tags"]:
        raise NeutronFault(404, "TagNotFound", f"Tag {tag} could not be found.")
    _keep(call, noun, doc, [each for each in doc["tags"] if each != tag])
