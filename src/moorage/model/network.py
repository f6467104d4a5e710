"""Networks, segments and ports in our words: what the network service told, what a NIC asks, what a port is.

These values stand in the journal of a boot (RULES §19): a field is added with a default, never renamed or re-typed.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from moorage.model.errors import Problem
from moorage.model.ids import CellId

MAC_PREFIX = "fa:16:3e"
SALTS_MAX = 8
"""How often another MAC is tried when somebody else's port has the one we minted."""
NICS_MAX = 64
"""NICs of one server, over its life."""


class SubnetFacts(msgspec.Struct, frozen=True):
    """One subnet, as far as a server cares."""

    id: str
    cidr: str
    version: int = 4
    gateway: str | None = None
    dns: tuple[str, ...] = ()
    segment: str | None = None
    """The segment it belongs to, on a routed network."""
    network: str = ""
    dhcp: bool = True
    pools: tuple[tuple[str, str], ...] = ()
    """First and last address of each allocation pool."""
    routes: tuple[tuple[str, str], ...] = ()
    """Destination and next hop."""
    automatic: bool = False
    """IPv6: every port on its wire has the address that follows from its MAC, unasked."""
    ipv6_address_mode: str | None = None
    """How guests get their IPv6 address: `slaac`, `dhcpv6-stateful` or `dhcpv6-stateless`; None: the network service does not say."""
    ipv6_ra_mode: str | None = None
    """What the network's router advertises, in the same words; None: nothing, or somebody else's router does."""


class OtherSubnets(msgspec.Struct, frozen=True):
    """What else a segment has beside the subnet that an IPv4 address is asked of."""

    spare: tuple[str, ...] = ()
    """Its other IPv4 subnets, for when that one has no address left."""
    v6: str | None = None
    """The subnet its ports have an IPv6 address of that must be asked for."""
    elsewhere: tuple[str, ...] = ()
    """Automatic IPv6 subnets of the network's other segments: a port that was there keeps those addresses until told."""


class SegmentFacts(msgspec.Struct, frozen=True):
    """One segment of a network."""

    id: str
    physical_network: str | None = None
    network_type: str = ""
    segmentation_id: int | None = None
    network: str = ""
    name: str | None = None


class NetworkFacts(msgspec.Struct, frozen=True):
    """One network that the caller may use."""

    id: str
    name: str
    mtu: int = 1500
    subnets: tuple[SubnetFacts, ...] = ()
    segments: tuple[SegmentFacts, ...] = ()
    shared: bool = False
    external: bool = False
    qos_policy: str | None = None
    project: str = ""
    up: bool = True
    port_security: bool = True
    network_type: str = ""
    physical_network: str | None = None
    segmentation_id: int | None = None
    dns_domain: str = ""
    l2_adjacent: bool = True
    """False: every segment is a broadcast domain of its own."""
    cells: tuple[CellId, ...] = ()
    """Cells that have addresses of it; empty: it is everywhere."""

    @property
    def routed(self) -> bool:
        """Addresses are given per segment, when the host is known."""
        return any(subnet.segment for subnet in self.subnets)


class FixedIp(msgspec.Struct, frozen=True):
    subnet: str
    address: str


class NicAsk(msgspec.Struct, frozen=True):
    """One network card to be: decided before step one."""

    index: int
    network: str
    """Empty: the project's automatically allocated network, got or made together with the port."""
    port: str | None = None
    """The user's port; None: we make one."""
    address: str | None = None
    """A fixed address asked for, or that a user's port brings; it is never cleared."""
    tag: str | None = None
    mac: str = ""
    """Minted by us when the port is ours (RULES §7); a user's port brings its own."""
    ours: bool = True
    vnic_type: str = "normal"
    revision: int | None = None
    """A user's port: its revision when it was checked."""
    original_profile: dict[str, Any] = {}
    original_fixed_ips: tuple[FixedIp, ...] = ()
    """A user's port: what the final unbind restores."""
    port_security: bool = True
    """False: the network wants no security groups."""
    resource_request: dict[str, Any] | None = None
    """A user's port: what it is guaranteed."""


class CheckedNics(msgspec.Struct, frozen=True):
    """What the network service said about a request, asked with the user's token."""

    nics: tuple[NicAsk, ...] = ()
    """In order, without MACs: those are minted per server."""
    networks: dict[str, NetworkFacts] = {}
    security_groups: tuple[str, ...] = ()
    """Ids; empty: the network service's default."""
    group_names: tuple[str, ...] | None = None
    """What the server is shown to have: the groups its ports will have, by name; None: as they were asked for."""
    auto: bool = False
    """`auto` was asked and there is no network yet: the operation gets the auto-allocated topology first."""
    ports: "dict[str, Port]" = {}
    """The user's own ports, as they were."""
    ports_free: int | None = None
    """Ports the project's quota still allows; None: no limit, or no new port is needed."""


class DhcpOption(msgspec.Struct, frozen=True):
    """One more option that DHCP gives to a port (`extra_dhcp_opts`)."""

    name: str
    """Of dnsmasq's names, or the option's number."""
    value: str
    version: int = 4


class Port(msgspec.Struct, frozen=True):
    """One port as the network service last told it, and what we know about whose it is."""

    id: str
    network: str
    mac: str
    index: int = 0
    ours: bool = True
    fixed_ips: tuple[FixedIp, ...] = ()
    revision: int = 0
    ip_allocation: str = "immediate"
    """immediate, deferred (given at bind) or none."""
    status: str = "DOWN"
    device_id: str = ""
    device_owner: str = ""
    project: str = ""
    host: str = ""
    vif_type: str = "unbound"
    vif_details: dict[str, Any] = {}
    vnic_type: str = "normal"
    profile: dict[str, Any] = {}
    security_groups: tuple[str, ...] = ()
    resource_request: dict[str, Any] | None = None
    name: str = ""
    tag: str | None = None
    original_profile: dict[str, Any] = {}
    """A user's port's profile before we took it: the final unbind restores it."""
    original_fixed_ips: tuple[FixedIp, ...] = ()
    dns_name: str = ""
    address_chosen: bool = False
    """The user chose the address, or their port brought it: no rebind may change it."""
    dhcp_options: tuple[DhcpOption, ...] = ()

    @property
    def key(self) -> str:
        """What it is known by before it has an id: its MAC, which was minted."""
        return self.id or self.mac

    @property
    def wants_address(self) -> bool:
        return self.ip_allocation != "none"


class Binding(msgspec.Struct, frozen=True):
    """What one host makes of a port; a port has one active binding at most, and inactive ones beside it while its server moves."""

    port: str
    host: str
    active: bool
    vnic_type: str = "normal"
    vif_type: str = "unbound"
    vif_details: dict[str, Any] = {}
    profile: dict[str, Any] = {}

    def of(self, port: Port) -> Port:
        """The port as it is where this binding is the active one; nobody said yet that it is up there."""
        told = {"vnic_type": self.vnic_type, "vif_type": self.vif_type, "vif_details": self.vif_details}
        return msgspec.structs.replace(port, host=self.host, profile=self.profile, status="DOWN", **told)


class Availability(msgspec.Struct, frozen=True):
    """How many addresses a subnet has and how many are taken, as the network service counts them."""

    subnet: str
    version: int
    cidr: str
    total: int
    used: int


class HostWiring(msgspec.Struct, frozen=True):
    """What the network service's agent on a host says it is wired to."""

    host: str
    physical_networks: tuple[str, ...] = ()
    tunnels: tuple[str, ...] = ()
    alive: bool = True


class AgentDevices(msgspec.Struct, frozen=True):
    """What one of the network service's agents says it can guarantee."""

    host: str
    kind: str
    """`Open vSwitch agent`, `NIC Switch agent` …"""
    bandwidths: dict[str, dict[str, int | None]] = {}
    """Device → way (egress, ingress) → kilobit per second."""
    hypervisors: dict[str, str] = {}
    """Device → the hypervisor it is in."""
    packets: dict[str, dict[str, int | None]] = {}
    """Hypervisor → way (any, or egress and ingress) → kilopackets per second."""
    mappings: dict[str, tuple[str, ...]] = {}
    """Physical network → devices."""
    synced: bool | None = None
    """Whether the network service reported it itself; None: it does not do so."""


class BindOptions(msgspec.Struct, frozen=True):
    """How ports are bound to a host, each field by the NIC's index."""

    subnets: Mapping[int, str] = {}
    """The subnet that a NIC's address is claimed from."""
    other_subnets: Mapping[int, OtherSubnets] = {}
    """The segment's other subnets; its other IPv4 subnets are asked in turn when the claimed one has no address left."""
    profiles: Mapping[int, Mapping[str, Any]] = {}
    """What is added to the binding profile: `allocation`, a PCI device."""
    tried: Collection[str] | None = None
    """Hosts where earlier attempts of this operation may have left a port, though their results are not among the ports.

    A port on any other host was bound by somebody else: Stale.  None: any host is accepted, as long as the port is the server's.
    """
    keeps: Mapping[int, Sequence[FixedIp]] | None = None
    """Addresses that a port keeps beside the one of its subnet, on whatever segment; without a subnet: all that it is to have."""


class BindRefused(Problem):
    """The network service refused a port on a host; the next host may do. `code` is its own word for it."""

    code = "bind_refused"

    def __init__(
        self,
        public: str,
        *,
        private: str = "",
        code: str | None = None,
        port: str = "",
        host: str = "",
        reason: str = "",
        index: int = 0,
    ) -> None:
        super().__init__(public, private=private, code=code)
        self.port = port
        self.host = host
        self.reason = reason
        """The network service's own sentence."""
        self.index = index
        """Which NIC of the server it is."""


def mint_mac(server: str, nic_index: int, salt: int = 0) -> str:
    """The MAC of our own port for this NIC: always the same, so that a repeated POST is refused instead of doubled."""
    digest = hashlib.sha256(f"{server}/{nic_index}/{salt}".encode()).digest()
    return f"{MAC_PREFIX}:{digest[0]:02x}:{digest[1]:02x}:{digest[2]:02x}"


@lru_cache(maxsize=64)
def minted_macs(server: str, nics: int = NICS_MAX) -> frozenset[str]:
    """Every MAC we may ever have minted for this server."""
    return frozenset(mint_mac(server, index, salt) for index in range(nics) for salt in range(SALTS_MAX))
