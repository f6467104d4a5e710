"""Networks, segments and ports in our words: what the network service told, what a NIC asks, what a port is.

These values stand in the journal of a boot (RULES §19): a field is added with a default, never renamed or re-typed.
"""

from typing import Any

import msgspec

from moorage.model.errors import Problem


class SubnetFacts(msgspec.Struct, frozen=True):
    """One subnet, as far as a server cares."""

    id: str
    cidr: str
    version: int = 4
    gateway: str | None = None
    dns: tuple[str, ...] = ()
    segment: str | None = None
    """The segment it belongs to, on a routed network."""


class SegmentFacts(msgspec.Struct, frozen=True):
    """One segment of a network."""

    id: str
    physical_network: str | None = None
    network_type: str = ""
    segmentation_id: int | None = None


class NetworkFacts(msgspec.Struct, frozen=True):
    """One network that the asker may use."""

    id: str
    name: str
    mtu: int = 1500
    subnets: tuple[SubnetFacts, ...] = ()
    segments: tuple[SegmentFacts, ...] = ()
    shared: bool = False
    external: bool = False
    qos_policy: str | None = None

    @property
    def routed(self) -> bool:
        """Addresses are given per segment, when the host is known."""
        return any(subnet.segment for subnet in self.subnets)


class NicAsk(msgspec.Struct, frozen=True):
    """One network card to be: decided before step one."""

    index: int
    network: str
    port: str | None = None
    """The user's port; None: we make one."""
    address: str | None = None
    """A fixed address asked for, or that a user's port brings; it is never cleared."""
    tag: str | None = None
    mac: str = ""
    """Minted by us when the port is ours (RULES §7); a user's port brings its own."""
    ours: bool = True
    vnic_type: str = "normal"


class CheckedNics(msgspec.Struct, frozen=True):
    """What the network service said about a request, asked with the user's token."""

    nics: tuple[NicAsk, ...] = ()
    """In order, without MACs: those are minted per server."""
    networks: dict[str, NetworkFacts] = {}
    security_groups: tuple[str, ...] = ()
    """Ids; empty: the network service's default."""
    auto: bool = False
    """`auto` was asked and there is no network yet: the operation gets the auto-allocated topology first."""


class FixedIp(msgspec.Struct, frozen=True):
    subnet: str
    address: str


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


class BindRefused(Problem):
    """The network service refused a port on a host; the next host may do. `code` is its own word for it."""

    code = "bind_refused"

    def __init__(
        self, public: str, *, private: str = "", code: str | None = None, port: str = "", host: str = ""
    ) -> None:
        super().__init__(public, private=private, code=code)
        self.port = port
        self.host = host
