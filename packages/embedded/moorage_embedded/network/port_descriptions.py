"""How hosts are to wire ports: each port's filter and bandwidth, complete, with a version that only grows.

What the ports of one host depend on, rules, members of groups, pairs and QoS policies, is read again after each write; what is as it was
keeps its version.  Who sends it on asks for what is newer than what it has (`GET /v2.0/port-descriptions?host=H&after=V`), so nothing is lost
when nobody asked for a while.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from moorage.model.ids import PortId
from moorage.model.port_description import (
    ADDRESSES_PER_PART,
    PARTS_MAX,
    AddressSetPart,
    AllowedAddresses,
    FilterRule,
    HostDescriptions,
    PacketRate,
    PortBandwidth,
    PortDescription,
    PortFilter,
    Present,
    Rate,
)
from moorage_embedded.network.binding import BRIDGE, FILTERS
from moorage_embedded.network.faults import NeutronFault, forbidden
from moorage_embedded.network.policy import NetworkCaller
from moorage_embedded.network.request import OURSELVES, NetworkCall
from moorage_embedded.network.route_descriptions import Reached, reached_from
from moorage_embedded.network.security_group_rules import protocol_number
from moorage_embedded.network.store import Doc, NetworkStore

PATH = ("port-descriptions",)
VERSIONS = "port_descriptions"
PER_KILO = 1_000
HOST_CHARACTERS_MAX = 255
HOSTS_KEPT_MAX = 10_000
RULES_MAX = 4_000
"""Of one port; those beyond them let nothing pass, and the log says so. Half a megabyte at most, which the broker still lets through."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


# ------------------------------------------------------------------------------------------------ from documents


def describe(store: NetworkStore, host: str) -> tuple[list[PortDescription], dict[str, list[str]]]:
    """The ports that this host wires or is about to, with version 0, and the sets that their rules name: id → addresses, in order."""
    if not any(each["configurations"].get(FILTERS) for each in store.many("agent", where={"key": [host]})):
        return [], {}
    ports = [each for each in store.all_mentioning("port", host) if _wired_at(each, host)]
    groups = {group for port in ports for group in port["security_groups"]}
    rules: dict[str, list[Doc]] = {}
    for rule in store.many("security_group_rule", where={"parent": sorted(groups)}) if groups else ():
        rules.setdefault(rule["security_group_id"], []).append(rule)
    stateful = {
        each["id"]: each["stateful"] for each in store.many("security_group", where={"id": sorted(groups)}) if groups
    }
    policies = _policies(store, ports)
    reached = reached_from(store, ports)
    found = [
        _with_routes(each, host, reached, _port(each, rules, stateful, policies.get(_policy_of(each))))
        for each in ports
    ]
    sets: dict[str, list[str]] = {}
    named = [rule for each in rules.values() for rule in each]
    for group in sorted({rule["remote_group_id"] for rule in named if rule["remote_group_id"]}):
        sets[group] = sorted(_members(store, group))
    lists = sorted({rule["remote_address_group_id"] for rule in named if rule["remote_address_group_id"]})
    for each in store.many("address_group", where={"id": lists}) if lists else ():
        sets[each["id"]] = sorted(each["addresses"])
    return sorted(found, key=lambda each: each.port), sets


def _wired_at(port: Doc, host: str) -> bool:
    """By its active binding, also one of a release that filtered nothing, or by one that waits for a guest that is on its way."""
    if port["binding:host_id"] == host and port["binding:vif_type"] == BRIDGE:
        return True
    return any(each["host"] == host and each["vif_type"] == BRIDGE for each in port["_bindings"])


def _members(store: NetworkStore, group: str) -> set[str]:
    """Of a security group: the addresses of its ports on whatever host, and what they may use besides."""
    found: set[str] = set()
    for port in store.all_mentioning("port", group):
        if group in port["security_groups"]:
            found.update(each["ip_address"] for each in port["fixed_ips"])
            found.update(each["ip_address"] for each in port["allowed_address_pairs"])
    return found


def _port(port: Doc, rules: dict[str, list[Doc]], stateful: dict[str, bool], policy: Doc | None) -> PortDescription:
    groups = port["security_groups"]
    secure = port["port_security_enabled"]
    distinct = tuple(dict.fromkeys(_rule(each) for group in sorted(groups) for each in rules.get(group, ())))
    if len(distinct) > RULES_MAX:
        _log.error("port %s has %d rules, of which its host is told %d", port["id"], len(distinct), RULES_MAX)
    found = PortFilter(
        allowed=_allowed(port),
        rules=distinct[:RULES_MAX],
        stateful=all(stateful.get(group, True) for group in groups),
    )
    return PortDescription(
        port=port["id"],
        version=0,
        network=port["network_id"],
        mac=port["mac_address"],
        up=port["admin_state_up"],
        filter=found if secure else None,
        bandwidth=_bandwidth(policy),
    )


def _with_routes(port: Doc, host: str, reached: Reached, told: PortDescription) -> PortDescription:
    here = port["binding:host_id"] == host
    subnets = [each["subnet_id"] for each in port["fixed_ips"]]
    routers = {router.router: router for subnet in subnets for router in reached.routers.get(subnet, ())}
    return msgspec.structs.replace(
        told,
        floating=reached.floating.get(port["id"], ()) if here else (),
        routers=tuple(routers[each] for each in sorted(routers)),
    )


def _allowed(port: Doc) -> tuple[AllowedAddresses, ...]:
    allowed: dict[str, set[str]] = {port["mac_address"]: {each["ip_address"] for each in port["fixed_ips"]}}
    for pair in port["allowed_address_pairs"]:
        allowed.setdefault(pair.get("mac_address") or port["mac_address"], set()).add(pair["ip_address"])
    return tuple(AllowedAddresses(mac, tuple(sorted(prefixes))) for mac, prefixes in sorted(allowed.items()))


def _rule(rule: Doc) -> FilterRule:
    return FilterRule(
        direction=rule["direction"],
        version=6 if rule["ethertype"] == "IPv6" else 4,
        protocol=None if rule["protocol"] is None else protocol_number(rule["protocol"]),
        low=rule["port_range_min"],
        high=rule["port_range_max"],
        prefix=rule["remote_ip_prefix"] or "",
        members=rule["remote_group_id"] or rule["remote_address_group_id"] or "",
    )


def _policy_of(port: Doc) -> str:
    return port["qos_policy_id"] or port["qos_network_policy_id"] or ""


def _policies(store: NetworkStore, ports: Iterable[Doc]) -> dict[str, Doc]:
    wanted = sorted({_policy_of(each) for each in ports} - {""})
    return {each["id"]: each for each in store.many("policy", where={"id": wanted})} if wanted else {}


def _bandwidth(policy: Doc | None) -> PortBandwidth | None:
    if policy is None:
        return None
    rates: dict[str, dict[str, int]] = {"egress": {}, "ingress": {}}
    packets = {"egress": PacketRate(), "ingress": PacketRate()}
    dscp: int | None = None
    for rule in policy["rules"]:
        if rule["type"] == "bandwidth_limit":
            rates[rule["direction"]] |= {"limit_kbps": rule["max_kbps"], "burst_kbit": rule["max_burst_kbps"]}
        elif rule["type"] == "minimum_bandwidth":
            rates[rule["direction"]] |= {"guaranteed_kbps": rule["min_kbps"]}
        elif rule["type"] == "packet_rate_limit":
            packets[rule["direction"]] = PacketRate(rule["max_kpps"] * PER_KILO, rule["max_burst_kpps"] * PER_KILO)
        elif rule["type"] == "dscp_marking":
            dscp = rule["dscp_mark"]
    directions = Rate(**rates["egress"]), Rate(**rates["ingress"])
    found = PortBandwidth(*directions, dscp, packets["egress"], packets["ingress"])
    return None if found == PortBandwidth() else found


# ------------------------------------------------------------------------------------------------ with versions


@dataclass
class _OfHost:
    """What one host was last described as."""

    read_at: int = -1
    """How many writes there had been before it was read."""
    version: int = 0
    ports: dict[PortId, PortDescription] = field(default_factory=dict)
    sets: dict[str, tuple[int, list[str]]] = field(default_factory=dict)


class TransactionRunner(Protocol):
    """Who runs transactions, and counts those that wrote."""

    written: int

    async def read(self, who: NetworkCaller, work: Callable[[NetworkCall], T]) -> T: ...

    async def write(self, who: NetworkCaller, work: Callable[[NetworkCall], T]) -> T: ...


class Descriptions:
    """Of one embedded network service, in whose process all writes are made."""

    def __init__(self) -> None:
        self._hosts: dict[str, _OfHost] = {}
        self._one_at_a_time = asyncio.Lock()
        """Versions grow in the order of what was read."""

    async def newer(self, runner: TransactionRunner, who: NetworkCaller, host: str, after: int) -> HostDescriptions:
        """What is newer than version `after` for this host. Raises Fault 403 to who is neither a service nor an administrator."""
        if not (who.admin or who.service):
            raise forbidden("get_port_description")
        async with self._one_at_a_time:
            known = self._hosts.get(host)
            if known is None:
                if len(self._hosts) >= HOSTS_KEPT_MAX:
                    self._hosts.pop(next(iter(self._hosts)))
                known = self._hosts[host] = _OfHost()
            if known.read_at != runner.written:
                await self._refresh(runner, host, known)
            return _answer(known, after)

    async def _refresh(self, runner: TransactionRunner, host: str, known: _OfHost) -> None:
        read_at = runner.written
        ports, sets = await runner.read(OURSELVES, lambda call: describe(call.store, host))
        new_ports = [each for each in ports if _differs(known.ports.get(each.port), each)]
        new_sets = [name for name, addresses in sets.items() if known.sets.get(name, (0, None))[1] != addresses]
        gone = known.ports.keys() - {each.port for each in ports} or known.sets.keys() - sets.keys()
        if known.read_at < 0 or new_ports or new_sets or gone:
            known.version = await runner.write(OURSELVES, _next_version)
        version = known.version
        kept = {each.port: known.ports[each.port] for each in ports if each.port in known.ports}
        kept |= {each.port: msgspec.structs.replace(each, version=version) for each in new_ports}
        known.ports = kept
        known.sets = {
            name: (version if name in set(new_sets) else known.sets[name][0], addresses)
            for name, addresses in sets.items()
        }
        known.read_at = read_at


def _differs(before: PortDescription | None, now: PortDescription) -> bool:
    return before is None or msgspec.structs.replace(before, version=0) != now


def _next_version(call: NetworkCall) -> int:
    """Higher than any before, also after a restart, and after the database was put back to an older state."""
    used, _ = call.store.count("", VERSIONS, 1)
    now = int(time.time() * 1000)
    return used if used >= now else call.store.count("", VERSIONS, now - used)[0]


def _answer(known: _OfHost, after: int) -> HostDescriptions:
    return HostDescriptions(
        version=known.version,
        ports=tuple(each for each in known.ports.values() if each.version > after),
        sets=tuple(
            part for name, (version, all_of) in known.sets.items() if version > after for part in _parts(name, version, all_of)
        ),
        present=Present(tuple(sorted(known.ports)), tuple(sorted(known.sets))),
    )  # fmt: skip


def _parts(name: str, version: int, addresses: Sequence[str]) -> list[AddressSetPart]:
    cuts = [addresses[at : at + ADDRESSES_PER_PART] for at in range(0, len(addresses), ADDRESSES_PER_PART)] or [()]
    if len(cuts) > PARTS_MAX:
        _log.error(
            "group %s has %d members, of which hosts are told %d", name, len(addresses), PARTS_MAX * ADDRESSES_PER_PART
        )
        cuts = cuts[:PARTS_MAX]
    return [AddressSetPart(name, version, part, len(cuts), tuple(each)) for part, each in enumerate(cuts)]


def query_of(pairs: Iterable[tuple[str, str]]) -> tuple[str, int]:
    """Host and version of a query. Raises NeutronFault 400."""
    said = dict(pairs)
    host, after = said.get("host", ""), said.get("after", "0")
    if not 0 < len(host) <= HOST_CHARACTERS_MAX or not (after.isascii() and after.isdigit() and len(after) <= 18):
        raise NeutronFault(400, "HTTPBadRequest", "Name a host, and with `after` a version that is a number.")
    return host, int(after)
