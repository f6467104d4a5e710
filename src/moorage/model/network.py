"""Networks, segments, NICs and ports, built from the network service's answers and from requests.

These values are stored in the journal of a boot (RULES §19): a field is added with a default, never renamed or re-typed.
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
"""How often another MAC is tried if another port already has the one that we minted."""
NICS_MAX = 64
"""NICs of one server, over its life."""


class SubnetFacts(msgspec.Struct, frozen=True):
    """The facts about a subnet that a server needs."""

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
    """IPv6: every port on the segment gets the address that follows from its MAC, without a request."""
    ipv6_address_mode: str | None = None
    """How guests get their IPv6 address: `slaac`, `dhcpv6-stateful` or `dhcpv6-stateless`; None: the network service does not say."""
    ipv6_ra_mode: str | None = None
    """What the network's router advertises, in the same words; None: nothing, or somebody else's router does."""


class OtherSubnets(msgspec.Struct, frozen=True):
    """The other subnets of a segment, besides the one from which an IPv4 address is taken."""

    spare: tuple[str, ...] = ()
    """Its other IPv4 subnets, in case that one has no address left."""
    v6: str | None = None
    """The subnet of which ports must ask for an IPv6 address."""
    elsewhere: tuple[str, ...] = ()
    """Automatic IPv6 subnets of the network's other segments: a port from there keeps such an address until a request removes it."""


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
    """Cells that have addresses of it; empty: all cells."""

    @property
    def routed(self) -> bool:
        """Addresses are given per segment, when the host is known."""
        return any(subnet.segment for subnet in self.subnets)


class NetworkNames(msgspec.Struct, frozen=True):
    """The names of all networks and of all security groups, by id."""

    networks: dict[str, str] = {}
    groups: dict[str, str] | None = None
    """None: there are no security groups."""


class FixedIp(msgspec.Struct, frozen=True):
    subnet: str
    address: str


class NicAsk(msgspec.Struct, frozen=True):
    """One NIC of a new server; it is decided before the first step."""

    index: int
    network: str
    """Empty: the project's automatically allocated network, which is found or made together with the port."""
    port: str | None = None
    """The user's port; None: we make one."""
    address: str | None = None
    """A fixed address that was asked for, or that the user's port has; it is never removed."""
    tag: str | None = None
    mac: str = ""
    """Minted by us when the port is ours (RULES §7); a user's port brings its own."""
    ours: bool = True
    vnic_type: str = "normal"
    revision: int | None = None
    """A user's port: its revision when it was checked."""
    original_profile: dict[str, Any] = {}
    original_fixed_ips: tuple[FixedIp, ...] = ()
    """Of a user's port: the addresses that are restored when it is released."""
    port_security: bool = True
    """False: the network does not use security groups."""
    resource_request: dict[str, Any] | None = None
    """Of a user's port: its guarantees."""


class CheckedNics(msgspec.Struct, frozen=True):
    """The result of checking a request's NICs with the user's token."""

    nics: tuple[NicAsk, ...] = ()
    """In order, without MACs, which are minted for each server."""
    networks: dict[str, NetworkFacts] = {}
    security_groups: tuple[str, ...] = ()
    """Ids; empty: the network service's default."""
    group_names: tuple[str, ...] | None = None
    """Names of the security groups that the server shows, which its ports will have; None: the names in the request."""
    auto: bool = False
    """Whether `auto` was asked and there is no network yet: then the operation first gets the auto-allocated topology."""
    ports: "dict[str, Port]" = {}
    """The user's own ports, as they were when they were checked."""
    ports_free: int | None = None
    """Ports the project's quota still allows; None: no limit, or no new port is needed."""


class DhcpOption(msgspec.Struct, frozen=True):
    """One more option that DHCP gives to a port (`extra_dhcp_opts`)."""

    name: str
    """Of dnsmasq's names, or the option's number."""
    value: str
    version: int = 4


class Port(msgspec.Struct, frozen=True):
    """One port as the network service last showed it, and whether we or the user made it."""

    id: str
    network: str
    mac: str
    index: int = 0
    ours: bool = True
    fixed_ips: tuple[FixedIp, ...] = ()
    revision: int = 0
    ip_allocation: str = "immediate"
    """immediate, deferred (the address is given when the port is bound) or none."""
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
    request_shown: bool = True
    """Whether the service showed `resource_request` at all, be it null: Neutron shows it to administrators only."""
    name: str = ""
    tag: str | None = None
    original_profile: dict[str, Any] = {}
    """Of a user's port: its binding profile before we took it, which is restored when it is released."""
    original_fixed_ips: tuple[FixedIp, ...] = ()
    dns_name: str = ""
    address_chosen: bool = False
    """The user chose the address, or their port brought it: no rebind may change it."""
    dhcp_options: tuple[DhcpOption, ...] = ()
    floating: tuple[tuple[str, str], ...] = ()
    """Of a user's port, when it was taken: its floating addresses, each with the fixed one that it stands for."""

    @property
    def key(self) -> str:
        """The key of a port that has no id yet: its minted MAC."""
        return self.id or self.mac

    @property
    def wants_address(self) -> bool:
        return self.ip_allocation != "none"


class Binding(msgspec.Struct, frozen=True):
    """The binding of a port to one host. A port has at most one active binding, and during a move also inactive ones."""

    port: str
    host: str
    active: bool
    vnic_type: str = "normal"
    vif_type: str = "unbound"
    vif_details: dict[str, Any] = {}
    profile: dict[str, Any] = {}

    def of(self, port: Port) -> Port:
        """Return the port as it is when this binding is active; it is not known to be up there yet."""
        bound = {"vnic_type": self.vnic_type, "vif_type": self.vif_type, "vif_details": self.vif_details}
        return msgspec.structs.replace(port, host=self.host, profile=self.profile, status="DOWN", **bound)


class Availability(msgspec.Struct, frozen=True):
    """How many addresses a subnet has and how many are in use, as the network service counts them."""

    subnet: str
    version: int
    cidr: str
    total: int
    used: int


class HostWiring(msgspec.Struct, frozen=True):
    """The physical networks of a host, as the network service's agent there reports them."""

    host: str
    physical_networks: tuple[str, ...] = ()
    tunnels: tuple[str, ...] = ()
    alive: bool = True


class AgentDevices(msgspec.Struct, frozen=True):
    """What one of the network service's agents can guarantee to ports."""

    host: str
    kind: str
    """`Open vSwitch agent`, `NIC Switch agent` …"""
    bandwidths: dict[str, dict[str, int | None]] = {}
    """Device → way (egress, ingress) → kilobit per second."""
    hypervisors: dict[str, str] = {}
    """Device → its hypervisor."""
    packets: dict[str, dict[str, int | None]] = {}
    """Hypervisor → way (any, or egress and ingress) → kilopackets per second."""
    mappings: dict[str, tuple[str, ...]] = {}
    """Physical network → devices."""
    synced: bool | None = None
    """Whether the network service wrote it into Placement itself; None: it does not do that."""


class BindOptions(msgspec.Struct, frozen=True):
    """How ports are bound to a host; each mapping is keyed by the NIC's index."""

    subnets: Mapping[int, str] = {}
    """The subnet of which a NIC's address is claimed."""
    other_subnets: Mapping[int, OtherSubnets] = {}
    """The segment's other subnets; its other IPv4 subnets are asked in turn when the claimed one has no address left."""
    profiles: Mapping[int, Mapping[str, Any]] = {}
    """What is added to the binding profile: `allocation`, a PCI device."""
    tried: Collection[str] | None = None
    """Hosts to which earlier attempts of this operation may have bound a port, even if `ports` does not show that.

    A port on any other host was bound by another operation: Stale.  None: any host is accepted if the port is the server's.
    """
    keeps: Mapping[int, Sequence[FixedIp]] | None = None
    """Addresses that a port keeps in addition to the one of its subnet, on any segment; without a subnet: all its addresses."""


class BindRefused(Problem):
    """The network service refused to bind a port to a host; another host may work. `code` is the service's type of the error."""

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
        """The network service's own message."""
        self.index = index
        """Which NIC of the server it is."""


def mint_mac(server: str, nic_index: int, salt: int = 0) -> str:
    """Return the MAC of our own port for this NIC: always the same, so that a repeated POST is refused and makes no second port."""
    digest = hashlib.sha256(f"{server}/{nic_index}/{salt}".encode()).digest()
    return f"{MAC_PREFIX}:{digest[0]:02x}:{digest[1]:02x}:{digest[2]:02x}"


@lru_cache(maxsize=64)
def minted_macs(server: str, nics: int = NICS_MAX) -> frozenset[str]:
    """Return every MAC that we may have minted for this server."""
    return frozenset(mint_mac(server, index, salt) for index in range(nics) for salt in range(SALTS_MAX))
