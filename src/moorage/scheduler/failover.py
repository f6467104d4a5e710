"""Checks whether all servers on a failed part find another place, with their addresses and guarantees; which do not, and why (N+1).

Servers are placed like evacuations, on a copy of the world without the failed part, the largest first.  Servers with equal asks are
placed together: one decision names many good hosts, and each of these takes one server.  This is still the scheduler's own choice,
because none of these hosts has changed since the decision.  If some find no place, all are placed once more with those first.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from moorage.model.ids import HostId, ProviderId
from moorage.model.resident import Resident
from moorage.model.verdict import Verdict
from moorage.model.world import Ask, Choice, World
from moorage.scheduler.filters.network import choose_segments
from moorage.scheduler.profile import Profile
from moorage.scheduler.rank import rank
from moorage.scheduler.trial import Trial
from moorage.scheduler.world_changes import Without, hosts_of, reduced, segment_of

AT_ONCE = 1_000
"""Limit of servers with equal asks that one decision places."""
UNPLACED_MAX = 1_000
"""Servers without a place that are named for one failure."""
NO_CHOICE = "its address is on the segment, and may not be of another one"

Kind = Literal["host", "aggregate", "segment", "cell"]


class Residents:
    """Servers by their hosts and segments, for questions about many failures of which each concerns few servers."""

    def __init__(self, servers: Iterable[Resident]) -> None:
        self.by_host: dict[HostId, list[Resident]] = {}
        self.by_segment: dict[ProviderId, list[Resident]] = {}
        for each in servers:
            self.by_host.setdefault(each.host, []).append(each)
            for segment in each.segments:
                self.by_segment.setdefault(segment, []).append(each)


class Unplaced(msgspec.Struct, frozen=True):
    server: str
    host: str
    why: str
    alone: bool
    """Whether it has no place even if it is the only server that moves."""


class FailoverAnswer(msgspec.Struct, frozen=True):
    """The effect of one failure."""

    kind: Kind
    name: str
    servers: int
    placed: int
    unplaced: tuple[Unplaced, ...]
    """Servers without a place, at most `UNPLACED_MAX`."""
    causes: dict[str, int]
    """Why servers have no place → how many servers."""

    @property
    def survives(self) -> bool:
        return self.placed == self.servers


@dataclass
class _Class:
    """Servers with equal asks."""

    asks: tuple[Ask, ...]
    members: list[Resident] = field(default_factory=list[Resident])


class FailoverPlacement(NamedTuple):
    resident: Resident
    ask: Ask
    choice: Choice


@dataclass
class Round:
    """The result of placing all servers in one order."""

    placed: list[FailoverPlacement]
    left: list[tuple[Resident, Verdict | None]]
    """Servers without a place, each with the verdict; None: the server has no ask that could be tried."""


def failing(world: World, kind: Kind, name: str) -> World:
    """Return the world without the failed part. Raises Invalid when there is no such part."""
    names = (name,)
    match kind:
        case "host":
            return reduced(world, Without(hosts=names))
        case "aggregate":
            return reduced(world, Without(aggregates=names))
        case "cell":
            return reduced(world, Without(cells=names))
        case "segment":
            return reduced(world, Without(segments=names))


def affected(world: World, kind: Kind, name: str, residents: Residents) -> list[Resident]:
    """Return the servers on the failed hosts, or with addresses of the failed segment. Raises Invalid when there is no such part."""
    if kind == "segment":
        gone = segment_of(world, name)
        return [_off(each, gone) for each in residents.by_segment.get(gone, ())]
    slots = np.flatnonzero(hosts_of(world, kind, name)).tolist()
    return [each for slot in slots for each in residents.by_host.get(world.host_ids[slot], ())]


def _off(resident: Resident, gone: ProviderId) -> Resident:
    """The server with those asks that remain when it cannot stay on the segment."""
    asks: list[Ask] = []
    for ask in resident.asks:
        nics = tuple(
            msgspec.structs.replace(nic, segments=tuple(each for each in nic.segments if each != gone))
            for nic in ask.nics
        )
        if all(now.segments or not before.segments for now, before in zip(nics, ask.nics, strict=True)):
            asks.append(msgspec.structs.replace(ask, nics=nics))
    return msgspec.structs.replace(resident, asks=tuple(asks))


def fail(world: World, kind: Kind, name: str, residents: Residents, profile: Profile) -> FailoverAnswer:
    """Compute the effect of one failure. Raises Invalid when there is no such part."""
    leaving, without = affected(world, kind, name, residents), failing(world, kind, name)
    done = place_all(without, leaving, profile)
    if done.left:
        first = {each.name for each, _ in done.left}
        again = place_all(without, leaving, profile, first=first)
        done = min(done, again, key=lambda each: len(each.left))
    causes: Counter[str] = Counter()
    unplaced: list[Unplaced] = []
    known: dict[object, bool] = {}
    for resident, verdict in done.left:
        cause, why = _describe(verdict)
        causes[cause] += 1
        if len(unplaced) < UNPLACED_MAX:
            key = _alike(resident.asks)
            alone = known.get(key)
            if alone is None:
                alone = known[key] = not any(rank(ask, without, _quick(profile, 1)).best for ask in resident.asks)
            unplaced.append(Unplaced(resident.name, world.names[world.slots[resident.host]], why, alone))
    return FailoverAnswer(kind, name, len(leaving), len(done.placed), tuple(unplaced), dict(causes.most_common()))


def _describe(verdict: Verdict | None) -> tuple[str, str]:
    """The cause that rejects the most hosts, and all causes with their counts."""
    if verdict is None:
        return NO_CHOICE, NO_CHOICE
    counts = verdict.counts()
    first = max(counts, key=lambda each: counts[each], default="there are no hosts")
    return first, "; ".join(f"{n} × {cause}" for cause, n in counts.items()) or first


def place_all(
    world: World, residents: Sequence[Resident], profile: Profile, *, first: "set[str] | frozenset[str]" = frozenset()
) -> Round:
    """Place all servers, the largest first; `first`: names of servers that come before all others."""
    trial = Trial(world, lambda ask, current: rank(ask, current, profile))
    done = Round([], [])
    early = [each for each in residents if each.name in first]
    late = [each for each in residents if each.name not in first]
    for group in (*_classes(early), *_classes(late)):
        members = group.members
        for ask in group.asks:
            members = list(_place(trial, ask, members, profile, done))
        verdict = rank(group.asks[-1], trial.world, profile) if members and group.asks else None
        done.left += [(each, verdict) for each in members]
    return done


def _classes(residents: Sequence[Resident]) -> list[_Class]:
    classes: dict[object, _Class] = {}
    for each in residents:
        key = _alike(each.asks) if not any(ask.group for ask in each.asks) else each.name
        classes.setdefault(key, _Class(each.asks)).members.append(each)
    return sorted(classes.values(), key=_size, reverse=True)


def _alike(asks: Sequence[Ask]) -> bytes:
    """A key that is equal for asks that differ only in the seed, in the host that is left, and in the names of ports."""
    plain = []
    for ask in asks:
        names = {group.id: f"{at}" for at, group in enumerate(ask.groups)}
        plain.append(
            msgspec.structs.replace(
                ask,
                seed=0,
                leaves=None,
                groups=tuple(msgspec.structs.replace(each, id=names[each.id], port="") for each in ask.groups),
                same_subtree=tuple(tuple(names[id] for id in each) for each in ask.same_subtree),
                same_device=tuple(tuple(names[id] for id in each) for each in ask.same_device),
            )
        )
    return msgspec.msgpack.encode(plain)


def _size(group: _Class) -> tuple[int, int, int]:
    ask = group.asks[0] if group.asks else Ask(resources={})
    return len(ask.groups), ask.resources.get("MEMORY_MB", 0), ask.resources.get("VCPU", 0)


def _quick(profile: Profile, hosts: int) -> Profile:
    return replace(profile, best=hosts, placed=hosts, misses=0)


def _place(trial: Trial, ask: Ask, members: Sequence[Resident], profile: Profile, done: Round) -> Iterator[Resident]:
    """Place servers with this ask; yield those that find no place."""
    waiting = list(members)
    while waiting:
        mine = msgspec.structs.replace(_own(ask, waiting[0]), seed=ask.seed + len(done.placed))
        verdict = rank(mine, trial.world, _quick(profile, min(len(waiting), AT_ONCE)))
        placed = 0
        for choice in _distinct(verdict.best):
            if not waiting:
                break
            segments = choose_segments(mine, trial.world, trial.world.slots[choice.host])
            if segments is None:
                break
            one = waiting[0]
            if one.host == choice.host:  # the server leaves that host, so it needs another decision
                break
            waiting.pop(0)
            choice = msgspec.structs.replace(choice, segments=segments)
            take(trial, mine, choice, one)
            done.placed.append(FailoverPlacement(one, mine, choice))
            placed += 1
        if not placed:
            break
    yield from waiting


def _own(ask: Ask, resident: Resident) -> Ask:
    """The ask with the server's own host as the one that it leaves."""
    return ask if ask.leaves is None else msgspec.structs.replace(ask, leaves=resident.host)


def _distinct(choices: Sequence[Choice]) -> Iterator[Choice]:
    """The first choice of each host: a second server on the same host needs a new decision."""
    hosts = set[HostId]()
    for choice in choices:
        if choice.host not in hosts:
            hosts.add(choice.host)
            yield choice


def take(trial: Trial, ask: Ask, choice: Choice, resident: Resident) -> None:
    """Take a choice like the claim of a move does. In its server group the server is counted on the new host only, and the host of an
    affinity group changes with its only member.
    """
    trial.take(ask, choice)
    if ask.group is None:
        return
    group = trial.world.groups[ask.group.id]
    if group.hosts.get(resident.host, 0) > 1:
        group.hosts[resident.host] -= 1
    else:
        group.hosts.pop(resident.host, None)
    if set(group.hosts) == {choice.host}:
        group.home = choice.host
