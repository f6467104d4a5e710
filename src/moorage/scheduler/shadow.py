"""What other weights would have made of decisions that were recorded, each on a World that has what came of the ones before.

A server that the shadow places elsewhere takes its amounts there, and gives them back there when the recorded one gives back its own.
Pure: the recorded decisions and what became of their claims come in, one after the other, and outcomes go out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import msgspec

from moorage.model.decision_log import ClaimReleased, ClaimTaken, Decided, Event, Place
from moorage.model.ids import HostId, ProviderId
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.verdict import Verdict
from moorage.model.world import Ask, Group, NicRequirement, World
from moorage.scheduler.shadow_world import Difference, Key, ShadowWorld, summed

Ranker: TypeAlias = Callable[[Ask, World], Verdict]


class ShadowOutcome(NamedTuple):
    """One decision, then and in the shadow; None: no host would do."""

    at: float
    operation: str
    attempt: int
    recorded: str | None
    shadow: str | None
    same: bool
    """The same host, and the same segments and devices."""
    taken: dict[Key, int]
    """What the recorded claim took: the World does not have it yet."""


@dataclass
class Holding:
    """What one claim holds of the recorded World, and of the shadow's."""

    operation: str
    ask: Ask
    recorded: Place | None
    shadow: Place | None
    held: dict[Key, int]
    """How much more is free in the shadow's World."""


class Shadow:
    """Decisions of any number of processes, in the order of their times."""

    def __init__(self, rank: Ranker) -> None:
        self._rank = rank
        self._difference = Difference()
        self._worlds: dict[str, ShadowWorld] = {}
        self._holdings: dict[str, list[Holding]] = {}
        """By consumer."""
        self._members: dict[str, dict[str, Holding]] = {}
        """By server group and consumer."""

    def world_of(self, recorder: str) -> ShadowWorld:
        """What the shadow has of a process's World."""
        if recorder not in self._worlds:
            self._worlds[recorder] = self._difference.world()
        return self._worlds[recorder]

    def forget(self, recorder: str) -> None:
        """Its records are over."""
        if (world := self._worlds.pop(recorder, None)) is not None:
            self._difference.forget(world)

    def decide(self, recorder: str, event: Decided, ask: Ask, base: World) -> ShadowOutcome:
        """The same ask, by the shadow's weights, on the World as the shadow has it."""
        self._make_way(event)
        mapped = self._mapped(event, ask, base)
        place: Place | None = None
        if mapped is not None:
            world = self.world_of(recorder).on(base, mapped, self._groups_of(ask, base))
            best = self._rank(mapped, world).best
            place = Place.of(best[0]) if best else None
        holding = Holding(event.operation, ask, event.place, place, {})
        self._hold(event.consumer, holding)
        recorded, shadow = (None if each is None else _name(base, each.host) for each in (event.place, place))
        taken = amounts_at(ask, event.place)
        return ShadowOutcome(event.at, event.operation, event.attempt, recorded, shadow, event.place == place, taken)

    def follow(self, event: Event) -> None:
        """What became of a claim."""
        if isinstance(event, ClaimTaken):
            for holding in self._holdings.get(event.consumer, [])[-1:]:
                if holding.shadow == holding.recorded:  # a rival was first there, in the shadow too
                    holding.shadow = event.place
                holding.recorded = event.place
                self._settle(holding)
        elif isinstance(event, ClaimReleased):
            self._release(event.consumer, addresses_stay=event.addresses_stay)
        elif not isinstance(event, Decided):
            self._release(event.consumer, addresses_stay=False)
            for holding in self._holdings.pop(event.migration, []):
                self._hold(event.consumer, holding)

    # ------------------------------------------------------------------------------------------------- holdings

    def _make_way(self, event: Decided) -> None:
        """What this decision replaces: an earlier one of the same operation, all of a boot, the source of a move."""
        mine = self._holdings.get(event.consumer, [])
        gone = [each for each in mine if event.purpose == "boot" or each.operation == event.operation]
        for each in gone:
            self._drop(event.consumer, each)
        if event.purpose == "move" and event.migration not in self._holdings:
            for each in self._holdings.pop(event.consumer, []):
                self._holdings.setdefault(event.migration, []).append(each)

    def _hold(self, consumer: str, holding: Holding) -> None:
        self._holdings.setdefault(consumer, []).append(holding)
        if holding.ask.group is not None:
            self._members.setdefault(holding.ask.group.id, {})[consumer] = holding
        self._settle(holding)

    def _settle(self, holding: Holding, *, addresses_only: bool = False) -> None:
        """Make the difference what the holding says."""
        now: dict[Key, int] = {}
        if holding.recorded != holding.shadow:
            for place, sign in ((holding.recorded, 1), (holding.shadow, -1)):
                for key, amount in amounts_at(holding.ask, place).items():
                    if not addresses_only or key[1] == IPV4_ADDRESS:
                        now[key] = now.get(key, 0) + sign * amount
        self._difference.add(holding.held, -1)
        self._difference.add(now, +1)
        holding.held = now

    def _drop(self, consumer: str, holding: Holding) -> None:
        self._difference.add(holding.held, -1)
        holding.held = {}
        left = [each for each in self._holdings.get(consumer, []) if each is not holding]
        if left:
            self._holdings[consumer] = left
        else:
            self._holdings.pop(consumer, None)
        if holding.ask.group is not None:
            members = self._members.get(holding.ask.group.id, {})
            if members.get(consumer) is holding:
                del members[consumer]

    def _release(self, consumer: str, *, addresses_stay: bool) -> None:
        for holding in list(self._holdings.get(consumer, [])):
            if addresses_stay and any(key[1] == IPV4_ADDRESS for key in holding.held):
                self._settle(holding, addresses_only=True)
            else:
                self._drop(consumer, holding)

    # ------------------------------------------------------------------------------------------ asks and groups

    def _mapped(self, event: Decided, ask: Ask, base: World) -> Ask | None:
        """The ask as it would have been of a server that the shadow has elsewhere; None: the shadow has it nowhere."""
        source = event.migration if event.purpose == "move" else event.consumer
        held = [each for each in self._holdings.get(source, []) if each.recorded is not None]
        if not held or event.purpose == "boot":
            return ask
        before = held[-1]
        if before.shadow is None:
            return None
        recorded, shadow = before.recorded, before.shadow
        assert recorded is not None
        if ask.leaves == recorded.host:
            ask = msgspec.structs.replace(ask, leaves=shadow.host)
        if ask.staying and ask.host == _name(base, recorded.host):
            ask = msgspec.structs.replace(ask, host=_name(base, shadow.host))
        return msgspec.structs.replace(ask, nics=tuple(_nic(nic, held) for nic in ask.nics))

    def _groups_of(self, ask: Ask, base: World) -> dict[str, Group]:
        """The server group, with members where the shadow has them."""
        if ask.group is None:
            return {}
        known = base.groups.get(ask.group.id, Group())
        hosts, home = dict(known.hosts), known.home
        elsewhere = [h for h in self._members.get(ask.group.id, {}).values() if _host(h.recorded) != _host(h.shadow)]
        for holding in elsewhere:
            left, joined = _host(holding.recorded), _host(holding.shadow)
            if left is not None and hosts.get(left, 0) > 0:
                hosts[left] -= 1
            if joined is not None:
                hosts[joined] = hosts.get(joined, 0) + 1
        hosts = {host: count for host, count in hosts.items() if count > 0}
        if home is not None and home not in hosts:
            home = next((_host(each.shadow) for each in elsewhere if _host(each.recorded) == home), None)
        if home is None and hosts:
            home = next(iter(hosts))
        return {ask.group.id: Group(hosts, home if hosts else None)}


def _host(place: Place | None) -> HostId | None:
    return None if place is None else place.host


def _name(world: World, host: HostId) -> str:
    slot = world.slots.get(host)
    return str(host) if slot is None else world.names[slot]


def amounts_at(ask: Ask, place: Place | None) -> dict[Key, int]:
    """What a claim takes at a place."""
    if place is None:
        return {}
    parts = [(ProviderId(place.host), resource, amount) for resource, amount in ask.resources.items()]
    for nic, segment in zip(ask.nics, place.segments, strict=False):
        if segment is not None:
            parts.append((segment, IPV4_ADDRESS, nic.addresses))
    for group in ask.groups:
        if (provider := place.providers.get(group.id)) is not None:
            parts += [(provider, resource, amount) for resource, amount in group.resources.items()]
    return {key: amount for key, amount in summed(parts).items() if amount}


def _nic(nic: NicRequirement, held: Sequence[Holding]) -> NicRequirement:
    """A port that has its address already: on the segment where the shadow has given it one."""
    for holding in held:
        if holding.recorded is None or holding.shadow is None:
            continue
        parts = zip(holding.ask.nics, holding.recorded.segments, holding.shadow.segments, strict=False)
        for before, recorded, shadow in parts:
            if before.name == nic.name and nic.segments == (recorded,) and shadow is not None:
                return msgspec.structs.replace(nic, segments=(shadow,))
    return nic
