"""Ports that a host makes or binds itself (levels 1 and 2; RULES §13): the order, and the host's answer.

A host of level 1 makes and binds the ports of a guest when it builds it; a host of level 2 binds ports that were made before.
Either sends them back, with its success or with its failure, so that the next host has the same ports and MACs (S0.4, S0.5).
These structs are sent in messages and stored in journals: fields are only ever added, with defaults (RULES §19).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, VifAddress, VifData
from moorage.model.instance_metadata import interface_of_port
from moorage.model.network import NetworkFacts, NicAsk, OtherSubnets, Port, SubnetFacts

MTU_DEFAULT = 1500


class PortOrder(msgspec.Struct, frozen=True):
    """What a host does with a guest's ports before it builds the guest."""

    how: Literal["make", "bind"]
    """`make`: make missing ports and bind all. `bind`: all ports exist."""
    project: str
    availability_zone: str
    nics: tuple[NicAsk, ...] = ()
    ports: tuple[Port, ...] = ()
    """Existing ports: made by the conductor, or by a host that failed."""
    networks: dict[str, NetworkFacts] = {}
    subnets: dict[int, str] = {}
    """NIC index → the subnet of its address, on routed networks."""
    beside: dict[int, OtherSubnets] = {}
    """NIC index → the other subnets of that subnet's segment."""
    profiles: dict[int, dict[str, Any]] = {}
    """NIC index → what is added to its binding profile: `allocation`, where its resources are claimed."""
    security_groups: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    """Hosts that had the guest before: a port that is bound to any other host belongs to a later attempt and is not changed."""
    unsure: bool = False
    """Whether unknown ports may exist: look for them before making any."""


class Plumbed(msgspec.Struct, frozen=True):
    """The ports of a guest as a host left them."""

    ports: tuple[Port, ...] = ()
    networks: dict[str, NetworkFacts] = {}
    """Facts of networks that the order did not have (`auto`)."""


def refuse_unclaimed(made: Sequence[Port]) -> None:
    """Refuse our own ports that were made after the host was chosen, if their network guarantees them something: it was not claimed.

    Raises HostFailed; Nova refuses every boot on such a network in the same words.
    """
    for port in made:
        if port.ours and port.resource_request:
            raise HostFailed(
                f"Using networks with QoS policy is not supported until all hosts are upgraded. (Network ID is {port.network})",
                code="guarantee_not_claimed",
            )


def with_ports(guest: GuestSpec, bound: Sequence[Port], networks: Mapping[str, NetworkFacts]) -> GuestSpec:
    """Return the guest with its bound ports: its interfaces, and their description on its config drive."""
    drive = guest.drive
    if drive is not None:
        interfaces = tuple(interface_of_port(port, networks.get(port.network)) for port in bound)
        drive = msgspec.structs.replace(drive, interfaces=interfaces)
    vifs = tuple(vif_of(port, networks.get(port.network)) for port in bound)
    return msgspec.structs.replace(guest, vifs=vifs, drive=drive)


def vif_of(port: Port, facts: NetworkFacts | None) -> VifData:
    """Return everything that a driver needs to know of a bound port (S0.20)."""
    subnets: Mapping[str, SubnetFacts] = {} if facts is None else {subnet.id: subnet for subnet in facts.subnets}
    segments = {} if facts is None else {segment.id: segment for segment in facts.segments}
    segment_id = next((subnets[ip.subnet].segment for ip in port.fixed_ips if ip.subnet in subnets), None)
    segment = segments.get(segment_id or "")
    return VifData(
        port=port.id,  # type: ignore[arg-type]
        network=port.network,  # type: ignore[arg-type]
        mac=port.mac,
        vif_type=port.vif_type,
        vif_details=port.vif_details,
        vnic_type=port.vnic_type,
        profile=port.profile,
        mtu=(facts.mtu if facts is not None else None) or MTU_DEFAULT,
        network_name="" if facts is None else facts.name,
        physical_network=segment.physical_network if segment else (facts.physical_network if facts else None),
        segmentation_id=segment.segmentation_id if segment else (facts.segmentation_id if facts else None),
        addresses=tuple(_vif_address(ip.subnet, ip.address, subnets) for ip in port.fixed_ips),
        tag=port.tag,
        preserve_on_delete=not port.ours,
        dns_name=port.dns_name,
        dns_domain="" if facts is None else facts.dns_domain,
        dhcp_options=port.dhcp_options,
    )


def _vif_address(subnet: str, address: str, subnets: Mapping[str, SubnetFacts]) -> VifAddress:
    facts = subnets.get(subnet)
    if facts is None:
        return VifAddress(address, subnet)  # type: ignore[arg-type]
    return VifAddress(
        address,
        subnet,  # type: ignore[arg-type]
        cidr=facts.cidr,
        gateway=facts.gateway or "",
        dns=facts.dns,
        routes=facts.routes,
        dhcp=facts.dhcp,
        address_mode=facts.ipv6_address_mode or "",
        ra_mode=facts.ipv6_ra_mode or "",
    )
