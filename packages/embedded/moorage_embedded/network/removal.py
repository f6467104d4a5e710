"""Taking away what other things lie on: a network with its subnets and segments, a subnet with its automatic addresses."""

from moorage_embedded.network import address_scopes, addressing, floating_ips, ports
from moorage_embedded.network.faults import conflict, network_in_use
from moorage_embedded.network.request import NetworkCall, touched
from moorage_embedded.network.store import Doc


def delete_network(call: NetworkCall, network: Doc) -> None:
    for floating in call.store.many("floatingip", where={"parent": [network["id"]]}):
        if floating["port_id"] is None:  # those that stand for nothing go with an external network
            floating_ips.delete(call.ourselves(), floating)
    for port in call.store.many("port", where={"network": [network["id"]]}, limit=2):
        if port["device_owner"] not in {"network:dhcp", "network:distributed"}:
            raise network_in_use(network["id"])
        ports.erase(call, port)
    for subnet in call.store.children("subnet", network["id"]):
        erase_subnet(call, subnet)
    for segment in network["_segments"]:
        call.store.drop_holds(segment["id"])
        call.store.remove("segment", segment["id"])
        call.segments.add(segment["id"])
    call.unshare(network["id"])
    call.store.remove("network", network["id"])
    call.charge(network["project_id"], "network", -1)


def delete_subnet(call: NetworkCall, subnet: Doc) -> None:
    network = call.store.get("network", subnet["network_id"], lock=True)
    assert network is not None  # a subnet goes with its network
    call.require(call.who.writes(subnet["project_id"]) or call.who.writes(network["project_id"]), "delete_subnet")
    _leave_subnet(call, subnet)
    erase_subnet(call, subnet)
    network["subnets"] = [each for each in network["subnets"] if each != subnet["id"]]
    if subnet["subnetpool_id"] is not None:
        address_scopes.scope_network(call, network)
    call.store.put("network", touched(network))


def erase_subnet(call: NetworkCall, subnet: Doc) -> None:
    call.store.reset_ranges(subnet["id"], ())
    call.store.remove("subnet", subnet["id"])
    call.charge(subnet["project_id"], "subnet", -1)
    if subnet["segment_id"]:
        call.segments.add(subnet["segment_id"])


def _leave_subnet(call: NetworkCall, subnet: Doc) -> None:
    """Before a subnet goes: automatic ports lose their address with it, any other forbids it, and so does a router's."""
    held = call.store.addresses_of(subnet["id"])
    automatic = addressing.automatic(subnet)
    routed = any(owner == addressing.ROUTER_INTERFACE for _, _, owner in held)
    if routed or any(not (owner == "network:dhcp" or automatic) for _, _, owner in held):
        text = f"Unable to complete operation on subnet {subnet['id']}: One or more ports have an IP allocation from this subnet."
        raise conflict("SubnetInUse", text)
    for address, id, _ in held:
        port = call.store.get("port", id, lock=True)
        if port is None:
            continue
        addressing.take_back(call, [subnet], id, [{"subnet_id": subnet["id"], "ip_address": address}])
        port["fixed_ips"] = [each for each in port["fixed_ips"] if each["subnet_id"] != subnet["id"]]
        ports.name_addresses(call, port)
        call.store.put("port", touched(port))
