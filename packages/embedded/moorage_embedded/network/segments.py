"""Segments as a noun of their own: parts of a routed network, each with its own subnets and its own hosts."""

from typing import Any

from moorage_embedded.network import validators
from moorage_embedded.network.attributes import REQUIRED, UNSET, Attr, for_create, for_update, read_only
from moorage_embedded.network.faults import conflict, not_found
from moorage_embedded.network.networks import TYPES, add_segment
from moorage_embedded.network.request import NetworkCall, touched
from moorage_embedded.network.store import Doc

ATTRS: dict[str, Attr] = {
    "id": read_only(),
    "project_id": Attr(put=False),
    "network_id": Attr(validators.is_uuid, REQUIRED, put=False),
    "network_type": Attr(validators.one_of(*TYPES), REQUIRED, put=False),
    "physical_network": Attr(validators.optional(validators.text(64)), UNSET, put=False),
    "segmentation_id": Attr(validators.optional(validators.within(0, 2**24)), UNSET, validators.to_int, put=False),
    "name": Attr(validators.optional(validators.text()), None),
    "description": Attr(validators.optional(validators.text()), ""),
    "created_at": read_only(),
    "updated_at": read_only(),
    "revision_number": read_only(),
}


def create(call: NetworkCall, bodies: list[Any]) -> list[Doc]:
    call.require(call.who.admin, "create_segment")
    made = []
    for body in bodies:
        said = for_create("segment", body, ATTRS, call.who)
        network = call.store.get("network", said["network_id"], lock=True)
        if network is None:
            raise not_found("network", said["network_id"])
        asked = {
            name: said[name]
            for name in ("network_type", "physical_network", "segmentation_id")
            if said[name] is not UNSET
        }
        made.append(add_segment(call, network, asked, name=said["name"], description=said["description"] or ""))
        call.store.put("network", touched(network))
    return made


def update(call: NetworkCall, segment: Doc, body: Any) -> Doc:
    return segment | for_update("segment", body, ATTRS, call.who)


def delete(call: NetworkCall, segment: Doc) -> None:
    id = segment["id"]
    if any(each["segment_id"] == id for each in call.store.children("subnet", segment["network_id"])):
        raise conflict(
            "SegmentInUse", f"Segment '{id}' cannot be deleted: The segment is still associated with subnet(s)."
        )
    network = call.store.get("network", segment["network_id"], lock=True)
    assert network is not None  # a segment goes with its network
    if len(network["_segments"]) == 1 and call.store.first_port(("network", [network["id"]])):
        raise conflict(
            "SegmentInUse", f"Segment '{id}' cannot be deleted: The segment is still associated with port(s)."
        )
    network["_segments"] = [each for each in network["_segments"] if each["id"] != id]
    call.store.put("network", touched(network))
    call.store.drop_holds(id)
    call.store.remove("segment", id)
    call.segments.add(id)
