"""`network_data.json`: a guest's links, networks and services, in the form that cloud-init and similar programs read.

For each link and IP version, an address from DHCP (or SLAAC) is one entry that only names this method; addresses of subnets without DHCP
are listed in full.  The format is Nova's (`doc/source/user/metadata.rst` and the schema in `doc/api_schemas/network_data.json`).
"""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from moorage.model.instance_metadata import GuestAddress, Interface

EXPOSED = frozenset({"bridge", "dvs", "hw_veb", "hyperv", "ovs", "tap", "vhostuser", "vif"})
"""Types of interfaces that are shown by their name; every other type is shown as `phy`."""
DEFAULT = {4: "0.0.0.0", 6: "::"}


def network_data(interfaces: Iterable[Interface]) -> Mapping[str, Any]:
    """Build the document."""
    links: list[dict[str, Any]] = []
    networks: list[dict[str, Any]] = []
    services: list[dict[str, Any]] = []
    for interface in interfaces:
        known = [each for each in interface.addresses if each.cidr]
        if not known:
            continue
        link = f"interface{len(links)}"
        links.append(
            {
                "id": link,
                "vif_id": interface.port,
                "type": interface.vif_type if interface.vif_type in EXPOSED else "phy",
                "mtu": interface.mtu,
                "ethernet_mac_address": interface.mac,
            }
        )
        for address in _advertised(known):
            networks.append(_network(address, f"network{len(networks)}", link, interface.network))
            services += [each for each in _services(address) if each not in services]
    return {"links": links, "networks": networks, "services": services}


def _advertised(addresses: Iterable[GuestAddress]) -> Iterable[GuestAddress]:
    """The addresses to list, IPv4 first; of those from DHCP or SLAAC one of each version."""
    served: set[int] = set()
    for each in sorted(addresses, key=lambda one: one.version):
        if each.dhcp or each.mode:
            if each.version in served:
                continue
            served.add(each.version)
        yield each


def _network(address: GuestAddress, id: str, link: str, network: str) -> dict[str, Any]:
    mode = f"_{address.mode}" if address.version == 6 and address.mode else ""
    if not mode and address.dhcp:
        return {"id": id, "type": f"ipv{address.version}_dhcp", "link": link, "network_id": network}
    default = DEFAULT[address.version]
    routes = [] if not address.gateway else [_route(default, default, address.gateway)]
    for destination, next_hop in address.routes:
        net = ipaddress.ip_network(destination, strict=False)
        routes.append(_route(str(net.network_address), str(net.netmask), next_hop))
    return {
        "id": id,
        "type": f"ipv{address.version}{mode}",
        "link": link,
        "ip_address": address.address,
        "netmask": str(ipaddress.ip_network(address.cidr, strict=False).netmask),
        "routes": routes,
        "network_id": network,
        "services": _services(address),
    }


def _route(network: str, netmask: str, gateway: str) -> dict[str, str]:
    return {"network": network, "netmask": netmask, "gateway": gateway}


def _services(address: GuestAddress) -> list[dict[str, str]]:
    return [{"type": "dns", "address": each} for each in address.dns]
