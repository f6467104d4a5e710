"""How hosts are to wire ports: each port's filter and bandwidth, complete, with a version that only grows.

What the ports of one host depend on, rules, members of groups, pairs and QoS policies, is read again after each write; what is as it was
keeps its version.  Versions of all hosts grow together.  Who sends them on waits until a host is described otherwise
(`GET /v2.0/port-descriptions?after=V&wait_s=S`) and asks for what is newer than what it has (`?host=H&after=V`), so nothing is lost when nobody
asked for a while, and nothing is asked when nothing changed.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from moorage.model.ids import PortId
from moorage.model.port_description import (
    ADDRESSES_PER_PART,
    PARTS_MAX,
    AddressSetPart,
    AllowedAddresses,
    ChangedHosts,
    FilterRule,
    HostDescriptions,
    PacketRate,
    PortBandwidth,
    PortDescription,
    PortFilter,
    Present,
    Rate,
)
from moorage.model.route_description import ArpEntry
from moorage_embedded.network.binding import BRIDGE, FILTERS
from moorage_embedded.network.faults import NeutronFault, forbidden
from moorage_embedded.network.policy import NetworkCaller
from moorage_embedded.network.request import OURSELVES, NetworkCall
from moorage_embedded.network.route_descriptions import Reached, hints_of, reached_from
from moorage_embedded.network.security_group_rules import protocol_number
from moorage_embedded.network.store import Doc, NetworkStore

PATH = ("port-descriptions",)
VERSIONS = "port_descriptions"
PER_KILO = 1_000
HOST_CHARACTERS_MAX = 255
HOSTS_KEPT_MAX = 10_000
"""Those that nobody asks for any more go first; as many as one question is about are kept."""
LOOK_EVERY_S = 0.5
"""While somebody waits and others write."""
WAIT_MOST_S = 25.0
"""Clients give a call up after thirty seconds."""
RULES_MAX = 4_000
"""Of one port; those beyond them let nothing pass, and the log says so. Half a megabyte at most, which the broker still lets through."""

T = TypeVar("T")
Members = Sequence[str] | Sequence[ArpEntry]
_log = logging.getLogger(__name__)


# ------------------------------------------------------------------------------------------------ from documents


def describe(store: NetworkStore, host: str) -> tuple[list[PortDescription], dict[str, Members]]:
    """The ports that this host wires or is about to, with version 0, and the sets that their rules name and their routers' networks have: id → who
    is in it, in order."""
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
    reached, hints = reached_from(store, host, ports), hints_of(store, ports)
    found = [
        _with_routes(each, host, reached, _port(each, rules, stateful, policies.get(_policy_of(each))))
        for each in ports
    ]
    found = [msgspec.structs.replace(each, subnets=hints.get(each.port, ())) for each in found]
    sets: dict[str, Members] = {}
    named = [rule for each in rules.values() for rule in each]
    for group in sorted({rule["remote_group_id"] for rule in named if rule["remote_group_id"]}):
        sets[group] = sorted(_members(store, group))
    lists = sorted({rule["remote_address_group_id"] for rule in named if rule["remote_address_group_id"]})
    for each in store.many("address_group", where={"id": lists}) if lists else ():
        sets[each["id"]] = sorted(each["addresses"])
    sets |= reached.arp_entries
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
        bound=here,
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
    sets: dict[str, tuple[int, Members]] = field(default_factory=dict)


class TransactionRunner(Protocol):
    """Who runs transactions, and counts those that wrote."""

    written: int

    async def until_written(self, since: int) -> None: ...

    async def read(self, who: NetworkCaller, work: Callable[[NetworkCall], T]) -> T: ...

    async def write(self, who: NetworkCaller, work: Callable[[NetworkCall], T]) -> T: ...


class Descriptions:
    """Of one embedded network service, in whose process all writes are made."""

    def __init__(self) -> None:
        self._hosts: dict[str, _OfHost] = {}
        self._one_at_a_time = asyncio.Lock()
        """Versions grow in the order of what was read."""
        self._ends = asyncio.Event()
        self._looked_at = float("-inf")

    def end_waits(self) -> None:
        """Answer whoever waits."""
        self._ends.set()

    async def newer(self, runner: TransactionRunner, who: NetworkCaller, host: str, after: int) -> HostDescriptions:
        """What is newer than version `after` for this host. Raises Fault 403 to who is neither a service nor an administrator."""
        _check(who)
        async with self._one_at_a_time:
            await self._refresh(runner, [host])
            return _answer(self._hosts[host], after)

    async def changed(self, runner: TransactionRunner, who: NetworkCaller, after: int, wait_s: float) -> ChangedHosts:
        """Which hosts are described otherwise than by version `after`; waits so long for the first. Raises Fault 403, as `newer`."""
        _check(who)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        while True:
            async with self._one_at_a_time:
                seen = runner.written
                await self._refresh(runner, await runner.read(OURSELVES, lambda call: _describing(call.store)))
                self._looked_at = loop.time()
            found = sorted(name for name, each in self._hosts.items() if each.version > after)
            if found or loop.time() >= until or self._ends.is_set():
                return ChangedHosts(max((each.version for each in self._hosts.values()), default=0), tuple(found))
            await self._until_written(runner, seen, until)

    async def _until_written(self, runner: TransactionRunner, seen: int, until: float) -> None:
        """Or until then. Who writes all the time is not followed for each time."""
        loop = asyncio.get_running_loop()
        waits = [asyncio.ensure_future(runner.until_written(seen)), asyncio.ensure_future(self._ends.wait())]
        try:
            await asyncio.wait(waits, timeout=max(0.0, until - loop.time()), return_when=asyncio.FIRST_COMPLETED)
            pause_s = min(self._looked_at + LOOK_EVERY_S, until) - loop.time()
            if pause_s > 0:
                await asyncio.wait(waits[1:], timeout=pause_s)
        finally:
            for each in waits:
                each.cancel()

    async def _refresh(self, runner: TransactionRunner, hosts: Sequence[str]) -> None:
        """Read what was written since, for all of these in one transaction."""
        for host in hosts:
            self._hosts.setdefault(host, _OfHost())
        if (surplus := len(self._hosts) - HOSTS_KEPT_MAX) > 0:
            asked_for = set(hosts)
            for host in [each for each in self._hosts if each not in asked_for][:surplus]:
                del self._hosts[host]
        read_at = runner.written
        stale = {host: self._hosts[host] for host in hosts if self._hosts[host].read_at != read_at}
        if not stale:
            return
        read = await runner.read(OURSELVES, lambda call: {host: describe(call.store, host) for host in stale})
        changed = [host for host, (ports, sets) in read.items() if _is_news(stale[host], ports, sets)]
        version = 0
        if changed:
            version = await runner.write(OURSELVES, _next_version)
            if runner.written == read_at + 1:  # by this alone
                read_at += 1
        for host, (ports, sets) in read.items():
            _take(stale[host], ports, sets, version if host in changed else stale[host].version)
            stale[host].read_at = read_at


def _check(who: NetworkCaller) -> None:
    if not (who.admin or who.service):
        raise forbidden("get_port_description")


def _describing(store: NetworkStore) -> list[str]:
    """Hosts that wire ports by descriptions."""
    return sorted(each["host"] for each in store.many("agent") if each["configurations"].get(FILTERS))


def _is_news(known: _OfHost, ports: Sequence[PortDescription], sets: Mapping[str, Members]) -> bool:
    return (
        known.read_at < 0
        or known.ports.keys() != {each.port for each in ports}
        or any(_differs(known.ports.get(each.port), each) for each in ports)
        or known.sets.keys() != sets.keys()
        or any(known.sets[name][1] != members for name, members in sets.items())
    )


def _take(known: _OfHost, ports: Sequence[PortDescription], sets: Mapping[str, Members], version: int) -> None:
    """What differs has this version."""
    known.version = version
    before = known.ports
    known.ports = {
        each.port: msgspec.structs.replace(each, version=version)
        if _differs(before.get(each.port), each)
        else before[each.port]
        for each in ports
    }
    known.sets = {
        name: known.sets[name] if name in known.sets and known.sets[name][1] == members else (version, members)
        for name, members in sets.items()
    }


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


def _parts(name: str, version: int, members: Members) -> list[AddressSetPart]:
    cuts = [members[at : at + ADDRESSES_PER_PART] for at in range(0, len(members), ADDRESSES_PER_PART)] or [()]
    if len(cuts) > PARTS_MAX:
        _log.error(
            "group %s has %d members, of which hosts are told %d", name, len(members), PARTS_MAX * ADDRESSES_PER_PART
        )
        cuts = cuts[:PARTS_MAX]
    return [
        AddressSetPart(
            name,
            version,
            part,
            len(cuts),
            tuple(each for each in cut if isinstance(each, str)),
            tuple(each for each in cut if isinstance(each, ArpEntry)),
        )
        for part, cut in enumerate(cuts)
    ]


@dataclass(frozen=True)
class DescriptionQuery:
    """What is asked: of one host, or, without one, of which hosts there is news."""

    host: str
    after: int
    wait_s: float = 0.0


def query_of(pairs: Iterable[tuple[str, str]]) -> DescriptionQuery:
    """Raises NeutronFault 400."""
    said = dict(pairs)
    host, after, wait = said.get("host", ""), said.get("after", "0"), said.get("wait_s", "")
    if not (after.isascii() and after.isdigit() and len(after) <= 18):
        raise NeutronFault(400, "HTTPBadRequest", "A version is a number.")
    if not 0 < len(host) <= HOST_CHARACTERS_MAX:
        if "host" in said or not (wait.isascii() and wait.isdigit() and len(wait) <= 3):
            raise NeutronFault(400, "HTTPBadRequest", "Name a host, or how many seconds you wait for one.")
        return DescriptionQuery("", int(after), min(float(wait), WAIT_MOST_S))
    return DescriptionQuery(host, int(after))
