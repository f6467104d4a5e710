"""Who may say what of a port, and what a port's parts demand of each other; Neutron's default policies."""

from ipaddress import ip_network
from typing import Any

from moorage_embedded.network import networks, qos
from moorage_embedded.network.addressing import ROUTER_INTERFACE
from moorage_embedded.network.attributes import UNSET
from moorage_embedded.network.faults import NeutronFault, conflict, forbidden, invalid, not_found
from moorage_embedded.network.guarantees import is_claimed
from moorage_embedded.network.ownership import needed
from moorage_embedded.network.policy import NetworkCaller
from moorage_embedded.network.request import NetworkCall
from moorage_embedded.network.store import Doc, Surroundings

OF_ROUTERS = (ROUTER_INTERFACE, "network:router_gateway")
GUARDED = ("compute:", "baremetal:", "manila:")


def may_create(who: NetworkCaller, network: Doc | None, said: dict[str, Any]) -> None:
    assert network is not None  # the caller has looked
    if who.admin or who.service:
        return _pairs(said, said)
    own = who.writes(network["project_id"])
    shared = networks.shared_with(who, network)
    if not (who.member and (own or shared)):
        raise forbidden("create_port")
    if not own:
        for name in ("mac_address", "port_security_enabled"):
            if said[name] is not UNSET:
                raise forbidden("create_port", f"create_port:{name}")
        if said["allowed_address_pairs"]:
            raise forbidden("create_port", "create_port:allowed_address_pairs")
        if said["device_owner"].startswith("network:"):
            raise forbidden("create_port", "create_port:device_owner")
        if said["fixed_ips"] not in (UNSET, None) and any("ip_address" in each for each in said["fixed_ips"]):
            raise forbidden("create_port", "create_port:fixed_ips", "create_port:fixed_ips:ip_address")
    return _pairs(said, said)


def may_update(who: NetworkCaller, around: Surroundings, port: Doc, changes: dict[str, Any]) -> None:
    network = around.network
    if network is None:
        raise not_found("network", port["network_id"])
    if not (who.admin or who.service):
        if not who.writes(port["project_id"]):
            raise forbidden("update_port")
        if not who.writes(network["project_id"]):
            _foreign_network(who, network, changes)
    if "allowed_address_pairs" in changes or "port_security_enabled" in changes:
        _pairs(changes, port | changes)


def _foreign_network(who: NetworkCaller, network: Doc, changes: dict[str, Any]) -> None:
    for name in ("mac_address", "port_security_enabled", "allowed_address_pairs"):
        if name in changes:
            raise forbidden("update_port", f"update_port:{name}")
    if changes.get("device_owner", "").startswith("network:"):
        raise forbidden("update_port", "update_port:device_owner")
    if "fixed_ips" in changes:
        by_address = any("ip_address" in each for each in changes["fixed_ips"] or ())
        if by_address or not networks.shared_with(who, network):
            raise forbidden("update_port", "update_port:fixed_ips")


def check_device(call: NetworkCall, port: dict[str, Any], project: str) -> None:
    """Only its own project's ports are a router's. Raises NeutronFault (409)."""
    if port["device_owner"] not in OF_ROUTERS or not port["device_id"] or call.who.admin:
        return
    router = call.store.get("router", port["device_id"])
    if router is not None and router["project_id"] != project:
        text = f"The following device_id {router['id']} is not owned by your project or matches another project router."
        raise conflict("DeviceIDNotOwnedByTenant", text)


def may_delete(call: NetworkCall, port: Doc) -> None:
    who = call.who
    if port["device_owner"] in {"network:router_interface", "network:router_gateway", "network:floatingip"}:
        text = (
            f"Port {port['id']} cannot be deleted directly via the port API: has device owner {port['device_owner']}."
        )
        raise conflict("ServicePortInUse", text)
    if call.store.mentioned("trunk", port["id"]) is not None:
        raise conflict("PortInUseAsTrunkParent", f"Port {port['id']} is currently a parent port for trunk.")
    if who.admin or who.service:
        return
    own = who.writes(port["project_id"])
    if not own:
        network = call.store.get("network", port["network_id"])
        own = network is not None and who.writes(network["project_id"])
    if not own or (port["device_owner"].startswith(GUARDED) and not who.service_token):
        raise forbidden("delete_port")


def _pairs(said: dict[str, Any], whole: dict[str, Any]) -> None:
    """Allowed address pairs need port security, and no pair twice."""
    pairs = said.get("allowed_address_pairs") or []
    if pairs and whole["port_security_enabled"] is False:
        text = "Port Security must be enabled in order to have allowed address pairs on a port."
        raise conflict("AddressPairAndPortSecurityRequired", text)
    if len(pairs) > 10:
        raise NeutronFault(
            400, "AllowedAddressPairExhausted", "The number of allowed address pair exceeds the maximum 10."
        )
    seen = set()
    for each in pairs:
        key = (each.get("mac_address"), str(ip_network(each["ip_address"], strict=False)))
        if key in seen:
            raise invalid(f"Request contains duplicate address pair: mac_address {key[0]} ip_address {key[1]}")
        seen.add(key)


def may_change_type(old: Doc, port: Doc) -> None:
    """Another kind of port is another provider's; only a move may claim of that."""
    if port["binding:vnic_type"] != old["binding:vnic_type"] and is_claimed(old) and old["resource_request"]:
        text = f"Rule is not supported by port {port['id']}: it is bound, and its guaranteed resources are claimed"
        raise conflict("QosRuleNotSupported", text)


def settle_qos(call: NetworkCall, around: Surroundings, port: Doc) -> None:
    """What the port's own policy, or its network's, asks of a host."""
    assert around.network is not None  # the caller has looked
    port["qos_network_policy_id"] = around.network["qos_policy_id"]
    id = port["qos_policy_id"] or around.network["qos_policy_id"]
    policy = around.others.get(id) if id else None
    if port["qos_policy_id"]:
        policy = needed(call, "policy", id, known=policy)
    elif id:
        policy = policy or call.store.get("policy", id)
    qos.ask(call, port, qos.resource_request(policy, around.network, port))
