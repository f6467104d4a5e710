"""The scheduler's input: the Ask (the request) and the World (all hosts, in columns).

The package `placement` builds the World and keeps it current; the scheduler reads it.  A host has a *slot*, its index in every
column.  Slots are only used within a decision: results contain ids.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from moorage.model.ids import CellId, HostId, ProviderId
from moorage.model.image_requirements import HostKind
from moorage.model.request_groups import RequestGroup, Subtree

Mask: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int32]
Scores: TypeAlias = NDArray[np.float32]
Slots: TypeAlias = NDArray[np.intp]

GroupPolicy: TypeAlias = Literal["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]


class NicRequirement(msgspec.Struct, frozen=True):
    """One NIC, with the segments that can serve it. No segments: no address is claimed for it."""

    name: str
    """Its name for people: the port's id or the network's."""
    segments: tuple[ProviderId, ...] = ()
    """Any one of these is enough; a fixed address or subnet leaves only one."""
    addresses: int = 1
    """Number of IPv4 addresses from the chosen segment."""
    physnets: tuple[str, ...] = ()
    """One of these must reach the host; empty: no condition."""


class GroupAsk(msgspec.Struct, frozen=True):
    """The server group of the new server; its members' hosts are in the World."""

    id: str
    policy: GroupPolicy
    max_per_host: int = 1
    own: int = 0
    """How many of its members are the moved server itself: on the host that it leaves, and on hosts on which the move was tried."""


class Unfit(msgspec.Struct, frozen=True):
    """Why no host of a cell can take a server."""

    cause: str
    """A few words without names, for the owner and the fault."""
    detail: str = ""
    """The network or volume."""

    @override
    def __str__(self) -> str:
        return f"{self.cause} ({self.detail})" if self.detail else self.cause


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Everything on which a decision depends, besides the World."""

    resources: dict[str, int]
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    nics: tuple[NicRequirement, ...] = ()
    availability_zone: str | None = None
    host: str | None = None
    """Only this host, by its name for people."""
    node: str | None = None
    """Only this hypervisor hostname."""
    leaves: HostId | None = None
    """The host that the server leaves in a move."""
    not_on: tuple[HostId, ...] = ()
    """Hosts that were tried before."""
    same_host: tuple[HostId, ...] | None = None
    """Hosts of the servers that the hint names; an empty tuple rejects every host."""
    different_host: tuple[HostId, ...] = ()
    group: GroupAsk | None = None
    groups: tuple[RequestGroup, ...] = ()
    """What ports and flavor ask of single providers, besides the host's own amounts."""
    same_subtree: tuple[Subtree, ...] = ()
    same_device: tuple[Subtree, ...] = ()
    """Ids of groups whose providers must represent one interface: a virtual function, and the bandwidth of its device."""
    group_policy: Literal["none", "isolate"] = "none"
    """`isolate`: no two groups on one provider."""
    project: str = ""
    extra_specs: dict[str, str] = {}
    image_properties: dict[str, str] = {}
    min_level: int = 0
    max_level: int = 127
    """Hosts with newer agents are rejected, while only hosts themselves can make and bind ports."""
    cells: tuple[CellId, ...] | None = None
    cells_out: tuple[CellId, ...] = ()
    """Cells whose databases do not answer: no new servers go there."""
    cells_unfit: dict[CellId, Unfit] = {}
    """Cells to which a moved server cannot go: its volumes or addresses are not there, or the cells are not linked."""
    prefer_cell: CellId | None = None
    """The present cell of a server whose move may leave it."""
    staying: bool = False
    """Whether the server is on `host` already and asks for more: then it does not matter whether the host takes new servers."""
    seed: int = 0


class Choice(msgspec.Struct, frozen=True):
    """A host that passed: for each NIC the segment of its address (None: not claimed), for each group its provider."""

    host: HostId
    name: str
    cell: CellId
    segments: tuple[ProviderId | None, ...] = ()
    providers: dict[str, ProviderId] = {}
    """Group id → the provider that gives what the group asks."""
    versions: dict[ProviderId, int] = {}
    """Versions of the claim's providers at the decision: a provider with another version has changed since (RULES §21)."""


@dataclass(frozen=True)
class Refusals:
    """Which hosts are rejected, and why; the text is made only when it is needed."""

    where: Mask
    why: Callable[[int], str]
    cause: str
    """A few words without numbers or host names, for the owner and the fault."""
    lack: "Callable[[Slots], Scores] | None" = None
    """How much is missing on these hosts, each amount as a part of what is asked; None: the reason is not an amount."""


Filter: TypeAlias = "Callable[[Ask, World], Refusals | None]"
Weigher: TypeAlias = "Callable[[Ask, World, Slots], Scores | None]"


@dataclass(slots=True)
class Units:
    """The limits of single allocations of one class; checked only for unusual amounts."""

    minimum: Ints
    maximum: Ints
    step: Ints
    highest_minimum: int = 1
    """No minimum is above this, so a larger amount need not be compared."""
    lowest_maximum: int = 0
    """No maximum is below this."""
    highest_step: int = 1


@dataclass(slots=True)
class Segment:
    """A network segment: a pool of addresses for the hosts wired to it."""

    id: ProviderId
    name: str
    free: int
    total: int
    wired: Mask


@dataclass(frozen=True, slots=True)
class Reach:
    """Which hosts some segments serve; computed once, because wiring seldom changes and addresses change often."""

    wired: Mask
    """Hosts that are wired to any of the segments."""
    unwired: Mask
    only: NDArray[np.int32]
    """For each host the index of its segment among them; or NO_SEGMENT, or SEVERAL."""


NO_SEGMENT, SEVERAL = -1, -2
REACHES_MAX = 1000


@dataclass(frozen=True, slots=True)
class HostAggregate:
    """An aggregate of the Compute API, as the scheduler sees it."""

    name: str
    metadata: Mapping[str, str]
    hosts: Mask


@dataclass(slots=True)
class Group:
    """How many servers of a group are on each host."""

    hosts: dict[HostId, int] = field(default_factory=dict)
    home: HostId | None = None


@dataclass(frozen=True)
class Nested:
    """Providers below hosts (a bridge, a physical function, an agent), in columns of their own: one slot for each."""

    ids: Sequence[ProviderId] = ()
    names: Sequence[str] = ()
    parents: Sequence[ProviderId | None] = ()
    host: Slots = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    """The slot of its host in the World; -1: the slot is empty, or its root is not a host."""
    free: Mapping[str, Ints] = field(default_factory=dict)
    capacity: Mapping[str, Ints] = field(default_factory=dict)
    units: Mapping[str, Units] = field(default_factory=dict)
    trait_bits: Mapping[str, int] = field(default_factory=dict)
    trait_bitmap: NDArray[np.uint64] = field(default_factory=lambda: np.zeros((1, 0), dtype=np.uint64))
    below: Mapping[HostId, Sequence[int]] = field(default_factory=dict)
    """Host → the slots of all providers below it."""
    pending: Mapping[tuple[ProviderId, str], int] = field(default_factory=dict)
    """Amounts of claims that are under way in this process; they are subtracted from `free`."""

    @property
    def size(self) -> int:
        return len(self.host)


@dataclass(frozen=True, slots=True)
class SharingProvider:
    """A provider that serves hosts of other trees with which it shares an aggregate (MISC_SHARES_VIA_AGGREGATE)."""

    id: ProviderId
    name: str
    root: ProviderId
    above: tuple[ProviderId, ...]
    """Its parent, and so on up to its root."""
    nested: bool
    """Whether its slot is in `World.nested`; else it is one of the World."""
    slot: int
    hosts: Mask
    """The hosts that it serves, without the host of its own tree."""


@dataclass(frozen=True)
class Roll:
    """All hosts by name."""

    slots: Slots
    names: tuple[str, ...]

    @cached_property
    def digest(self) -> str:
        """A digest that is equal if another roll names the same hosts."""
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class World:
    """All hosts, in columns of equal length. Only read it, and only until the next `await`, because the provider cache changes then."""

    host_ids: Sequence[HostId]
    names: Sequence[str]
    nodes: Sequence[str]
    present: Mask
    """False: an empty slot."""
    enabled: Mask
    alive: Mask
    level: NDArray[np.int8]
    zone: NDArray[np.int16]
    zone_names: Sequence[str]
    cell: NDArray[np.int16]
    cell_names: Sequence[CellId]
    cell_disabled: Mask
    """Whether an administrator has disabled the host's cell for servers from elsewhere."""
    free: Mapping[str, Ints]
    capacity: Mapping[str, Ints]
    units: Mapping[str, Units]
    trait_bits: Mapping[str, int]
    """Trait → its bit; bit b lies in word b // 64."""
    trait_bitmap: NDArray[np.uint64]
    """One row per word, one column per host."""
    slots: Mapping[HostId, int]
    slots_by_name: Mapping[str, int]
    segments: Mapping[ProviderId, Segment]
    physnets: Mapping[str, Mask]
    physnets_known: Mask
    """False: the host never reported its physical networks; the network service will decide."""
    aggregates: Sequence[HostAggregate]
    groups: Mapping[str, Group]
    failures: NDArray[np.int16]
    """Recent failed builds on each host, as this process saw them."""
    kind: NDArray[np.int16] = field(default_factory=lambda: np.zeros(0, dtype=np.int16))
    kinds: Sequence[HostKind] = ()
    """What hosts are; `kind` is each host's place in it."""
    nested: Nested = field(default_factory=Nested)
    sharing: Sequence[SharingProvider] = ()
    reaches: dict[tuple[ProviderId, ...], Reach] = field(default_factory=dict)
    """Cache of `reach`; if the wiring changes, there is a new World."""
    rolls: "list[Roll]" = field(default_factory=list["Roll"])
    """Cache of `roll`; if the hosts change, there is a new World."""

    @property
    def size(self) -> int:
        return len(self.present)

    def reach(self, segments: tuple[ProviderId, ...]) -> Reach:
        """Return which hosts are wired to any of these segments, and to which one."""
        reach = self.reaches.get(segments)
        if reach is None:
            only = np.full(self.size, NO_SEGMENT, dtype=np.int32)
            for place, segment in enumerate(segments):
                if segment in self.segments:
                    wired = self.segments[segment].wired
                    only[wired] = np.where(only[wired] == NO_SEGMENT, np.int32(place), np.int32(SEVERAL))
            unwired = only == NO_SEGMENT
            if len(self.reaches) >= REACHES_MAX:
                self.reaches.clear()
            reach = self.reaches[segments] = Reach(~unwired, unwired, only)
        return reach

    def roll(self) -> "Roll":
        """Return all hosts in the order of their names; it is the same in every process that knows the same hosts."""
        if not self.rolls:
            slots = sorted(np.flatnonzero(self.present).tolist(), key=self.names.__getitem__)
            self.rolls.append(Roll(np.array(slots, dtype=np.intp), tuple(self.names[slot] for slot in slots)))
        return self.rolls[0]

    def device_names(self, host: HostId) -> dict[ProviderId, str]:
        """Return the names of the providers that may serve groups on the host, besides itself: those below it, and those that share."""
        nested, slot = self.nested, self.slots.get(host)
        names = {nested.ids[each]: nested.names[each] for each in nested.below.get(host, ())}
        return names | {each.id: each.name for each in self.sharing if slot is not None and each.hosts[slot]}

    def has_zone(self, name: str) -> bool:
        """Tell whether an enabled host is in this zone, even if it is down."""
        if name not in self.zone_names:
            return False
        in_zone = self.zone == list(self.zone_names).index(name)
        return bool(np.any(in_zone & self.present & self.enabled))

    def facts(self, slot: int) -> dict[str, Any]:
        """Return one host in plain values, for people."""
        return {
            "host": self.names[slot],
            "cell": self.cell_names[self.cell[slot]],
            "availability_zone": self.zone_names[self.zone[slot]],
            "enabled": bool(self.enabled[slot]),
            "alive": bool(self.alive[slot]),
            "free": {name: int(column[slot]) for name, column in self.free.items() if self.capacity[name][slot] > 0},
        }
