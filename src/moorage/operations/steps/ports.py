"""Ports: read or made before a host is chosen, bound afterwards, and released by key (RULES §7)."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

import msgspec

from moorage.clients.replies import CREDENTIALS
from moorage.model.errors import Unavailable
from moorage.model.host_ports import vif_of
from moorage.model.ids import ProviderId, ServerId
from moorage.model.instance_metadata import trusted_of, vlan_of
from moorage.model.network import NetworkFacts, NicAsk, OtherSubnets, Port
from moorage.model.request_groups import ALLOCATION, amounts_held, groups_of, providers_in
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import Address, Floating, Nic, Server, TaskState
from moorage.model.world import NicRequirement as SegmentAsk
from moorage.operations.context import SagaContext
from moorage.placement.claims import amounts_of
from moorage.store.region import servers as region_servers
from moorage.store.region.placement.claim_statements import Key

__all__ = [
    "guarantees_of",
    "held_by",
    "held_by_all",
    "made_macs",
    "nic_of",
    "nics_of",
    "refuse_without_credentials",
    "segment_of",
    "segments_for",
    "unnamed_guarantees",
    "vif_of",
    "with_our_credentials",
]

T = TypeVar("T")
VIF_PLUGGED = "network-vif-plugged"


async def with_our_credentials(context: SagaContext, server: ServerId, call: Awaitable[T]) -> T | None:
    """Release ports. Returns None when the network service rejects our credentials and the server is being deleted.

    The delete that waits in line must not wait for credentials that may never work again: the delete, or the hosts,
    release all ports of the server, and `stray_ports` finds those that they do not know.
    """
    try:
        return await call
    except Unavailable as out:
        where = await context.region.read(lambda tx: region_servers.find(tx, server))
        if out.code != CREDENTIALS or (where is not None and where.task is not TaskState.DELETING):
            raise
        return None


def refuse_without_credentials(context: SagaContext) -> None:
    """For work on ports that only the conductor can do, no host. Raises Unavailable while its credentials are rejected,
    because the work could not be done or undone.
    """
    if not context.gates().credentials:
        raise Unavailable(
            "Interfaces cannot be attached or detached now: the network service does not accept the credentials of this cloud's "
            "conductors.",
            code=CREDENTIALS,
        )


def made_macs(nics: Sequence[NicAsk]) -> tuple[str, ...]:
    """The MACs that were minted here: they alone tell which ports are ours."""
    return tuple(nic.mac for nic in nics if nic.ours and nic.mac)


def nic_of(port: Port, facts: NetworkFacts | None) -> Nic:
    """The NIC of a bound port, as the owner sees it."""
    segments = {} if facts is None else {subnet.id: subnet.segment for subnet in facts.subnets}
    return Nic(
        index=port.index,
        network=port.network,  # type: ignore[arg-type]  # an id of the network service
        network_name="" if facts is None else facts.name,
        port=port.id or None,  # type: ignore[arg-type]  # none yet: the host makes it
        mac=port.mac,
        ours=port.ours,
        addresses=tuple(Address(ip.subnet, ip.address, 6 if ":" in ip.address else 4) for ip in port.fixed_ips),
        tag=port.tag,
        vnic_type=port.vnic_type,
        vif_type=port.vif_type,
        segment=segment_of(port, segments),
        guarantees=guarantees_of(port),
        vlan=vlan_of(port),
        trusted=trusted_of(port),
        chosen=port.address_chosen,
        floating=tuple(Floating(address, fixed) for address, fixed in sorted(port.floating)),
    )


def segment_of(port: Port, segments: Mapping[str, str | None]) -> str | None:
    """The segment of a port's addresses. `segments`: subnet → segment. None: the port has no address on one of these
    segments.
    """
    return next((segments[ip.subnet] for ip in port.fixed_ips if ip.subnet in segments), None)


def guarantees_of(port: Port) -> tuple[tuple[str, str, int], ...]:
    """(provider, class, amount) for each requested guarantee whose provider the binding names."""
    held = amounts_held(port.resource_request, port.id, port.profile.get(ALLOCATION))
    return tuple((provider, resource, amount) for (provider, resource), amount in held.items())


def unnamed_guarantees(port: Port) -> tuple[str, ...]:
    """The request groups of a port for which its binding names no provider."""
    groups, _ = groups_of(port.resource_request, port.id)
    named = providers_in(port.resource_request, port.id, port.profile.get(ALLOCATION))
    return tuple(group.id for group in groups if group.id not in named)


def held_by(nic: Nic) -> dict[Key, int]:
    """What is claimed for one NIC: its addresses on a segment, and its guarantees."""
    held: dict[Key, int] = {}
    addresses = sum(each.version == 4 for each in nic.addresses)
    if nic.segment is not None and addresses:
        held[ProviderId(nic.segment), IPV4_ADDRESS] = addresses
    for provider, resource, amount in nic.guarantees:
        held[ProviderId(provider), resource] = held.get((ProviderId(provider), resource), 0) + amount
    return held


def nics_of(ports: Sequence[Port], networks: Mapping[str, NetworkFacts]) -> tuple[Nic, ...]:
    return tuple(nic_of(port, networks.get(port.network)) for port in ports)


def nics_after(server: Server, ports: Sequence[Port], networks: Mapping[str, NetworkFacts]) -> tuple[Nic, ...]:
    """The NICs of ports that were bound again; what only the record knows is kept."""
    before = {nic.port: nic for nic in server.nics}
    return tuple(as_recorded(nic, before.get(nic.port)) for nic in nics_of(ports, networks))


def as_recorded(nic: Nic, before: Nic | None) -> Nic:
    """The NIC with the fields that only the record knows: floating addresses, and whether its address was chosen."""
    if before is None:
        return nic
    return msgspec.structs.replace(nic, floating=before.floating, chosen=before.chosen)


def held_by_all(nics: Sequence[Nic]) -> dict[Key, int]:
    """What is claimed for all these NICs."""
    return amounts_of((*key, amount) for nic in nics for key, amount in held_by(nic).items())


def segments_for(port: Port, network: NetworkFacts | None) -> SegmentAsk:
    """The segments for a port: with an address only the address's segment, otherwise all segments of the network
    (S3.4).
    """
    if network is None:
        return SegmentAsk(port.id)
    if not network.routed:
        return SegmentAsk(network.name or network.id, physnets=_physnets(network))
    by_subnet = {subnet.id: subnet.segment for subnet in network.subnets}
    brought = tuple({segment for ip in port.fixed_ips if (segment := by_subnet.get(ip.subnet)) is not None})
    offered = brought or tuple(
        dict.fromkeys(subnet.segment for subnet in network.subnets if subnet.segment and subnet.version == 4)
    )
    if not offered:  # no addresses are counted, but the host must reach one of the segments
        return SegmentAsk(network.name or network.id, physnets=_physnets(network))
    return SegmentAsk(
        network.name or network.id,
        segments=tuple(ProviderId(segment) for segment in offered),
        addresses=0 if port.ip_allocation == "none" or _only_ipv6(port) else 1,
    )


def _only_ipv6(port: Port) -> bool:
    return bool(port.fixed_ips) and all(":" in each.address for each in port.fixed_ips)


def other_subnets(
    ports: Sequence[Port], networks: Mapping[str, NetworkFacts], chosen: Mapping[int, str]
) -> dict[int, OtherSubnets]:
    """For each NIC with a chosen subnet, the other IPv4 subnets of its segment: the claim counts the addresses of all
    of them.
    """
    by_index: dict[int, OtherSubnets] = {}
    for port in ports:
        network, first = networks.get(port.network), chosen.get(port.index)
        if network is None or first is None:
            continue
        segment = next((subnet.segment for subnet in network.subnets if subnet.id == first), None)
        others = [each for each in network.subnets if each.id != first]
        beside = [each for each in others if each.segment == segment]
        spare = tuple(each.id for each in beside if each.version == 4)
        v6 = next((each.id for each in beside if each.version == 6 and not each.automatic), None)
        elsewhere = tuple(each.id for each in others if each.automatic and each.segment != segment)
        if segment is not None and (spare or v6 or elsewhere):
            by_index[port.index] = OtherSubnets(spare, v6, elsewhere)
    return by_index


def _physnets(network: NetworkFacts) -> tuple[str, ...]:
    physnets = {segment.physical_network for segment in network.segments if segment.physical_network}
    return tuple(physnets or ({network.physical_network} if network.physical_network else ()))
