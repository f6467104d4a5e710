"""Floating IPs, as records: an address of an external network that stands for a fixed one behind a router."""

from typing import Any

from moorage_embedded.network import ports, validators
from moorage_embedded.network.attributes import REQUIRED, UNSET, Attr, admin, for_create, for_update, read_only
from moorage_embedded.network.faults import NeutronFault, bad, conflict
from moorage_embedded.network.networks import COMMON
from moorage_embedded.network.ownership import needed
from moorage_embedded.network.request import NetworkCall
from moorage_embedded.network.routers import GATEWAY, INTERFACE
from moorage_embedded.network.store import Doc

OWNER = "network:floatingip"
ATTRS: dict[str, Attr] = COMMON | {
    "floating_network_id": Attr(validators.is_uuid, REQUIRED, put=False),
    "floating_ip_address": Attr(validators.optional(validators.is_address), UNSET, put=False, may_post=admin),
    "subnet_id": Attr(validators.optional(validators.is_uuid), UNSET, put=False),
    "port_id": Attr(validators.optional(validators.is_uuid), None),
    "fixed_ip_address": Attr(validators.optional(validators.is_address), None, validators.to_address),
    "router_id": read_only(),
    "status": read_only(),
    "port_details": read_only(),
    "dns_name": Attr(validators.line(), "", put=False),
    "dns_domain": Attr(validators.line(), "", put=False),
    "port_forwardings": read_only(),
}


def create(call: NetworkCall, bodies: list[Any]) -> list[Doc]:
    return [_make(call, for_create("floatingip", body, ATTRS, call.who)) for body in bodies]


def _make(call: NetworkCall, said: dict[str, Any]) -> Doc:
    call.require(call.who.writes(said["project_id"]), "create_floatingip")
    network = needed(call, "network", said["floating_network_id"], "floating_ip")
    call.charge(said["project_id"], "floatingip")
    floating = call.born(said["project_id"]) | {
        name: said[name] for name in ("floating_network_id", "description", "tags", "dns_name", "dns_domain")
    }
    body: dict[str, Any] = {
        "network_id": network["id"], "project_id": "", "device_id": floating["id"], "device_owner": OWNER,
    }  # fmt: skip
    asked = {
        key: said[name]
        for name, key in (("floating_ip_address", "ip_address"), ("subnet_id", "subnet_id"))
        if said[name] not in (UNSET, None)
    }
    if asked:
        body["fixed_ips"] = [asked]
    port = ports.create(call.ourselves(), [body])[0]
    if not port["fixed_ips"]:
        text = f"Unable to find any IP address on external network {network['id']}."
        raise NeutronFault(400, "ExternalIpAddressExhausted", text)
    floating |= {
        "floating_ip_address": port["fixed_ips"][0]["ip_address"], "port_forwardings": [],
        "revision_number": 1, "_port": port["id"],
    }  # fmt: skip
    _disassociate(floating)
    if said["port_id"] is not None:
        _join(call, floating, said["port_id"], said["fixed_ip_address"])
    elif said["fixed_ip_address"] is not None:
        raise bad("Bad floatingip request: fixed_ip_address cannot be specified without a port_id.")
    call.store.add("floatingip", floating, parent=network["id"], key=floating["port_id"] or "")
    return floating


def _disassociate(floating: Doc) -> None:
    floating |= {
        "port_id": None, "fixed_ip_address": None, "router_id": None, "status": "DOWN", "port_details": None,
        "_subnet": None,
    }  # fmt: skip


def _join(call: NetworkCall, floating: Doc, id: str, fixed: str | None) -> None:
    port = needed(call, "port", id, "floating_ip", project=floating["project_id"])
    addresses = [each for each in port["fixed_ips"] if ":" not in each["ip_address"]]
    chosen = next((each for each in addresses if fixed in (None, each["ip_address"])), None)
    if chosen is None:
        if fixed is None:
            raise bad(f"Bad floatingip request: Cannot add floating IP to port {id} that has no fixed IPv4 addresses.")
        raise bad(f"Bad floatingip request: Port {id} does not have fixed ip {fixed}.")
    if fixed is None and len(addresses) > 1:
        raise bad(
            f"Bad floatingip request: Port {id} has multiple fixed IPv4 addresses. Must provide a specific IPv4 address when assigning a floating IP."
        )
    for other in call.store.many("floatingip", where={"key": [id]}):
        same = other["fixed_ip_address"] == chosen["ip_address"]
        if other["id"] != floating["id"] and same and other["floating_network_id"] == floating["floating_network_id"]:
            text = (
                f"Cannot associate floating IP {floating['floating_ip_address']} ({other['id']}) with port {id} "
                f"using fixed IP {chosen['ip_address']}, as that fixed IP already has a floating IP on external network {floating['floating_network_id']}."
            )
            raise conflict("FloatingIPPortAlreadyAssociated", text)
    floating |= {
        "port_id": id, "fixed_ip_address": chosen["ip_address"], "_subnet": chosen["subnet_id"],
        "router_id": _router(call, floating, chosen["subnet_id"], id), "status": "ACTIVE",
        "port_details": {
            name: port[name]
            for name in ("name", "network_id", "mac_address", "admin_state_up", "status", "device_id", "device_owner")
        },
    }  # fmt: skip
    call.queue_compute_event("network-changed", port)


def _router(call: NetworkCall, floating: Doc, subnet: str, port: str) -> str:
    """The router that stands between the subnet and the external network."""
    inside = call.store.many("port", where={"subnet": [subnet], "owner": [INTERFACE]})
    doors = {each["device_id"] for each in inside}
    outside = call.store.many("port", where={"network": [floating["floating_network_id"]], "owner": [GATEWAY]})
    for each in outside:
        if each["device_id"] in doors:
            return str(each["device_id"])
    text = f"External network {floating['floating_network_id']} is not reachable from subnet {subnet}. Therefore, cannot associate Port {port} with a Floating IP."
    raise NeutronFault(404, "ExternalGatewayForFloatingIPNotFound", text)


def update(call: NetworkCall, floating: Doc, body: Any) -> Doc:
    changes = for_update("floatingip", body, ATTRS, call.who)
    said = {name: changes.pop(name) for name in ("port_id", "fixed_ip_address") if name in changes}
    if not body:  # as when there was nothing else to be said of one
        said = {"port_id": None}
    if said:
        before = floating["port_id"]
        port = said.get("port_id", before if "fixed_ip_address" in said else None)
        _disassociate(floating)
        if port is not None:
            _join(call, floating, port, said.get("fixed_ip_address"))
        if before is not None and before != port and (old := call.store.get("port", before)) is not None:
            call.queue_compute_event("network-changed", old)
    return floating | changes


def put(call: NetworkCall, floating: Doc) -> None:
    call.store.put("floatingip", floating, key=floating["port_id"] or "")


def delete(call: NetworkCall, floating: Doc) -> None:
    call.require(call.who.writes(floating["project_id"]), "delete_floatingip")
    if (held := call.store.get("port", floating["_port"], lock=True)) is not None:
        ports.erase(call, held)
    if floating["port_id"] and (port := call.store.get("port", floating["port_id"])) is not None:
        call.queue_compute_event("network-changed", port)
    call.store.remove("floatingip", floating["id"])
    call.charge(floating["project_id"], "floatingip", -1)
