"""A table of routes for each bridge that this host serves, of IPv4 and of IPv6: what tenants choose is in no table that the host itself uses.

A tenant chooses the range of a network and its gateway, and these may be the host's neighbours, its name server, or everything.  So no bridge
has an address of a tenant's range, and neither the kernel's local table nor its main table has an entry for one:

    own address    each bridge has one of `SERVICES` and `SERVICE_V6`, which no tenant chooses; what a guest says to its gateway is
                   translated to it (host_input.py), so whatever answers on the host is bound to it, and answers from there
    gateway        local in the bridge's own table alone: the kernel answers ARP for it there; of IPv6 it is a proxy for its neighbours
    rules          what comes from the bridge, is bound to it, or is from its own address is looked up in its table, and nowhere else
    prefix         router advertisements need an address in the prefix: it is made of the bridge's name, and nobody else has it

    1041  from the own address    1042  bound to the bridge    1043, 1044, 1045  metadata, marks, routers    1046  from the bridge
"""

import hashlib
import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from moorage.drivers.libvirt.commands import run
from moorage.drivers.libvirt.dhcp import ADVERTISED_LENGTH, SERVICE_V6
from moorage.drivers.libvirt.route_tables import routes_of
from moorage.drivers.libvirt.routes import NOWHERE
from moorage.model.errors import HostFailed

SERVICES = ipaddress.IPv4Network("169.254.64.0/18")
FIRST_TABLE = 4_400_000
FROM_PRIORITY, BOUND_PRIORITY, COMING_PRIORITY = 1_041, 1_042, 1_046
PRIORITIES = frozenset({FROM_PRIORITY, BOUND_PRIORITY, COMING_PRIORITY})
SYSTEM_CONTROL = Path("/proc/sys/net")
FOUR, SIX = "-4", "-6"
OF_LINKS = ("fe80::/64", "ff00::/8")
"""Each device has them for itself."""


class HeldAddress(msgspec.Struct):
    local: str = ""
    prefix: int = msgspec.field(default=0, name="prefixlen")
    scope: str = ""


class Held(msgspec.Struct):
    """A device of this machine, with its addresses."""

    name: str = msgspec.field(default="", name="ifname")
    addresses: list[HeldAddress] = msgspec.field(default_factory=list, name="addr_info")


class _Rule(msgspec.Struct):
    priority: int = 0
    table: str = ""
    src: str = ""
    coming: str = msgspec.field(default="", name="iif")
    bound: str = msgspec.field(default="", name="oif")


@dataclass(frozen=True)
class BridgeNetwork:
    """What the table of a bridge says."""

    bridge: str
    service: str
    subnets: tuple[tuple[str, str], ...]
    """Ranges with their gateways; empty: none."""
    own_v6: tuple[str, ...] = ()
    """Addresses of IPv6 of the bridge with their lengths; none: the bridge has no IPv6."""

    @property
    def table(self) -> int:
        return table_of(self.service)

    def rules(self, family: str) -> set[str]:
        coming = f"iif {self.bridge} lookup {self.table} priority {COMING_PRIORITY}"
        bound = f"oif {self.bridge} lookup {self.table} priority {BOUND_PRIORITY}"
        if family == SIX:
            return {coming, bound} if self.own_v6 else set()
        return {coming, bound, f"from {self.service} lookup {self.table} priority {FROM_PRIORITY}"}

    def routes(self, family: str) -> dict[str, str]:
        """Destination → the whole route."""
        if family == SIX and not self.own_v6:
            return {}
        found = {f"unreachable {NOWHERE[1]}": " ".join(NOWHERE)}
        if family == SIX:
            found[OF_LINKS[0]] = f"{OF_LINKS[0]} dev {self.bridge}"
        for cidr, gateway in self.subnets:
            if (":" in cidr) is not (family == SIX):
                continue
            network = ipaddress.ip_network(cidr, strict=False)
            length = network.max_prefixlen
            whole = "default" if not network.prefixlen else str(network)
            name = str(network.network_address) if network.prefixlen == length else whole
            found[name] = f"{name} dev {self.bridge}"
            if gateway:
                found[f"local {gateway}"] = f"local {gateway} dev {self.bridge}"
        return found

    def proxies(self) -> set[str]:
        return {gateway for cidr, gateway in self.subnets if ":" in cidr and gateway and self.own_v6}


def table_of(service: str) -> int:
    return FIRST_TABLE + int(ipaddress.IPv4Address(service)) - int(SERVICES.network_address)


def is_service(address: str) -> bool:
    return ":" not in address and bool(address) and ipaddress.ip_address(address) in SERVICES


def free_service(bridge: str, taken: Collection[str]) -> str:
    """An address for a bridge; the same on all hosts, but by chance. Raises HostFailed when there is none."""
    size = SERVICES.num_addresses - 2
    first = int.from_bytes(hashlib.sha256(bridge.encode()).digest()[:4])
    for each in range(size):
        address = str(SERVICES[1 + (first + each) % size])
        if address not in taken:
            return address
    raise HostFailed("the host has no address left for a bridge", private=bridge, code="vif_not_plugged")


def advertising_address(bridge: str, cidr: str) -> str:
    """An address in the prefix, which no port is given but by chance; empty for a range of which nothing is advertised."""
    network = ipaddress.ip_network(cidr, strict=False)
    if network.version != 6 or network.prefixlen != ADVERTISED_LENGTH:
        return ""
    digest = hashlib.sha256(f"advertises {bridge} {cidr}".encode()).digest()
    return str(network[int.from_bytes(digest[:8]) | 1 << 63])


def set_up_device(bridge: str) -> bool:
    """It routes by its own table, and speaks for gateways. Whether it may have IPv6. Raises HostFailed (`vif_not_plugged`)."""
    four, six = SYSTEM_CONTROL / "ipv4" / "conf", SYSTEM_CONTROL / "ipv6" / "conf" / bridge
    try:
        (four / bridge / "rp_filter").write_text(loosest_filter())
    except OSError as failure:
        raise HostFailed("the host cannot set a bridge up", private=str(failure), code="vif_not_plugged") from failure
    if not take_no_advertisements(bridge):
        return False
    try:
        (six / "forwarding").write_text("1")
        (six / "proxy_ndp").write_text("1")
        (SYSTEM_CONTROL / "ipv6" / "neigh" / bridge / "proxy_delay").write_text("0")
    except OSError:
        return False
    return True


def take_no_advertisements(bridge: str) -> bool:
    """It takes no IPv6 addresses from what a guest advertises. Whether it may have any."""
    six = SYSTEM_CONTROL / "ipv6" / "conf" / bridge
    try:
        (six / "accept_ra").write_text("0")
        return (six / "disable_ipv6").read_text().strip() == "0"
    except OSError:
        return False


def loosest_filter() -> str:
    """Of sources by the way back to them, which the main table does not know: none, or where the machine wants one, the loose one."""
    everywhere = (SYSTEM_CONTROL / "ipv4" / "conf" / "all" / "rp_filter").read_text().strip()
    return "0" if everywhere == "0" else "2"


class BridgeTables:
    """Of one host; what it wrote is not looked at again as long as the bridge has its address."""

    def __init__(self) -> None:
        self._written: dict[str, BridgeNetwork] = {}

    async def keep(self, networks: Sequence[BridgeNetwork], gone: Mapping[str, str], held: Sequence[Held]) -> None:
        """`gone`: bridges that are not served any more, with their own addresses. Raises HostFailed (`vif_not_plugged`)."""
        devices = {each.name: each for each in held}
        changed = [each for each in networks if not self._stands(each, devices.get(each.bridge))]
        for bridge in (*gone, *(each.bridge for each in changed)):
            self._written.pop(bridge, None)
        if not changed and not gone:
            return
        for family in (FOUR, SIX):
            if family == SIX and not (SYSTEM_CONTROL / "ipv6").is_dir():
                continue
            rules = await _rules(family)
            commands: list[str] = []
            for each in changed:
                commands += await self._coming(family, each, devices.get(each.bridge, Held()), rules)
            for bridge, service in gone.items():
                commands += await _going(family, bridge, service, devices.get(bridge), rules)
            if commands:
                await run("ip", family, "-batch", "-", given="\n".join(commands) + "\n", code="vif_not_plugged")
        await _forget_anycast({each.bridge for each in changed if each.own_v6})
        self._written |= {each.bridge: each for each in changed}

    def _stands(self, network: BridgeNetwork, device: Held | None) -> bool:
        if device is None or self._written.get(network.bridge) != network:
            return False
        own = {network.service, *(each.partition("/")[0] for each in network.own_v6)}
        return own <= {each.local for each in device.addresses}

    async def _coming(self, family: str, network: BridgeNetwork, device: Held, rules: Iterable[_Rule]) -> list[str]:
        """First its table, then what leads there, and what an earlier release gave to the main table goes at last."""
        bridge, routes = network.bridge, network.routes(family)
        held = [each for each in device.addresses if (":" in each.local) is (family == SIX)]
        commands = []
        if family == FOUR:
            commands.append(f"address replace {network.service}/32 dev {bridge} scope link noprefixroute")
        elif network.own_v6:
            commands += [f"address replace {each} dev {bridge} nodad noprefixroute" for each in network.own_v6]
        commands += [f"route replace {each} table {network.table}" for each in routes.values()]
        existing_routes = await routes_of(family, str(network.table))
        commands += [f"route del {each} table {network.table}" for each in sorted(existing_routes - routes.keys())]
        wanted, existing = network.rules(family), _of_bridge(rules, bridge, network.table)
        commands += [f"rule add {each}" for each in sorted(wanted - existing)]
        commands += [f"rule del {each}" for each in sorted(existing - wanted)]
        if family == SIX:
            proxied = await _proxied(bridge)
            commands += [f"neighbour replace proxy {each} dev {bridge} router" for each in network.proxies()]
            commands += [f"neighbour del proxy {each} dev {bridge}" for each in sorted(proxied - network.proxies())]
        own = {network.service, *(each.partition("/")[0] for each in network.own_v6)}
        main = await routes_of(family, "main", bridge)
        commands += [f"route del {each} dev {bridge}" for each in sorted(main - {*OF_LINKS})]
        return commands + _addresses_removed(bridge, [each for each in held if each.local not in own])


def _addresses_removed(bridge: str, held: Iterable[HeldAddress]) -> list[str]:
    """Those that the kernel gave it stay."""
    return [
        f"address del {each.local}/{each.prefix} dev {bridge}"
        for each in held
        if each.local and (":" not in each.local or each.scope == "global")
    ]


async def _going(family: str, bridge: str, service: str, device: Held | None, rules: Iterable[_Rule]) -> list[str]:
    table = table_of(service)
    commands = [f"rule del {each}" for each in sorted(_of_bridge(rules, bridge, table))]
    commands += [f"route del {each} table {table}" for each in sorted(await routes_of(family, str(table)))]
    if device is not None:
        if family == SIX:
            commands += [f"neighbour del proxy {each} dev {bridge}" for each in sorted(await _proxied(bridge))]
        mine = [each for each in device.addresses if (":" in each.local) is (family == SIX)]
        commands += _addresses_removed(bridge, mine)
        if family == SIX and any(each.local == SERVICE_V6 for each in mine):
            commands.append(f"address del {SERVICE_V6}/64 dev {bridge}")
    return commands


def _of_bridge(rules: Iterable[_Rule], bridge: str, table: int) -> set[str]:
    """Those that are there, as they are written; also of a table that the bridge had before."""
    found = set()
    for each in rules:
        if each.priority not in PRIORITIES or not each.table.isdigit() or int(each.table) < FIRST_TABLE:
            continue
        end = f"lookup {each.table} priority {each.priority}"
        if each.coming == bridge:
            found.add(f"iif {bridge} {end}")
        elif each.bound == bridge:
            found.add(f"oif {bridge} {end}")
        elif int(each.table) == table and not each.coming and not each.bound:
            found.add(f"from {each.src} {end}")
    return found


async def _rules(family: str) -> list[_Rule]:
    output = await run("ip", family, "-json", "rule", "show", code="vif_not_plugged")
    return msgspec.json.decode(output or "[]", type=list[_Rule])


async def _proxied(bridge: str) -> set[str]:
    output = await run("ip", "-6", "-json", "neighbour", "show", "proxy", "dev", bridge, code="vif_not_plugged")
    return {str(each["dst"]) for each in msgspec.json.decode(output or "[]")}


async def _forget_anycast(bridges: Collection[str]) -> None:
    """A device that forwards is asked for the first address of each of its prefixes: it is a tenant's, and may be one that the host reaches."""
    if not bridges:
        return
    words = ("route", "show", "table", "local", "type", "anycast")
    output = await run("ip", "-6", "-json", *words, code="vif_not_plugged")
    commands = [
        f"route del anycast {each['dst']} dev {each['dev']} table local"
        for each in msgspec.json.decode(output or "[]")
        if each.get("dev") in bridges and not str(each["dst"]).startswith("fe80::")
    ]
    if commands:
        await run("ip", "-6", "-batch", "-", given="\n".join(commands) + "\n", code="vif_not_plugged")
