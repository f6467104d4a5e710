"""`/{noun}/{id}/tags`."""

from typing import Any

from moorage_embedded.network import crud
from moorage_embedded.network.faults import NeutronFault, bad
from moorage_embedded.network.request import NetworkCall, NetworkRequest, touched
from moorage_embedded.network.resources import ResourceType
from moorage_embedded.network.store import Doc
from moorage_embedded.network.validators import listed, text

TAGS_MAX = 50
_tags = listed(text(255), TAGS_MAX, unique=True)


def _locked(call: NetworkCall, noun: ResourceType, ask: NetworkRequest) -> Doc:
    doc = crud.find(call, noun, ask.path["id"], lock=True)
    call.require(call.who.writes(doc["project_id"]) or call.who.service, f"update_{noun.name}:tags")
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


def show(noun: ResourceType, call: NetworkCall, ask: NetworkRequest) -> Doc:
    return {"tags": sorted(crud.find(call, noun, ask.path["id"])["tags"])}


def replace(noun: ResourceType, call: NetworkCall, ask: NetworkRequest) -> Doc:
    said = _tags_of_body(ask.body)
    return _keep(call, noun, _locked(call, noun, ask), said)


def extend(noun: ResourceType, call: NetworkCall, ask: NetworkRequest) -> Doc:
    """Several added to those there are."""
    said = _tags_of_body(ask.body)
    doc = _locked(call, noun, ask)
    return _keep(call, noun, doc, [*doc["tags"], *(tag for tag in said if tag not in doc["tags"])])


def clear(noun: ResourceType, call: NetworkCall, ask: NetworkRequest) -> None:
    _keep(call, noun, _locked(call, noun, ask), [])


def _held(doc: Doc, tag: str) -> str:
    if tag not in doc["tags"]:
        raise NeutronFault(404, "TagNotFound", f"Tag {tag} could not be found.")
    return tag


def check(noun: ResourceType, call: NetworkCall, ask: NetworkRequest) -> None:
    """Check a tag. Raises NeutronFault (404)."""
    _held(crud.find(call, noun, ask.path["id"]), ask.path["tag"])


def add(noun: ResourceType, call: NetworkCall, ask: NetworkRequest) -> Doc:
    tag = ask.path["tag"]
    if reason := text(255)(tag):
        raise bad(f"Invalid input for tag. Reason: {reason}.")
    doc = _locked(call, noun, ask)
    _keep(call, noun, doc, doc["tags"] if tag in doc["tags"] else [*doc["tags"], tag])
    return {}


def remove(noun: ResourceType, call: NetworkCall, ask: NetworkRequest) -> None:
    """Remove a tag. Raises NeutronFault (404)."""
    doc = _locked(call, noun, ask)
    tag = _held(doc, ask.path["tag"])
    _keep(call, noun, doc, [each for each in doc["tags"] if each != tag])
