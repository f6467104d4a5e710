"""What dnsmasq is told of one network: addresses by DHCP and by router advertisements, names, routes, MTU.  Pure functions.

IPv4     each guest gets the address of its port, and nobody else any
IPv6     as the subnet says.  `slaac` and `dhcpv6-stateless`: the prefix is advertised, and guests make their addresses of it;
         `dhcpv6-stateful`: each guest is given the address of its port.  Nothing is advertised of a subnet without a gateway
names    dnsmasq knows the guests of this host, under the network's domain, and answers at their gateway's address
routes   by option 121 (and 249, for old Windows), where there is more to say than a default route, which is then in there as well

Words that users chose come into files of lines, so whatever is not of the few characters that they need is left out.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.drivers.libvirt.system_users import SystemUser
from moorage.model.guest import VifAddress, VifData

LEASE_S = 86_400
LEASES_MAX = 65_536
ADVERTISED_EVERY_S = 600
ADVERTISED_LENGTH = 64
"""Of prefixes of which guests make addresses."""
METADATA = "169.254.169.254"
METADATA_V6 = "fe80::a9fe:a9fe"
SERVICE_V6 = "fe80::a9fe:4001"
"""Of the host, on each bridge that it serves."""
PORT_CHARACTERS = 11
NO_NAMES = "port=0"
LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
OPTION_NAME = re.compile(r"[a-z0-9-]{1,64}")
OPTION_VALUE = re.compile(r"[\x20-\x7e]{0,255}")
SLAAC, STATELESS, STATEFUL = "slaac", "dhcpv6-stateless", "dhcpv6-stateful"


@dataclass(frozen=True)
class DhcpFiles:
    """What stands in dnsmasq's files."""

    conf: str
    hosts: str
    names: str
    options: str


@dataclass(frozen=True)
class DhcpPlaces:
    """Where its files are, and whom it becomes when it has its sockets."""

    directory: Path
    """Of `conf` and `pid`."""
    read_later: Path
    """Of those that it reads as this user."""
    user: SystemUser


@dataclass(frozen=True)
class ServedNetwork:
    """One network, as this host serves it."""

    bridge: str
    vifs: Sequence[VifData]
    names: bool = True
    """Whether dnsmasq answers for names: false where another program has its port."""
    forwarders: Sequence[str] = ()
    metadata: bool = False
    """Whether the metadata service answers on this bridge."""
    service_address: str = ""
    """The bridge's own: it has none of any subnet."""

    @property
    def subnets(self) -> dict[str, VifAddress]:
        """By their ranges, as far as guests have addresses of them."""
        return {each.cidr: each for vif in self.vifs for each in vif.addresses if each.cidr}

    @property
    def gateways(self) -> set[str]:
        return {each.gateway for each in self.subnets.values() if each.gateway}

    @property
    def has_dhcp(self) -> bool:
        """Whether anybody there is told an address or a route."""
        return any(each.dhcp for each in self.subnets.values())

    @property
    def mtu(self) -> int:
        return min(vif.mtu for vif in self.vifs)


def files_of(places: DhcpPlaces, network: ServedNetwork) -> DhcpFiles:
    vifs = network.vifs
    return DhcpFiles(_conf(places, network), _hosts(vifs), _names(vifs), _options(vifs))


def subnet_tag(cidr: str) -> str:
    return f"net{re.sub('[.:/]', '-', cidr)}"


def port_tag(vif: VifData) -> str:
    return f"port{vif.port[:PORT_CHARACTERS]}"


def is_v4(each: VifAddress) -> bool:
    return ":" not in each.cidr


def domain_of(vifs: Iterable[VifData]) -> str:
    """The network's, without its last dot; empty for none, or one that is none."""
    name = next((vif.dns_domain.rstrip(".") for vif in vifs if vif.dns_domain), "")
    return name if name and all(LABEL.fullmatch(each) for each in name.split(".")) else ""


def _name(vif: VifData) -> str:
    """A short name; empty for none."""
    first = vif.dns_name.partition(".")[0]
    return first if LABEL.fullmatch(first) else ""


def _conf(places: DhcpPlaces, network: ServedNetwork) -> str:
    domain, mtu, bridge = domain_of(network.vifs), network.mtu, network.bridge
    subnets = {cidr: each for cidr, each in network.subnets.items() if each.dhcp}
    lines = [
        *([] if network.names and network.gateways else [NO_NAMES]),
        f"interface={bridge}",
        "except-interface=lo",
        "bind-dynamic",
        "leasefile-ro",
        f"dhcp-lease-max={LEASES_MAX}",
        "no-ping",
        "dhcp-authoritative",
        f"pid-file={places.directory / 'pid'}",
        f"dhcp-hostsfile={places.read_later / 'hosts'}",
        f"dhcp-optsfile={places.read_later / 'options'}",
        f"addn-hosts={places.read_later / 'names'}",
        "no-hosts",
        "no-resolv",
        "no-poll",
        "domain-needed",
        f"dhcp-option-force=option:mtu,{mtu}",
        *(f"server={each}" for each in network.forwarders),
        f"user={places.user.name}",
        f"group={places.user.group}",
    ]
    if domain:
        lines += [f"domain={domain}", f"local=/{domain}/"]
    for cidr, subnet in sorted(subnets.items()):
        lines += _v4(network, cidr, subnet) if is_v4(subnet) else _v6(network.bridge, cidr, subnet)
    if any(each.gateway and each.ra_mode for each in subnets.values() if not is_v4(each)):
        lines += ["enable-ra", f"ra-param={bridge},mtu:{mtu},{ADVERTISED_EVERY_S}"]
    return "\n".join(lines) + "\n"


def _v4(network: ServedNetwork, cidr: str, subnet: VifAddress) -> list[str]:
    whole, tag = ipaddress.ip_network(cidr, strict=False), subnet_tag(cidr)
    lines = [f"dhcp-range=set:{tag},{whole.network_address},static,{whole.netmask},{LEASE_S}s"]
    # the bridge has no address in there, and serves it nevertheless
    lines.append(f"shared-network={network.bridge},{whole.network_address}")
    lines.append(f"dhcp-option=tag:{tag},option:router{',' + subnet.gateway if subnet.gateway else ''}")
    own = subnet.gateway if network.names else ""
    servers = ",".join(each for each in subnet.dns if ":" not in each) or own
    lines.append(f"dhcp-option=tag:{tag},option:dns-server{',' + servers if servers else ''}")
    routes = [each for each in subnet.routes if ":" not in each[0]]
    if not subnet.gateway:
        reached = [network.service_address, *([METADATA] if network.metadata else [])]
        routes += [(f"{each}/32", "0.0.0.0") for each in reached]
    if routes:
        if subnet.gateway and not any(destination == "0.0.0.0/0" for destination, _ in routes):
            routes.append(("0.0.0.0/0", subnet.gateway))
        text = ",".join(f"{destination},{hop}" for destination, hop in routes)
        lines += [f"dhcp-option=tag:{tag},option:classless-static-route,{text}", f"dhcp-option=tag:{tag},249,{text}"]
    return lines


def _v6(bridge: str, cidr: str, subnet: VifAddress) -> list[str]:
    network, tag = ipaddress.ip_network(cidr, strict=False), subnet_tag(cidr)
    prefix = network.network_address
    mode = subnet.address_mode or subnet.ra_mode
    lines = []
    if mode == STATEFUL:
        lines.append(f"dhcp-range=set:{tag},{prefix},static,{network.prefixlen},{LEASE_S}s")
        if not subnet.gateway or network.prefixlen != ADVERTISED_LENGTH:  # it has an address in the prefix else
            lines.append(f"shared-network={bridge},{prefix}")
    elif subnet.gateway and subnet.ra_mode in {SLAAC, STATELESS} and network.prefixlen == ADVERTISED_LENGTH:
        kind = "ra-only" if subnet.ra_mode == SLAAC else "ra-stateless"
        lines.append(f"dhcp-range=set:{tag},{prefix},{kind},{network.prefixlen},{LEASE_S}s")
    servers = ",".join(f"[{each}]" for each in subnet.dns if ":" in each)
    if lines and servers:
        # a prefix that is only advertised has no tag with a request, so what is said of it is said to all
        where = f"tag:{tag}," if mode == STATEFUL else ""
        lines.append(f"dhcp-option={where}option6:dns-server,{servers}")
    return lines


def _hosts(vifs: Sequence[VifData]) -> str:
    lines = []
    for vif in vifs:
        for each in vif.addresses:
            if not each.cidr or not each.dhcp or (not is_v4(each) and each.address_mode != STATEFUL):
                continue
            address = each.address if is_v4(each) else f"[{each.address}]"
            named = f",{name}" if (name := _name(vif)) else ""
            lines.append(f"{vif.mac},set:{subnet_tag(each.cidr)},set:{port_tag(vif)},{address}{named}\n")
    return "".join(lines)


def _names(vifs: Sequence[VifData]) -> str:
    domain = domain_of(vifs)
    lines = []
    for vif in vifs:
        if name := _name(vif):
            full = f"{name}.{domain} {name}" if domain else name
            lines += [f"{each.address} {full}\n" for each in vif.addresses if each.cidr]
    return "".join(lines)


def _options(vifs: Sequence[VifData]) -> str:
    lines = []
    for vif in vifs:
        for each in vif.dhcp_options:
            if not OPTION_NAME.fullmatch(each.name) or not OPTION_VALUE.fullmatch(each.value):
                continue
            known = each.name if each.version == 4 and each.name.isdigit() else f"option:{each.name}"
            name = f"option6:{each.name}" if each.version == 6 else known
            lines.append(f"tag:{port_tag(vif)},{name}{',' if each.value else ''}{each.value}\n")
    return "".join(lines)
