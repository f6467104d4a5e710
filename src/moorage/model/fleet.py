"""An invented fleet in a file that people write: hosts, segments, networks, flavors, and existing servers.

docs/operating/capacity.md describes it.  Amounts are what is offered to servers, allocation ratios included.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from moorage.model.errors import Invalid
from moorage.model.world import GroupPolicy

FORMAT = "moorage-fleet/1"
HOSTS_MAX = 100_000
SERVERS_MAX = 1_000_000
INT32_MAX = 2_147_483_647
COUNT_MARK = "{}"

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Amount = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Count = Annotated[int, Meta(ge=1, le=SERVERS_MAX)]
Amounts = dict[Annotated[str, Meta(pattern="^[A-Z0-9_]+$", max_length=255)], Amount]
Traits = tuple[Annotated[str, Meta(pattern="^[A-Z0-9_]+$", max_length=255)], ...]


class FleetFlavor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a server asks of its host."""

    vcpus: Amount = 0
    ram_mib: Amount = 0
    disk_gib: Amount = 0
    resources: Amounts = {}
    """Further resource classes."""
    required: Traits = ()
    forbidden: Traits = ()

    def amounts(self) -> dict[str, int]:
        plain = {"VCPU": self.vcpus, "MEMORY_MB": self.ram_mib, "DISK_GB": self.disk_gib}
        return {name: amount for name, amount in {**plain, **self.resources}.items() if amount}


class FleetNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Routed where it has segments; guaranteed where it has bandwidth."""

    segments: tuple[Name, ...] = ()
    physical_network: Name | None = None
    egress_kbps: Amount = 0
    ingress_kbps: Amount = 0
    vnic_type: Annotated[str, Meta(pattern="^[a-z-]+$", max_length=64)] = "normal"


class FleetSegment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    addresses: Amount
    used: Amount = 0
    """Addresses that are used by something else than the file's servers: routers, DHCP."""


class FleetGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    policy: GroupPolicy
    max_per_host: Annotated[int, Meta(ge=1, le=INT32_MAX)] = 1


class FleetUplink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One interface of a host, with what it may guarantee."""

    name: Name
    physical_network: Name
    egress_kbps: Amount = 0
    ingress_kbps: Amount = 0
    vnic_types: tuple[Annotated[str, Meta(pattern="^[a-z-]+$", max_length=64)], ...] = ("normal",)


class FleetHosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number of equal hosts; `{}` in the name is the host's number, from 1 on."""

    name: Name
    count: Annotated[int, Meta(ge=1, le=HOSTS_MAX)] = 1
    vcpus: Amount = 0
    ram_mib: Amount = 0
    disk_gib: Amount = 0
    resources: Amounts = {}
    traits: Traits = ()
    cell: Name = "cell1"
    zone: Name = "nova"
    aggregates: tuple[Name, ...] = ()
    segments: tuple[Name, ...] = ()
    """The segments to which the hosts are wired."""
    uplinks: tuple[FleetUplink, ...] = ()
    enabled: bool = True

    def amounts(self) -> dict[str, int]:
        plain = {"VCPU": self.vcpus, "MEMORY_MB": self.ram_mib, "DISK_GB": self.disk_gib}
        return {name: amount for name, amount in {**plain, **self.resources}.items() if amount}


class FleetServers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number of equal servers on each host that `host` names (a pattern with `*`), or, without it, on hosts that the scheduler chooses."""

    name: Name
    flavor: Name
    count: Count = 1
    networks: tuple[Name, ...] = ()
    group: Name | None = None
    host: Name | None = None


class Fleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole file."""

    format: Literal["moorage-fleet/1"]
    hosts: tuple[FleetHosts, ...]
    flavors: dict[Name, FleetFlavor] = {}
    networks: dict[Name, FleetNetwork] = {}
    segments: dict[Name, FleetSegment] = {}
    groups: dict[Name, FleetGroup] = {}
    servers: tuple[FleetServers, ...] = ()
    allow_move_across_segments: bool = False
    """Whether a move may give a server an address of another segment."""
    allow_move_across_cells: bool = False
    """Whether a move may take a server to another cell."""


def read_fleet(content: bytes) -> Fleet:
    """Read a fleet file. Raises Invalid, and names the part that is wrong."""
    try:
        fleet = msgspec.json.decode(content, type=Fleet)
    except msgspec.DecodeError as wrong:
        raise Invalid(f"The fleet is not what it should be: {wrong}") from wrong
    _check(fleet)
    return fleet


def _check(fleet: Fleet) -> None:
    if sum(each.count for each in fleet.hosts) > HOSTS_MAX:
        raise Invalid(f"The fleet has more than {HOSTS_MAX} hosts.")
    names: set[str] = set()
    for hosts in fleet.hosts:
        where = f"Hosts {hosts.name}"
        _known(where, "segment", hosts.segments, fleet.segments)
        if hosts.count > 1 and COUNT_MARK not in hosts.name:
            raise Invalid(f"{where}: there are {hosts.count} of them, so the name needs {COUNT_MARK} for the number.")
        if len({each.name for each in hosts.uplinks}) < len(hosts.uplinks):
            raise Invalid(f"{where}: two uplinks have the same name.")
        for name in names_of(hosts.name, hosts.count):
            if name in names:
                raise Invalid(f"Two hosts are called {name}.")
            names.add(name)
    for name, network in fleet.networks.items():
        _known(f"Network {name}", "segment", network.segments, fleet.segments)
        if (network.egress_kbps or network.ingress_kbps) and network.physical_network is None:
            raise Invalid(
                f"Network {name}: bandwidth is guaranteed on a physical network, so it needs physical_network."
            )
    for name, segment in fleet.segments.items():
        if segment.used > segment.addresses:
            raise Invalid(f"Segment {name}: {segment.used} addresses are used, and it has {segment.addresses}.")
    for servers in fleet.servers:
        where = f"Servers {servers.name}"
        _known(where, "flavor", (servers.flavor,), fleet.flavors)
        _known(where, "network", servers.networks, fleet.networks)
        _known(where, "group", () if servers.group is None else (servers.group,), fleet.groups)


def _known(where: str, kind: str, named: tuple[str, ...], known: object) -> None:
    missing = [each for each in named if each not in known]  # type: ignore[operator]
    if missing:
        raise Invalid(f"{where}: there is no {kind} {missing[0]} in the file.")


def names_of(name: str, count: int) -> list[str]:
    """Return the names: with the number in place of `{}`, else after the name if there are several."""
    if COUNT_MARK in name:
        return [name.replace(COUNT_MARK, str(number)) for number in range(1, count + 1)]
    return [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]
