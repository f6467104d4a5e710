"""Trunks: a parent port, and subports that share its wire by tag and are bound where it is."""

from typing import Any

from moorage_embedded.network import ports, validators
from moorage_embedded.network.attributes import REQUIRED, Attr, for_create, for_update, read_only
from moorage_embedded.network.faults import NeutronFault, bad, conflict
from moorage_embedded.network.networks import ADMIN_STATE, COMMON, NAME
from moorage_embedded.network.ownership import needed
from moorage_embedded.network.request import NetworkCall, touched
from moorage_embedded.network.store import Doc

SUBPORTS_MAX = 1_000
OWNER = "trunk:subport"
_SUBPORT = validators.keyed(
    {"port_id": validators.is_uuid},
    {"segmentation_type": validators.one_of("vlan", "inherit"), "segmentation_id": validators.within(1, 4094)},
)
_SUBPORTS = validators.listed(_SUBPORT, SUBPORTS_MAX)
ATTRS: dict[str, Attr] = COMMON | {
    "name": NAME,
    "admin_state_up": ADMIN_STATE,
    "port_id": Attr(validators.is_uuid, REQUIRED, put=False),
    "sub_ports": Attr(_SUBPORTS, list, put=False),
    "status": read_only(),
}


def _details(call: NetworkCall, trunk: Doc) -> Doc:
    """Write what the parent port shows of its trunk, and bind its subports; the trunk as it is then."""
    port = call.store.get("port", trunk["port_id"], lock=True)
    assert port is not None  # a port that is a parent is not deleted
    port["trunk_details"] = {"trunk_id": trunk["id"], "sub_ports": trunk["_shown"]}
    call.store.put("port", touched(port))
    ports.wire_trunk(call, port)
    return call.store.get("trunk", trunk["id"]) or trunk


def create(call: NetworkCall, bodies: list[Any]) -> list[Doc]:
    made = []
    for body in bodies:
        said = for_create("trunk", body, ATTRS, call.who)
        call.require(call.who.writes(said["project_id"]), "create_trunk")
        parent = needed(call, "port", said["port_id"], "change", lock=True)
        if parent["binding:host_id"] and parent["device_owner"].startswith("compute:"):
            raise conflict(
                "ParentPortInUse",
                f"Port {parent['id']} is currently in use and is not eligible for use as a parent port.",
            )
        trunk = call.born(said["project_id"]) | {
            name: said[name] for name in ("name", "description", "tags", "admin_state_up", "port_id")
        }
        trunk |= {"status": "DOWN", "sub_ports": [], "revision_number": 1, "_shown": []}
        if not call.store.hold("trunk-port", parent["id"], trunk["id"]):
            raise conflict("TrunkPortInUse", f"Port {parent['id']} is in use by another trunk.")
        call.charge(said["project_id"], "trunk")
        _take(call, trunk, said["sub_ports"])
        call.store.add("trunk", trunk)
        made.append(_details(call, trunk))
    return made


def _take(call: NetworkCall, trunk: Doc, asked: list[dict[str, Any]]) -> None:
    tags = {(each["segmentation_type"], each["segmentation_id"]) for each in trunk["sub_ports"]}
    for each in asked:
        if "segmentation_id" not in each or each.get("segmentation_type") != "vlan":
            raise bad("Invalid input for sub_ports. Reason: segmentation_type vlan and segmentation_id are required.")
        tag = ("vlan", each["segmentation_id"])
        if tag in tags:
            text = f"segmentation_type 'vlan' and segmentation_id '{tag[1]}' already in use on trunk {trunk['id']}."
            raise conflict("DuplicateSubPort", text)
        tags.add(tag)
        port = needed(call, "port", each["port_id"], "change", lock=True)
        if port["id"] == trunk["port_id"] or not call.store.hold("trunk-port", port["id"], f"{trunk['id']}:{tag[1]}"):
            raise conflict("TrunkPortInUse", f"Port {port['id']} is in use by another trunk.")
        if port["device_id"]:
            raise conflict("PortInUse", f"Port {port['id']} has an attached device.")
        _check_mtu(call, trunk, port)
        port |= {"device_owner": OWNER, "device_id": ""}
        call.store.put("port", touched(port))
        row = {"port_id": port["id"], "segmentation_type": "vlan", "segmentation_id": tag[1]}
        trunk["sub_ports"].append(row)
        trunk["_shown"].append(row | {"mac_address": port["mac_address"]})


def _check_mtu(call: NetworkCall, trunk: Doc, port: Doc) -> None:
    parent = call.store.get("port", trunk["port_id"])
    found = [call.store.get("network", each["network_id"]) for each in (port, parent) if each is not None]
    mtus = [each["mtu"] for each in found if each is not None]
    if len(mtus) == 2 and mtus[0] > mtus[1]:
        text = f"MTU {mtus[0]} of subport {port['id']} cannot be greater than MTU {mtus[1]} of trunk {trunk['id']}."
        raise conflict("SubPortMtuGreaterThanTrunkPortMtu", text)


def _release(call: NetworkCall, trunk: Doc, wanted: set[str]) -> None:
    for each in trunk["sub_ports"]:
        if each["port_id"] in wanted:
            call.store.drop_holds(f"{trunk['id']}:{each['segmentation_id']}")
            ports.bind_subport(call, each["port_id"], "")
            port = call.store.get("port", each["port_id"], lock=True)
            if port is not None:
                call.store.put("port", touched(port | {"device_owner": ""}))
    for name in ("sub_ports", "_shown"):
        trunk[name] = [each for each in trunk[name] if each["port_id"] not in wanted]


def update(call: NetworkCall, trunk: Doc, body: Any) -> Doc:
    return trunk | for_update("trunk", body, ATTRS, call.who)


def delete(call: NetworkCall, trunk: Doc) -> None:
    call.require(call.who.writes(trunk["project_id"]), "delete_trunk")
    port = call.store.get("port", trunk["port_id"], lock=True)
    if port is not None:
        if port["binding:host_id"]:
            raise conflict("TrunkInUse", f"Trunk {trunk['id']} is currently in use.")
        del port["trunk_details"]
        call.store.put("port", touched(port))
    _release(call, trunk, {each["port_id"] for each in trunk["sub_ports"]})
    call.store.drop_holds(trunk["id"])
    call.store.remove("trunk", trunk["id"])
    call.charge(trunk["project_id"], "trunk", -1)


def change_subports(call: NetworkCall, trunk: Doc, body: Any, *, add: bool) -> Doc:
    """Add or remove subports. Raises NeutronFault: 403, 400 for wrong ones, 404 for missing ones."""
    call.require(call.who.writes(trunk["project_id"]), "add_subports" if add else "remove_subports")
    if reason := _SUBPORTS(body.get("sub_ports")):
        raise bad(f"Invalid input for sub_ports. Reason: {reason}.")
    if add:
        _take(call, trunk, body["sub_ports"])
    else:
        wanted = {each["port_id"] for each in body["sub_ports"]}
        if missing := wanted - {each["port_id"] for each in trunk["sub_ports"]}:
            text = f"SubPort on trunk {trunk['id']} with parent port {min(missing)} could not be found."
            raise NeutronFault(404, "SubPortNotFound", text)
        _release(call, trunk, wanted)
    call.store.put("trunk", touched(trunk))
    return {name: value for name, value in _details(call, trunk).items() if not name.startswith("_")}
