"""What lies behind a port's subnets: name servers, routers, the outside, and addresses of the outside that stand for the port's own.

Part of `PortDescription` (port_description.py), so fields are only ever added, with defaults.
"""

import msgspec

from moorage.model.ids import NetworkId, SubnetId


class ExternalNetwork(msgspec.Struct, frozen=True, omit_defaults=True):
    """A network of the outside, as far as one of its IPv4 subnets and one of its IPv6 subnets go."""

    network: NetworkId
    physical_network: str = ""
    cidr: str = ""
    gateway: str = ""
    cidr6: str = ""
    gateway6: str = ""


class FloatingAddress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whoever of the outside speaks to `address` means the port's `fixed` one."""

    address: str
    fixed: str
    external: ExternalNetwork


class SubnetHints(msgspec.Struct, frozen=True, omit_defaults=True):
    """What guests are told of a subnet, as it is now: it may be changed while they run."""

    subnet: SubnetId
    dns: tuple[str, ...] = ()
    routes: tuple[tuple[str, str], ...] = ()
    """Destination and next hop."""


class RoutedSubnet(msgspec.Struct, frozen=True, omit_defaults=True):
    """A subnet that a router is in."""

    network: NetworkId
    cidr: str
    gateway: str
    """The router's address there."""
    segmentation_id: int | None = None
    """Of a network that hosts reach one another's guests of in tunnels; None: it is another one."""
    mtu: int = 0
    """Of the network, in bytes; 0: the sender's release does not say."""
    since: int = 0
    """When the router came to have it with its way outside: of two with one range the first is reached from there. Nanoseconds since 1970;
    0: the sender's release does not say."""
    outside: bool = True
    """Whether its address scope is that of the way outside: of IPv6, which is not translated, nothing else is routed there."""


class ArpEntry(msgspec.Struct, frozen=True, array_like=True):
    """An address of a port that is bound to a host, and the port's MAC."""

    address: str
    mac: str


class StaticRoute(msgspec.Struct, frozen=True):
    """Of a router."""

    destination: str
    hop: str


class RouterDescription(msgspec.Struct, frozen=True, omit_defaults=True):
    """A router that one of the port's subnets has as its gateway."""

    router: str
    subnets: tuple[RoutedSubnet, ...] = ()
    """Of IPv4."""
    external: ExternalNetwork | None = None
    address: str = ""
    """Its own in the external network."""
    snat: bool = False
    """Whether guests without a floating address reach the outside under another address."""
    routes: tuple[StaticRoute, ...] = ()
    subnets6: tuple[RoutedSubnet, ...] = ()
    """Of IPv6; a field of its own, since earlier releases take the others for IPv4."""
    address6: str = ""
    """Its own in the external network, on the one host that answers for it; empty on others."""

    @property
    def all_subnets(self) -> tuple[RoutedSubnet, ...]:
        """Of IPv4 and of IPv6."""
        return (*self.subnets, *self.subnets6)

    @property
    def is_open(self) -> bool:
        """Whether the outside reaches its subnets of IPv6, by one host for guests of all."""
        return bool(self.subnets6) and self.external is not None and bool(self.external.cidr6)
