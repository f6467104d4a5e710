"""What a host must know of a port that it wires itself: what the port may send and receive, and how fast.

The embedded network service describes its ports so, and hosts whose agent filters keep what they were told.  Each object is complete and has
a version that only grows: of two with one id the higher version holds, whatever order they arrive in.

These structs travel in messages and stay on hosts' disks: fields are only ever added, with defaults (RULES §19).
"""

import hashlib
from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address
from typing import Literal

import msgspec

from moorage.model.ids import NetworkId, PortId
from moorage.model.route_description import ArpEntry, FloatingAddress, RouterDescription, SubnetHints

ADDRESSES_PER_PART = 5_000
"""Of one `AddressSetPart`: at most a quarter of a megabyte."""
PARTS_MAX = 100
"""Of one set; members beyond them are left out, and the network service says so in its log."""


class FilterRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """What may pass, as a rule of a security group says it; what no rule allows may not."""

    direction: Literal["ingress", "egress"]
    """`ingress`: to the guest."""
    version: Literal[4, 6]
    """Of IP."""
    protocol: int | None = None
    low: int | None = None
    """The first port, or the ICMP type."""
    high: int | None = None
    """The last port, or the ICMP code."""
    prefix: str = ""
    """Whom it is about; empty, without a `members`: everybody."""
    members: str = ""
    """The id of the `AddressSet` whom it is about."""


class AllowedAddresses(msgspec.Struct, frozen=True):
    """Under this MAC the guest may have these addresses and prefixes."""

    mac: str
    prefixes: tuple[str, ...] = ()


class PortFilter(msgspec.Struct, frozen=True):
    """Of a port with port security."""

    allowed: tuple[AllowedAddresses, ...] = ()
    rules: tuple[FilterRule, ...] = ()
    stateful: bool = True
    """Answers to what was allowed pass too."""


class Rate(msgspec.Struct, frozen=True, omit_defaults=True):
    """In one direction; 0: nothing is said of it."""

    limit_kbps: int = 0
    burst_kbit: int = 0
    guaranteed_kbps: int = 0


class PacketRate(msgspec.Struct, frozen=True, omit_defaults=True):
    """In one direction; 0: nothing is said of it."""

    limit_pps: int = 0
    """Packets in a second."""
    burst_packets: int = 0


class PortBandwidth(msgspec.Struct, frozen=True, omit_defaults=True):
    """By the QoS policy of the port, or of its network."""

    egress: Rate = Rate()
    """From the guest."""
    ingress: Rate = Rate()
    dscp: int | None = None
    """The mark that each packet from the guest is given."""
    egress_packets: PacketRate = PacketRate()
    ingress_packets: PacketRate = PacketRate()


class PortDescription(msgspec.Struct, frozen=True, omit_defaults=True):
    """One port, as one host is to wire it."""

    port: PortId
    version: int
    network: NetworkId = NetworkId("")
    mac: str = ""
    up: bool = True
    """Its administrative state; nothing passes a port that is down."""
    filter: PortFilter | None = None
    """None: it has no port security, and nothing is filtered."""
    bandwidth: PortBandwidth | None = None
    floating: tuple[FloatingAddress, ...] = ()
    """On the host where the port is bound, and on no other one that it is on its way to."""
    routers: tuple[RouterDescription, ...] = ()
    subnets: tuple[SubnetHints, ...] = ()
    """Of its addresses; a network service of an earlier release says nothing of them."""
    bound: bool = False
    """Whether this is the host where the port is bound, and not one that it is on its way to."""


class AddressSetPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """What several ports have in common, by the id of the set.

    Addresses and prefixes that rules name: members of a security group or an address group.  Or neighbours: those ports of a network that is
    routed whose addresses begin alike (`arp_set_id`).
    """

    id: str
    version: int
    part: int = 0
    parts: int = 1
    """It is used when all parts of its version are there."""
    addresses: tuple[str, ...] = ()
    arp_entries: tuple[ArpEntry, ...] = ()


ARP, NDP = "arp", "ndp"
NDP_SETS = 64
"""Of a network: addresses of IPv6 are made of MACs, so they are dealt out by their ends."""


def arp_set_id(network: NetworkId, address: str) -> str:
    """Of the set with this address in it: at most 256 of a network are in one, so a port that comes or goes changes few.

    Earlier releases know those of IPv4 alone, so the others have another kind.
    """
    if ":" in address:
        return f"{NDP}/{network}/{int(IPv6Address(address)) % NDP_SETS}"
    return f"{ARP}/{network}/{address.rpartition('.')[0]}"


def network_of_arp_set(id: str) -> NetworkId | None:
    """The network whose neighbours a set with this id has; None: it has none."""
    kind, _, rest = id.partition("/")
    return NetworkId(rest.partition("/")[0]) if kind in {ARP, NDP} else None


class Present(msgspec.Struct, frozen=True):
    """All that the host is to know: whatever else it has is gone."""

    ports: tuple[PortId, ...] = ()
    sets: tuple[str, ...] = ()


class HostDescriptions(msgspec.Struct, frozen=True):
    """The answer of the network service for one host: what is newer than the version that was asked for, and what there is at all."""

    version: int
    """Of all of it: no object has a higher one, and it is higher than before when one went."""
    ports: tuple[PortDescription, ...] = ()
    sets: tuple[AddressSetPart, ...] = ()
    present: Present = Present()


class ChangedHosts(msgspec.Struct, frozen=True):
    """Which hosts are described otherwise than by an earlier version, and the version of the newest of them."""

    version: int
    hosts: tuple[str, ...] = ()


def held_digest(ports: Mapping[PortId, int], sets: Mapping[str, int]) -> str:
    """Of ids and versions: the same for the same descriptions, whatever their order."""
    whole = hashlib.blake2b(digest_size=8)
    _add(whole, "port", ports.items())
    _add(whole, "set", sets.items())
    return whole.hexdigest()


def _add(whole: "hashlib.blake2b", kind: str, versions: Iterable[tuple[str, int]]) -> None:
    for name, version in sorted(versions):
        whole.update(f"{kind} {name}={version};".encode())
