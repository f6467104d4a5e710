"""Routers, as records: interfaces and gateways are ports, and hold addresses like any other."""

from ipaddress import ip_network
from typing import Any

from moorage_embedded.network import ports, subnets, validators
from moorage_embedded.network.attributes import UNSET, Attr, for_create, for_update, read_only
from moorage_embedded.network.faults import NeutronFault, bad, conflict
from moorage_embedded.network.networks import ADMIN_STATE, COMMON, NAME
from moorage_embedded.network.ownership import needed
from moorage_embedded.network.port_rules import OF_ROUTERS, check_device
from moorage_embedded.network.request import NetworkCall, touched
from moorage_embedded.network.store import Doc

INTERFACE, GATEWAY = OF_ROUTERS
ROUTES_MAX = 30
_ROUTE = validators.keyed({"destination": validators.is_subnet, "nexthop": validators.is_address})
_GATEWAY_INFO = validators.keyed(
    {"network_id": validators.is_uuid},
    {
        "enable_snat": validators.is_bool,
        "external_fixed_ips": validators.is_fixed_ips,
    },
)
UNLISTED = frozenset({"distributed", "ha"})
ATTRS: dict[str, Attr] = COMMON | {
    "name": NAME,
    "admin_state_up": ADMIN_STATE,
    "status": read_only(),
    "external_gateway_info": Attr(
        lambda value: None if not value else _GATEWAY_INFO(value), None, lambda value: value or None
    ),
    "routes": Attr(validators.listed(_ROUTE, ROUTES_MAX, unique=True), list, validators.none_to_list),
    "availability_zone_hints": Attr(validators.listed(validators.text()), list),
    "availability_zones": read_only(),
    "flavor_id": Attr(validators.one_of(None), None),
}


def view(call: NetworkCall, router: Doc) -> Doc:
    """What the extensions that are listed say of a router; a record of an earlier release has more."""
    return {name: value for name, value in router.items() if not name.startswith("_") and name not in UNLISTED}


def create(call: NetworkCall, bodies: list[Any]) -> list[Doc]:
    made = []
    for body in bodies:
        said = for_create("router", body, ATTRS, call.who)
        call.require(call.who.writes(said["project_id"]), "create_router")
        call.charge(said["project_id"], "router")
        router = call.born(said["project_id"]) | {
            name: said[name]
            for name in (
                "name",
                "admin_state_up",
                "description",
                "tags",
                "routes",
                "availability_zone_hints",
                "flavor_id",
            )
        }
        router |= {
            "status": "ACTIVE", "availability_zones": [], "external_gateway_info": None, "revision_number": 1,
        }  # fmt: skip
        if said["external_gateway_info"] is not None:
            network = _external_network(call, said["external_gateway_info"], "create_router")
            _set_gateway(call, router, said["external_gateway_info"], network)
        call.store.add("router", router)
        made.append(router)
    return made


def _external_network(call: NetworkCall, said: dict[str, Any], rule: str) -> Doc:
    network = needed(call, "network", said["network_id"], "gateway")
    for name in ("enable_snat", "external_fixed_ips"):
        if name in said:
            call.require(call.who.admin, rule, f"{rule}:external_gateway_info:{name}")
    gateways = {each["gateway_ip"] for each in call.store.children("subnet", network["id"])} - {None}
    for each in said.get("external_fixed_ips") or ():
        if each.get("ip_address") in gateways:
            raise bad(f"Bad router request: External IP {each['ip_address']} is the same as the gateway IP.")
    return network


def _set_gateway(call: NetworkCall, router: Doc, said: dict[str, Any], network: Doc) -> None:
    body: dict[str, Any] = {
        "network_id": network["id"], "project_id": "", "device_id": router["id"], "device_owner": GATEWAY,
    }  # fmt: skip
    if said.get("external_fixed_ips"):
        body["fixed_ips"] = said["external_fixed_ips"]
    port = ports.create(call.ourselves(), [body])[0]
    router["external_gateway_info"] = {
        "network_id": network["id"],
        "enable_snat": said.get("enable_snat", True),
        "external_fixed_ips": port["fixed_ips"],
    }


def _change_gateway(call: NetworkCall, router: Doc, said: dict[str, Any]) -> None:
    """On the network that it is on, the port stays, and gets other addresses where others are asked for."""
    network = _external_network(call, said, "update_router")
    old = router["external_gateway_info"]
    if old is None or old["network_id"] != network["id"]:
        _clear_gateway(call, router)
        _set_gateway(call, router, said, network)
        return
    old["enable_snat"] = said.get("enable_snat", True)
    asked = said.get("external_fixed_ips") or []
    if asked and _are_others(old["external_fixed_ips"], asked):
        for port in ports_of(call, router["id"], GATEWAY):
            changed = ports.update(call.ourselves(), port, {"fixed_ips": asked})
            call.store.put("port", touched(changed))
            old["external_fixed_ips"] = changed["fixed_ips"]


def _are_others(held: list[dict[str, str]], asked: list[dict[str, Any]]) -> bool:
    """As Neutron compares: the named subnets, and the named addresses, each as a set."""
    return any(
        {each[name] for each in held} != {each[name] for each in asked if each.get(name)}
        for name in ("subnet_id", "ip_address")
    )


def ports_of(call: NetworkCall, router: str, owner: str) -> list[Doc]:
    return call.store.many("port", where={"device": [router], "owner": [owner]})


def _clear_gateway(call: NetworkCall, router: Doc) -> None:
    info = router["external_gateway_info"]
    if info is None:
        return
    for each in call.store.many("floatingip", where={"parent": [info["network_id"]]}):
        if each["router_id"] == router["id"]:
            text = f"Gateway cannot be updated for router {router['id']}, since a gateway to external network {info['network_id']} is required by one or more floating IPs."
            raise conflict("RouterExternalGatewayInUseByFloatingIp", text)
    for port in ports_of(call, router["id"], GATEWAY):
        ports.erase(call, port)
    router["external_gateway_info"] = None


def update(call: NetworkCall, router: Doc, body: Any) -> Doc:
    changes = for_update("router", body, ATTRS, call.who)
    info = changes.pop("external_gateway_info", UNSET)
    if info is None:
        _clear_gateway(call, router)
    elif info is not UNSET:
        _change_gateway(call, router, info)
    return router | changes


def delete(call: NetworkCall, router: Doc) -> None:
    call.require(call.who.writes(router["project_id"]), "delete_router")
    if ports_of(call, router["id"], INTERFACE):
        raise conflict("RouterInUse", f"Router {router['id']} still has ports")
    _clear_gateway(call, router)
    call.store.remove("router", router["id"])
    call.charge(router["project_id"], "router", -1)


# ------------------------------------------------------------------------------------------------ interfaces


def _writable(call: NetworkCall, router: Doc, rule: str) -> None:
    call.require(call.who.writes(router["project_id"]), rule)


def _answer(router: Doc, port: Doc) -> Doc:
    on = [each["subnet_id"] for each in port["fixed_ips"]]
    return {
        "id": router["id"], "project_id": router["project_id"], "tenant_id": router["project_id"],
        "port_id": port["id"], "network_id": port["network_id"], "subnet_id": on[0], "subnet_ids": on,
    }  # fmt: skip


def add_interface(call: NetworkCall, router: Doc, body: Doc) -> Doc:
    _writable(call, router, "add_router_interface")
    if len({"port_id", "subnet_id"} & set(body)) != 1:
        raise bad("Bad router request: Either subnet_id or port_id must be specified, and not both.")
    _check_ids(body)
    port = _by_port(call, router, body["port_id"]) if "port_id" in body else _by_subnet(call, router, body["subnet_id"])
    call.store.put("router", touched(router))
    return _answer(router, port)


def _check_ids(body: Doc) -> None:
    for name in ("port_id", "subnet_id"):
        if name in body and (reason := validators.is_uuid(body[name])):
            raise bad(f"Bad router request: {reason}.")


def _check_overlap(call: NetworkCall, router: Doc, subnet: Doc) -> None:
    wanted = ip_network(subnet["cidr"])
    for port in ports_of(call, router["id"], INTERFACE):
        on = [each["subnet_id"] for each in port["fixed_ips"]]
        if subnet["id"] in on:
            raise bad(f"Bad router request: Router already has a port on subnet {subnet['id']}.")
        for other in call.store.many("subnet", where={"id": on}):
            if ip_network(other["cidr"]).overlaps(wanted):
                raise bad(
                    f"Bad router request: Cidr {subnet['cidr']} of subnet {subnet['id']} overlaps with cidr {other['cidr']} of subnet {other['id']}."
                )


def _by_subnet(call: NetworkCall, router: Doc, id: str) -> Doc:
    if needed(call, "subnet", id)["gateway_ip"] is None:
        raise bad("Bad router request: Subnet for router interface must have a gateway IP.")
    subnet = needed(call, "subnet", id, "interface")
    _check_overlap(call, router, subnet)
    body = {
        "network_id": subnet["network_id"], "project_id": router["project_id"], "device_id": router["id"],
        "device_owner": INTERFACE, "fixed_ips": [{"subnet_id": subnet["id"], "ip_address": subnet["gateway_ip"]}],
    }  # fmt: skip
    return ports.create(call.ourselves(), [body])[0]


def _by_port(call: NetworkCall, router: Doc, id: str) -> Doc:
    port = needed(call, "port", id, lock=True)
    check_device(call, {"device_owner": INTERFACE, "device_id": router["id"]}, port["project_id"])
    if port["device_id"] or port["device_owner"]:
        text = f"Unable to complete operation on port {id} for network {port['network_id']}. Port already has an attached device {port['device_id']}."
        raise conflict("PortInUse", text)
    if not port["fixed_ips"]:
        raise bad("Bad router request: Router port must have at least one fixed IP.")
    for subnet in call.store.many("subnet", where={"id": [each["subnet_id"] for each in port["fixed_ips"]]}):
        _check_overlap(call, router, subnet)
        _check_address(call, subnet, port)
    port |= {"device_id": router["id"], "device_owner": INTERFACE, "security_groups": []}
    if call.settings.ports_become_active:
        port["status"] = "ACTIVE"
    call.store.put("port", touched(port))
    return port


def _check_address(call: NetworkCall, subnet: Doc, port: Doc) -> None:
    """An address that only the subnet's owner gives, like the gateway's, makes a port of others no router's."""
    if call.who.admin or call.who.owns(subnet["project_id"]):
        return
    for each in port["fixed_ips"]:
        if each["subnet_id"] == subnet["id"] and not subnets.in_pools(subnet, each["ip_address"]):
            raise bad(
                f"Bad router request: Cannot add interface to router because specified port {port['id']} has an IP address"
                f" out of the allocation pool of subnet {subnet['id']}, which is not owned by the project making the request."
            )


def remove_interface(call: NetworkCall, router: Doc, body: Doc) -> Doc:
    """Remove an interface of a router. Raises NeutronFault: 400 without port and subnet, 404 when there is no such interface."""
    _writable(call, router, "remove_router_interface")
    if not {"port_id", "subnet_id"} & set(body):
        raise bad("Bad router request: Either subnet_id or port_id must be specified.")
    _check_ids(body)
    held = ports_of(call, router["id"], INTERFACE)
    if "port_id" in body:
        found = next((each for each in held if each["id"] == body["port_id"]), None)
        if found is None:
            text = f"Router {router['id']} does not have an interface with id {body['port_id']}"
            raise NeutronFault(404, "RouterInterfaceNotFound", text)
    else:
        on = (each for each in held if body["subnet_id"] in {ip["subnet_id"] for ip in each["fixed_ips"]})
        found = next(on, None)
        if found is None:
            text = f"Router {router['id']} has no interface on subnet {body['subnet_id']}"
            raise NeutronFault(404, "RouterInterfaceNotFoundForSubnet", text)
    _no_floating_through(call, router, found)
    ports.erase(call, found)
    call.store.put("router", touched(router))
    return _answer(router, found)


def _no_floating_through(call: NetworkCall, router: Doc, port: Doc) -> None:
    on = {each["subnet_id"] for each in port["fixed_ips"]}
    for each in call.store.all_mentioning("floatingip", router["id"]):
        if each.get("_subnet") in on:
            text = f"Router interface for subnet {each['_subnet']} on router {router['id']} cannot be deleted, as it is required by one or more floating IPs."
            raise conflict("RouterInterfaceInUseByFloatingIP", text)


def change_routes(call: NetworkCall, router: Doc, body: Any, *, add: bool) -> Doc:
    """Add or remove routes. Raises NeutronFault (400) for wrong or too many routes."""
    _writable(call, router, "add_extraroutes" if add else "remove_extraroutes")
    inner = body.get("router")
    said: Any = inner.get("routes") if isinstance(inner, dict) else None
    if reason := validators.listed(_ROUTE, ROUTES_MAX)(said):
        raise bad(f"Invalid input for routes. Reason: {reason}.")
    rest = [each for each in router["routes"] if each not in said]
    router["routes"] = rest + said if add else rest
    if len(router["routes"]) > ROUTES_MAX:
        raise NeutronFault(
            400,
            "RoutesExhausted",
            f"Unable to complete operation for {router['id']}. The number of routes exceeds the maximum {ROUTES_MAX}.",
        )
    call.store.put("router", touched(router))
    return {"router": view(call, router)}
