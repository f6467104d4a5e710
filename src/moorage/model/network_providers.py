"""Resource providers of a network service's agents: their ids, traits and classes, as Neutron's placement plug-in makes them.

The ids are the same, so that a cloud that changes from the embedded service to a real one keeps its providers.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Literal
from uuid import UUID, uuid5

from moorage.model.ids import ProviderId

OVS = "Open vSwitch agent"
NIC_SWITCH = "NIC Switch agent"
LINUX_BRIDGE = "Linux bridge agent"
"""Of hosts that plug ports into bridges themselves."""
_NAMESPACES = {
    OVS: UUID("87ee7d5c-73bb-11e8-9008-c4d987b2a692"),
    NIC_SWITCH: UUID("87f1895c-73bb-11e8-9008-c4d987b2a692"),
    LINUX_BRIDGE: UUID("0b6f2a1e-6f5d-5c9b-8f0c-3d4e7a9b1c25"),
}
_SRIOV = UUID("5f0f2a54-6a0a-5e0b-8d2d-0c6d0a3d1b67")
_VNIC_TYPES = {
    OVS: ("normal",),
    NIC_SWITCH: ("direct", "macvtap", "direct-physical"),
    LINUX_BRIDGE: ("normal",),
}
"""What the embedded service's two mechanisms bind."""

SRIOV = "SR-IOV"
"""Between a host's name and its interface's, in the names of providers of virtual functions."""

KEPT_MAX = 65_536
"""Limit of names whose ids and traits are cached: a thousand hosts are read again every few seconds."""

TUNNELLED = "rp_tunnelled"
"""The device that stands for all tunnelled networks."""

TUNNEL_TRAIT = "CUSTOM_NETWORK_TUNNEL_PROVIDER"
BANDWIDTH = {"egress": "NET_BW_EGR_KILOBIT_PER_SEC", "ingress": "NET_BW_IGR_KILOBIT_PER_SEC"}
PACKETS = {
    "egress": "NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC",
    "ingress": "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC",
    "any": "NET_PACKET_RATE_KILOPACKET_PER_SEC",
}
GUARANTEED = frozenset({*BANDWIDTH.values(), *PACKETS.values()})
"""The classes that ports are guaranteed amounts of."""


def known(kind: str) -> bool:
    """Whether agents of this kind guarantee anything."""
    return kind in _NAMESPACES


@lru_cache(KEPT_MAX)
def agent_provider(kind: str, hypervisor: str) -> ProviderId:
    return ProviderId(str(uuid5(_NAMESPACES[kind], hypervisor)))


@lru_cache(KEPT_MAX)
def device_provider(kind: str, hypervisor: str, device: str) -> ProviderId:
    return ProviderId(str(uuid5(_NAMESPACES[kind], f"{hypervisor}:{device}")))


def sriov_provider(hypervisor: str, address: str) -> ProviderId:
    """The provider of the virtual functions of the interface at this PCI address."""
    return ProviderId(str(uuid5(_SRIOV, f"{hypervisor}:{address}")))


@lru_cache(KEPT_MAX)
def trait_part(name: str) -> str:
    """A name as a trait may hold it."""
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name).upper()


def physnet_trait(physnet: str) -> str:
    return f"CUSTOM_PHYSNET_{trait_part(physnet)}"


def vnic_trait(vnic_type: str) -> str:
    return f"CUSTOM_VNIC_TYPE_{trait_part(vnic_type)}"


@cache
def agent_traits(kind: str) -> tuple[str, ...]:
    return tuple(vnic_trait(each) for each in _VNIC_TYPES[kind])


def device_traits(kind: str, device: str, mappings: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the traits of its physical network (or of tunnels), and of the VNIC types that it supports."""
    wires = tuple(physnet_trait(physnet) for physnet, devices in mappings.items() if device in devices)
    tunnel = (TUNNEL_TRAIT,) if device == TUNNELLED else ()
    return tunnel + wires + agent_traits(kind)


def rates_of(what: Literal["bandwidth", "packets"], rates: Mapping[str, int | None]) -> dict[str, int]:
    """Return resource classes with their totals; a missing value, or 0, means that the class is not offered."""
    classes = BANDWIDTH if what == "bandwidth" else PACKETS
    return {classes[way]: amount for way, amount in rates.items() if amount and way in classes}


def guaranteed_by(
    rules: Iterable[Mapping[str, Any]], physnet: str | None, vnic_type: str
) -> dict[str, tuple[tuple[str, ...], dict[str, int]]]:
    """Return what a QoS policy's rules make a port ask: `bandwidth`, `packets` → traits and amounts of one provider.

    Bandwidth is the physical network's, or (None) of what carries the tunnels.
    """
    listed = list(rules)
    vnic = vnic_trait(vnic_type)
    wire = TUNNEL_TRAIT if physnet is None else physnet_trait(physnet)
    parts = {
        "bandwidth": ((wire, vnic), _minimum(listed, "minimum_bandwidth", "min_kbps", BANDWIDTH)),
        "packets": ((vnic,), _minimum(listed, "minimum_packet_rate", "min_kpps", PACKETS)),
    }
    return {name: part for name, part in parts.items() if part[1]}


def _minimum(rules: Iterable[Mapping[str, Any]], kind: str, amount: str, classes: Mapping[str, str]) -> dict[str, int]:
    return {classes[rule["direction"]]: rule[amount] for rule in rules if rule["type"] == kind and rule[amount]}
