"""Ports that a host sees to itself: what it is told, and what it answers (levels 1 and 2; RULES §13).

A host of level 1 makes and binds the ports of a guest when it builds it; a host of level 2 binds ports that were made before.
Either sends them back, with its success or with its failure, so that the next host has the same ports and MACs (S0.4, S0.5).
These structs travel in messages and stand in journals: fields are only ever added, with defaults (RULES §19).
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
    """What a host is to do about the ports of a guest before it builds it."""

    how: Literal["make", "bind"]
    """`make`: what is missing too. `bind`: every port is there."""
    project: str
    availability_zone: str
    nics: tuple[NicAsk, ...] = ()
    ports: tuple[Port, ...] = ()
    """The ports as far as they are there: made by the conductor, or by a host that failed."""
    networks: dict[str, NetworkFacts] = {}
    subnets: dict[int, str] = {}
    """NIC index → the subnet its address is to come from, on routed networks."""
    beside: dict[int, OtherSubnets] = {}
    """NIC index → what else that subnet's segment has."""
    profiles: dict[int, dict[str, Any]] = {}
    """NIC index → what is added to its binding profile: `allocation`, where its resources are claimed."""
    security_groups: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    """Hosts that had the guest before: a port that is bound to any other was taken on by a later host, and is left alone."""
    unsure: bool = False
    """Ports may be there that nobody could tell of: look before making any."""


class Plumbed(msgspec.Struct, frozen=True):
    """The ports of a guest as a host left them."""

    ports: tuple[Port, ...] = ()
    networks: dict[str, NetworkFacts] = {}
    """Facts of networks that the order did not have (`auto`)."""


def refuse_unclaimed(made: Sequence[Port]) -> None:
    """Ports of ours that were made when the host was chosen already: what their network guarantees them, nobody claimed.

    Raises HostFailed; Nova says the same of every boot on such a network.
    """
    for port in made:
        if port.ours and port.resource_request:
            raise HostFailed(
                f"Using networks with QoS policy is not supported until all hosts are upgraded. (Network ID is {port.network})",
                code="guarantee_not_claimed",
            )


def with_ports(guest: GuestSpec, bound: Sequence[Port], networks: Mapping[str, NetworkFacts]) -> GuestSpec:
    """A guest that was described before its ports were bound: its interfaces, and what its config drive says of them."""
    drive = guest.drive
    if drive is not None:
        told = tuple(interface_of_port(port, networks.get(port.network)) for port in bound)
        drive = msgspec.structs.replace(drive, interfaces=told)
    vifs = tuple(vif_of(port, networks.get(port.network)) for port in bound)
    return msgspec.structs.replace(guest, vifs=vifs, drive=drive)


def vif_of(port: Port, facts: NetworkFacts | None) -> VifData:
    """What a driver is told of a bound port: all it needs (S0.20)."""
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
