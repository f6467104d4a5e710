"""How many more servers of one kind fit, where, and what runs out first (N8).

Each host is counted by itself (`capacity_hosts.py`), and shared addresses are divided among the hosts (`capacity_pools.py`).  The result
is what repeated boots reach, whatever the order in which the scheduler fills hosts.  If the order matters, as with hosts on
segments that overlap, the scheduler itself places the servers one after the other on a copy of the world (`Fill`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from moorage.model.ids import HostId, ProviderId
from moorage.model.verdict import Verdict
from moorage.model.world import Ask, Choice, Mask, World
from moorage.scheduler.capacity_hosts import HOST_MAX, PerHost, count_hosts
from moorage.scheduler.capacity_pools import AddressPool, Counts, filled, most_of, pools_of
from moorage.scheduler.filters.devices import device_room, devices_in_all
from moorage.scheduler.filters.network import segment_addresses
from moorage.scheduler.filters.resource_fit import fits
from moorage.scheduler.filters.server_group import server_group
from moorage.scheduler.profile import Profile
from moorage.scheduler.trial import Trial

ADDRESSES = "addresses"
COUNTED = frozenset({fits, device_room, devices_in_all, segment_addresses})
"""Filters of resources that run out. They are counted, so a host without room is described by the resource that it lacks."""


class HostRoom(msgspec.Struct, frozen=True):
    """The room on one host that the request could use."""

    host: str
    cell: str
    zone: str
    fits: int
    """How many servers fit if all other hosts stay as they are."""
    binds: tuple[str, ...]
    """The resources that run out first on this host."""


class SegmentRoom(msgspec.Struct, frozen=True):
    """One segment of the requested networks, or several segments with the same hosts."""

    segments: tuple[str, ...]
    free: int
    total: int
    hosts: int
    fits: int
    binds: dict[str, int]
    """What runs out first → on how many of its hosts."""


class AreaRoom(msgspec.Struct, frozen=True):
    """One cell or availability zone, as if only it were filled."""

    name: str
    hosts: int
    fits: int
    binds: dict[str, int]


class CapacityAnswer(msgspec.Struct, frozen=True):
    """The answer to a question about capacity."""

    fits: int
    at_most: int
    """Upper bound: no order of placing gives more."""
    order_matters: bool
    """Whether the scheduler may reach another number if it chooses differently among equally good hosts."""
    whole: bool
    """False: `fits` servers were placed, and then the search stopped."""
    binds: dict[str, int]
    """What runs out first → on how many hosts."""
    refused: dict[str, int]
    """Why hosts are rejected → how many hosts."""
    hosts: tuple[HostRoom, ...]
    segments: tuple[SegmentRoom, ...]
    cells: tuple[AreaRoom, ...]
    zones: tuple[AreaRoom, ...]


@dataclass(frozen=True)
class Count:
    """What is known without placing any server."""

    ask: Ask
    world: World
    open: Mask
    """Hosts that lack nothing, or only resources that run out."""
    refused: dict[str, int]
    per_host: PerHost
    pools: list[AddressPool] | None
    """Shared addresses; None: the order in which hosts are filled matters."""
    alone: Counts
    """For each host the number that fits, as if it were the only host."""

    @property
    def sure(self) -> bool:
        """Whether the number is the same in every order of placing."""
        group = self.ask.group
        homeless = group is not None and group.policy == "affinity" and not _at_home(self.ask, self.world)
        return self.pools is not None and self.per_host.sure and not homeless

    @property
    def at_most(self) -> int:
        if self.ask.group is not None and self.ask.group.policy == "affinity":
            return int(self.alone.max(initial=0))
        if self.pools is not None:
            return filled(self.per_host.most, self.pools, self.open)[0]
        addresses = most_of(self.ask, self.world)
        hosts = int(self.alone.sum())
        return hosts if addresses is None else min(hosts, addresses)


def count(ask: Ask, world: World, profile: Profile) -> Count:
    """Count how many servers fit, without placing any."""
    willing, refused = world.present.copy(), Counter[str]()
    for judge in profile.judges(ask):
        counted = judge in COUNTED or (
            judge is server_group and ask.group is not None and ask.group.policy == "anti-affinity"
        )
        if counted or (refusals := judge(ask, world)) is None:
            continue
        if (mask := refusals.where & willing).any():
            refused[refusals.cause] += int(np.count_nonzero(mask))
            willing &= ~refusals.where
    per_host = count_hosts(ask, world, willing)
    pools = pools_of(ask, world, willing & (per_host.most > 0))
    alone = per_host.most.copy()
    for pool in pools or ():
        alone[pool.hosts] = np.minimum(alone[pool.hosts], pool.servers)
    return Count(ask, world, willing, dict(refused), per_host, pools, alone)


def _at_home(ask: Ask, world: World) -> bool:
    known = None if ask.group is None else world.groups.get(ask.group.id)
    return known is not None and known.home is not None


# ----------------------------------------------------------------------------------------------- by placing


@dataclass
class Fill:
    """Places servers one after the other on a copy of the world, with the scheduler, each like a boot."""

    ask: Ask
    world: World
    rank: Callable[[Ask, World], Verdict]
    placed: list[Choice] = field(default_factory=list[Choice])
    full: bool = False

    def __post_init__(self) -> None:
        self._trial = Trial(self.world, self.rank)

    def step(self, servers: int) -> bool:
        """Place this many more servers; False: there is no room left."""
        for _ in range(servers):
            seed = self.ask.seed + len(self.placed)
            verdict = self._trial.place(msgspec.structs.replace(self.ask, seed=seed))
            if not verdict.best:
                self.full = True
                break
            self.placed.append(verdict.best[0])
        return not self.full

    @property
    def after(self) -> World:
        """Return the world with the placed servers."""
        return self._trial.world


# ------------------------------------------------------------------------------------------------ the answer


def answer(counted: Count, fill: Fill | None = None) -> CapacityAnswer:
    """Build the answer; `fill`: the servers that were placed, if the count is not sure."""
    host_binds = _host_binds(counted)
    binds = _binds(counted, counted.open) if fill is None else _binds_after(fill)
    whole, areas = (
        filled(counted.per_host.least, counted.pools, counted.open)[0] if counted.pools is not None else 0,
        None,
    )
    if fill is not None:
        whole, areas = len(fill.placed), Counter(each.host for each in fill.placed)
    world = counted.world
    return CapacityAnswer(
        fits=whole,
        at_most=whole if fill is None else max(whole, counted.at_most),
        order_matters=fill is not None,
        whole=fill is None or fill.full,
        binds=binds,
        refused=counted.refused,
        hosts=_hosts(counted, host_binds),
        segments=_segments(counted, fill),
        cells=_areas(counted, world.cell, [str(each) for each in world.cell_names], areas),
        zones=_areas(counted, world.zone, world.zone_names, areas),
    )


def _host_binds(counted: Count) -> dict[str, Mask]:
    """What runs out first → the hosts, each by itself."""
    most = counted.per_host.most
    binds = {name: mask & (counted.alone >= most) for name, mask in counted.per_host.bounds.items()}
    short = np.zeros(counted.world.size, dtype=np.bool_)
    for pool in counted.pools or ():
        short |= pool.hosts & (pool.servers <= most)
    binds[ADDRESSES] = short & counted.open
    return binds


def _binds(counted: Count, live: Mask) -> dict[str, int]:
    """What runs out first when all these hosts are filled, with the number of hosts, the most first."""
    pools = counted.pools or []
    _, room = filled(counted.per_host.least, pools, live)
    short, easy = np.zeros(counted.world.size, dtype=np.bool_), np.ones(counted.world.size, dtype=np.bool_)
    for pool, wanted in zip(pools, room, strict=True):
        if pool.servers <= wanted:
            short |= pool.hosts
        if pool.servers < wanted:
            easy &= ~pool.hosts
    hosts_by_bound = Counter(
        {name: int(np.count_nonzero(mask & live & easy)) for name, mask in counted.per_host.bounds.items()}
    )
    hosts_by_bound[ADDRESSES] = int(np.count_nonzero(short & live))
    return {name: hosts for name, hosts in hosts_by_bound.most_common() if hosts}


def _binds_after(fill: Fill) -> dict[str, int]:
    """Why each host of a filled fleet rejects one more server, from the scheduler's own filters."""
    return fill.rank(fill.ask, fill.after).counts() if fill.full else {}


def _hosts(counted: Count, binds: dict[str, Mask]) -> tuple[HostRoom, ...]:
    world, slots = counted.world, np.flatnonzero(counted.open)
    named = [(name, mask[slots].tolist()) for name, mask in binds.items()]
    rows = zip(slots.tolist(), counted.alone[slots].tolist(), strict=True)
    return tuple(
        HostRoom(
            world.names[slot],
            str(world.cell_names[int(world.cell[slot])]),
            world.zone_names[int(world.zone[slot])],
            fits,
            tuple(name for name, mask in named if mask[at]),
        )
        for at, (slot, fits) in enumerate(rows)
    )


def _segments(counted: Count, fill: Fill | None) -> tuple[SegmentRoom, ...]:
    world = counted.world
    if counted.pools is None or fill is not None:
        return _segments_taken(counted, fill)
    context: list[SegmentRoom] = []
    for pool in counted.pools:
        known = [world.segments[each] for each in pool.segments]
        if not known:
            continue
        fits, _ = filled(counted.per_host.least, counted.pools, pool.hosts)
        hosts = int(np.count_nonzero(pool.hosts))
        free = sum(max(0, each.free) for each in known)
        names = tuple(each.name for each in known)
        context.append(SegmentRoom(names, free, sum(e.total for e in known), hosts, fits, _binds(counted, pool.hosts)))
    listed = {each for pool in counted.pools for each in pool.segments}
    context += [
        _empty(counted, each) for each in _segments_of(counted.ask) if each in world.segments and each not in listed
    ]
    return tuple(sorted(context, key=lambda each: each.segments))


def _segments_of(ask: Ask) -> list[ProviderId]:
    return list(dict.fromkeys(each for nic in ask.nics if nic.addresses for each in nic.segments))


def _empty(counted: Count, id: ProviderId) -> SegmentRoom:
    """The room of a segment that has no address left, or whose hosts can have no server."""
    segment = counted.world.segments[id]
    mask = segment.wired & counted.open
    binds = {ADDRESSES: int(np.count_nonzero(mask))} if segment.free <= 0 else _binds(counted, mask)
    return SegmentRoom((segment.name,), max(0, segment.free), segment.total, int(np.count_nonzero(mask)), 0, binds)


def _segments_taken(counted: Count, fill: Fill | None) -> tuple[SegmentRoom, ...]:
    """The room of segments after placing."""
    world, taken = counted.world, Counter[ProviderId]()
    for choice in () if fill is None else fill.placed:
        taken.update({each for each in choice.segments if each is not None})
    context: list[SegmentRoom] = []
    for id in _segments_of(counted.ask):
        if (segment := world.segments.get(id)) is not None:
            hosts = int(np.count_nonzero(segment.wired & counted.open))
            gone = fill is not None and fill.after.segments[id].free <= 0
            binds = {ADDRESSES: hosts} if gone else {}
            context.append(SegmentRoom((segment.name,), max(0, segment.free), segment.total, hosts, taken[id], binds))
    return tuple(sorted(context, key=lambda each: each.segments))


def _areas(
    counted: Count, column: NDArray[np.int16], names: Sequence[str], placed: "Counter[HostId] | None"
) -> tuple[AreaRoom, ...]:
    """One row for each cell or zone that has a host."""
    context: list[AreaRoom] = []
    for number, name in enumerate(names):
        live = counted.open & (column == number)
        if not (counted.world.present & (column == number)).any():
            continue
        if placed is None:
            fits, binds = filled(counted.per_host.least, counted.pools or [], live)[0], _binds(counted, live)
        else:
            slots = counted.world.slots
            fits = sum(n for host, n in placed.items() if column[slots[host]] == number)
            binds = {}
        context.append(AreaRoom(name, int(np.count_nonzero(live)), fits, binds))
    return tuple(sorted(context, key=lambda each: each.name))


__all__ = ["HOST_MAX", "AreaRoom", "CapacityAnswer", "Count", "Fill", "HostRoom", "SegmentRoom", "answer", "count"]
