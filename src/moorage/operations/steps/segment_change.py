"""Moves to hosts of other segments of a routed network, when the server's own segments have no host: its NICs get other
addresses (N9).

It is opt-in (`[compute] allow_move_across_segments`). Hosts of its own segments are tried first, and another segment
only when none of them fits. The claim takes an address of the new segment; the move holds the old one, or the server
when it is unshelved. The port keeps its old address in addition to the new one, on the new host, until the move is
confirmed, or recorded where there is no confirm (`old_addresses.py`): so no other port can get it, and a revert always
finds it. For an address that a port keeps, the network service does not check that its host reaches the segment. The
guest and the owner see only the new one.

What users chose is not changed: NICs whose address was requested, users' own ports, and NICs with a floating address.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import combinations
from typing import NamedTuple

import msgspec

from moorage.model.ids import PortId, ProviderId
from moorage.model.network import FixedIp, NetworkFacts, Port
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import Address, Nic, Readdressed, Server
from moorage.model.world import Ask, Choice
from moorage.model.world import NicRequirement as SegmentAsk
from moorage.operations.gates import PORTS_ARRIVE_BOUND
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.steps.ports import held_by, held_by_all, nic_of
from moorage.store.region.placement.claim_statements import Key

NETWORKS_MAX = 4
"""With up to this many networks, it is tried to leave the segments of one, of two …; with more, of all or none."""


class Tries(NamedTuple):
    """The requests to the scheduler, in order."""

    asks: tuple[Ask, ...]
    widest: Ask
    """All requests in one: when none succeeded, its verdict has a reason for every host."""
    may_leave: frozenset[int] = frozenset()
    """Indexes of the NICs that may get addresses of other segments; all others keep theirs, whatever segment is chosen.
    """


def tries(ask: Ask, server: Server, cards: Cards, *, allowed: bool, exhausted: Collection[str] = frozenset()) -> Tries:
    """The request itself, and then, where that is allowed, requests with other segments for the NICs of as few networks
    as possible.

    `exhausted`: segments that had no free address in an earlier attempt.
    """
    others = _others(server, cards, exhausted) if allowed else {}
    if not others:
        return Tries((ask,), ask)
    networks = sorted({cards.ports[place].network for place in others})
    sizes = range(1, len(networks) + 1) if len(networks) <= NETWORKS_MAX else (len(networks),)
    leaving = [frozenset(each) for size in sizes for each in combinations(networks, size)]
    asks = [ask]
    for left in leaving:
        nics = {place: nic for place, nic in others.items() if cards.ports[place].network in left}
        asks.append(_with(ask, nics))
    both = {
        place: msgspec.structs.replace(nic, segments=(*ask.nics[place].segments, *nic.segments))
        for place, nic in others.items()
    }
    return Tries(tuple(asks), _with(ask, both), frozenset(others))


def _with(ask: Ask, nics: Mapping[int, SegmentAsk]) -> Ask:
    """Only hosts whose ports arrive bound: others bind ports themselves, and do not support a kept address."""
    input = tuple(nics.get(place, nic) for place, nic in enumerate(ask.nics))
    return msgspec.structs.replace(ask, nics=input, min_level=max(ask.min_level, PORTS_ARRIVE_BOUND))


def _others(server: Server, cards: Cards, exhausted: Collection[str]) -> dict[int, SegmentAsk]:
    """Index of the NIC → one address of any segment that it is not on."""
    known = {str(nic.port): nic for nic in server.nics}
    by_place: dict[int, SegmentAsk] = {}
    for place, port in enumerate(cards.ports):
        network, nic = cards.networks.get(port.network), known.get(port.id)
        if network is None or nic is None or not _may_change(nic, port):
            continue
        own = _segments_of(port, network)
        segments = dict.fromkeys(each.segment for each in network.subnets if each.segment and each.version == 4)
        left = tuple(ProviderId(each) for each in segments if each not in own and each not in exhausted)
        if own and left:
            by_place[place] = SegmentAsk(network.name or network.id, segments=left, addresses=1)
    return by_place


def _may_change(nic: Nic, port: Port) -> bool:
    return nic.ours and not nic.chosen and not nic.floating and sum(":" not in ip.address for ip in port.fixed_ips) == 1


def _segments_of(port: Port, network: NetworkFacts) -> set[str]:
    by_subnet = {each.id: each.segment for each in network.subnets}
    return {segment for ip in port.fixed_ips if (segment := by_subnet.get(ip.subnet)) is not None}


# --------------------------------------------------------------------------------------------- the chosen segments


def subnets_for(cards: Cards, choice: Choice, may_leave: Collection[int]) -> dict[int, str]:
    """NIC index → an IPv4 subnet of the chosen segment, for the NICs that leave their segment.

    A port without addresses on a segment may get any segment, only for its wires: it leaves none.
    """
    subnets: dict[int, str] = {}
    for place, (port, segment) in enumerate(zip(cards.ports, choice.segments, strict=False)):
        network = cards.networks.get(port.network)
        if place not in may_leave or segment is None or network is None or segment in _segments_of(port, network):
            continue
        subnet = next((each.id for each in network.subnets if each.segment == segment and each.version == 4), None)
        if subnet is not None:
            subnets[port.index] = subnet
    return subnets


def leaves(cards: Cards, subnets: Mapping[int, str]) -> dict[Key, int]:
    """The addresses that those NICs have on the segments that they leave."""
    total: dict[Key, int] = {}
    for port in cards.ports:
        if port.index in subnets:
            for key, amount in held_by(nic_of(port, cards.networks.get(port.network))).items():
                if key[1] == IPV4_ADDRESS:
                    total[key] = total.get(key, 0) + amount
    return total


def addresses_until_confirmed(cards: Cards, subnets: Mapping[int, str]) -> dict[int, tuple[FixedIp, ...]]:
    """NIC index → the addresses that a port keeps until the move is confirmed."""
    return {port.index: port.fixed_ips for port in cards.ports if port.index in subnets}


def previous_addresses(
    server: Server, cards: Cards, subnets: Mapping[int, str], attempt: int
) -> dict[int, tuple[FixedIp, ...]] | None:
    """NIC index → the former addresses, for every NIC that may leave its segment; None when none of them has left it.

    An earlier attempt may have assigned addresses of another segment than this one, if this one assigns any.
    """
    if not subnets and attempt <= 1:
        return None
    ports = (cards.ports[place] for place in _others(server, cards, ()))
    return {port.index: port.fixed_ips for port in ports}


def new_only(cards: Cards, subnets: Mapping[int, str], ports: Iterable[Port]) -> tuple[Port, ...]:
    """The ports as the guest and the owner see them."""
    old = addresses_until_confirmed(cards, subnets)
    return tuple(_without(port, {each.address for each in old.get(port.index, ())}) for port in ports)


def readdressed(cards: Cards, subnets: Mapping[int, str], ports: Iterable[Port]) -> tuple[Readdressed, ...]:
    """Old and new addresses of every NIC that left its segment; an address that is in both is not old, because old ones
    are released.
    """
    before = {port.index: port for port in cards.ports if port.index in subnets}
    changes: list[Readdressed] = []
    for port in ports:
        if (port_before := before.get(port.index)) is not None:
            network = cards.networks.get(port.network)
            old, new = nic_of(port_before, network), nic_of(port, network)
            if old.addresses != new.addresses:
                changes.append(Readdressed(PortId(port.id), old.addresses, new.addresses, old.segment, new.segment))
    return tuple(changes)


# ---------------------------------------------------------------------------------------------------- before the confirm


def shown(server: Server, ports: Iterable[Port]) -> tuple[Port, ...]:
    """A server's ports without the addresses that they keep only for a revert."""
    held = {} if server.moved is None else {each.port: each.old for each in server.moved.readdressed}
    return tuple(_without(port, {each.address for each in held.get(PortId(port.id), ())}) for port in ports)


def held_addresses(server: Server) -> frozenset[str]:
    """The addresses that its ports keep only for a revert."""
    changes = () if server.moved is None else server.moved.readdressed
    return frozenset(old.address for each in changes for old in each.old)


def but_of_segments(port: Port, segments: Mapping[str, str | None], left: Collection[str]) -> Port:
    """The port without its addresses on these segments; `segments`: subnet → segment."""
    return _without(port, {ip.address for ip in port.fixed_ips if segments.get(ip.subnet) in left})


def _without(port: Port, addresses: Collection[str]) -> Port:
    if not addresses:
        return port
    left = tuple(each for each in port.fixed_ips if each.address not in addresses)
    return msgspec.structs.replace(port, fixed_ips=left)


def held_before(server: Server) -> dict[Key, int] | None:
    """The addresses of segments that a server in VERIFY_RESIZE had before its move; None: the same as now."""
    if server.moved is None or not server.moved.readdressed:
        return None
    old = {each.port: each for each in server.moved.readdressed}
    nics = [
        nic
        if nic.port is None or (change := old.get(nic.port)) is None
        else msgspec.structs.replace(nic, addresses=change.old, segment=change.old_segment)
        for nic in server.nics
    ]
    return {key: amount for key, amount in held_by_all(nics).items() if key[1] == IPV4_ADDRESS}


def addresses_to_restore(server: Server, cards: Cards) -> dict[int, tuple[FixedIp, ...]]:
    """NIC index → all addresses that a port gets back when the move is reverted."""
    old = {} if server.moved is None else {str(each.port): each.old for each in server.moved.readdressed}
    return {port.index: _fixed(old[port.id]) for port in cards.ports if port.id in old}


def _fixed(addresses: Iterable[Address]) -> tuple[FixedIp, ...]:
    return tuple(FixedIp(each.subnet, each.address) for each in addresses)


def addressed_as(nic: Nic, before: Nic | None) -> Nic:
    """A NIC whose port has its former addresses again."""
    if before is None:
        return nic
    return msgspec.structs.replace(nic, addresses=before.addresses, segment=before.segment)


def describe_bound(cards: Cards | None, subnets: Mapping[int, str], ports: Iterable[Port] | None) -> str | None:
    """The changes as a text, for a move whose executor may have forgotten what was bound; a NIC without a former
    address has left no segment.
    """
    if cards is None or ports is None:
        return None
    return describe(each for each in readdressed(cards, subnets, ports) if each.old)


def describe(changes: Iterable[Readdressed]) -> str | None:
    """The changes as a text for operators; None: nothing changed."""
    words = [
        f"port {each.port}: {_format_addresses(each.old)} is now {_format_addresses(each.new)}" for each in changes
    ]
    return "; ".join(words) or None


def _format_addresses(addresses: Iterable[Address]) -> str:
    return ", ".join(each.address for each in addresses) or "none"
