"""Ports: got or made before a host is chosen, bound right after, taken back by key (RULES §7)."""

from collections.abc import Mapping, Sequence

from moorage.model.guest import VifAddress, VifData
from moorage.model.ids import ProviderId
from moorage.model.network import NetworkFacts, NicAsk, Port, SubnetFacts
from moorage.model.request_groups import ALLOCATION, amounts_held
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import Address, Nic
from moorage.store.region.placement.claims import Key

MTU_DEFAULT = 1500


def made_macs(nics: Sequence[NicAsk]) -> tuple[str, ...]:
    """The MACs that were minted here: they, and nothing else, say which ports are ours."""
    return tuple(nic.mac for nic in nics if nic.ours and nic.mac)


def nic_of(port: Port, facts: NetworkFacts | None) -> Nic:
    """What the owner sees of a bound port."""
    subnets = {} if facts is None else {subnet.id: subnet for subnet in facts.subnets}
    return Nic(
        index=port.index,
        network=port.network,  # type: ignore[arg-type]  # an id as the network service told it
        network_name="" if facts is None else facts.name,
        port=port.id,  # type: ignore[arg-type]
        mac=port.mac,
        ours=port.ours,
        addresses=tuple(Address(ip.subnet, ip.address, 6 if ":" in ip.address else 4) for ip in port.fixed_ips),
        tag=port.tag,
        vnic_type=port.vnic_type,
        vif_type=port.vif_type,
        segment=next((subnets[ip.subnet].segment for ip in port.fixed_ips if ip.subnet in subnets), None),
        guarantees=tuple(
            (provider, resource, amount)
            for (provider, resource), amount in amounts_held(
                port.resource_request, port.id, port.profile.get(ALLOCATION)
            ).items()
        ),
    )


def held_by(nic: Nic) -> dict[Key, int]:
    """What is claimed for one NIC: its addresses on a segment, and its guarantees."""
    held: dict[Key, int] = {}
    addresses = sum(each.version == 4 for each in nic.addresses)
    if nic.segment is not None and addresses:
        held[ProviderId(nic.segment), IPV4_ADDRESS] = addresses
    for provider, resource, amount in nic.guarantees:
        held[ProviderId(provider), resource] = held.get((ProviderId(provider), resource), 0) + amount
    return held


def vif_of(port: Port, facts: NetworkFacts | None) -> VifData:
    """What the host is told of a bound port: all it needs (S0.20)."""
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
    )


def _vif_address(subnet: str, address: str, subnets: Mapping[str, SubnetFacts]) -> VifAddress:
    facts = subnets.get(subnet)
    if facts is None:
        return VifAddress(address, subnet)  # type: ignore[arg-type]
    return VifAddress(address, subnet, facts.cidr, facts.gateway or "", facts.dns)  # type: ignore[arg-type]
