"""What the scheduler looks at: the Ask (what is wanted) and the World (all hosts, in columns).

The placement room draws the World and keeps it fresh; the scheduler reads it; neither knows the other.  A host has a
*slot*, its place in every column.  Slots never leave a decision: answers hold ids.
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
from moorage.model.request_groups import RequestGroup, Subtree

Mask: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int32]
Scores: TypeAlias = NDArray[np.float32]
Slots: TypeAlias = NDArray[np.intp]

GroupPolicy: TypeAlias = Literal["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]


class NicRequirement(msgspec.Struct, frozen=True):
    """One NIC: which segments could serve it. No segments: nothing is claimed for its address."""

    name: str
    """How people know it: the port's id or the network's."""
    segments: tuple[ProviderId, ...] = ()
    """Any one of these will do; a fixed address or subnet leaves one."""
    addresses: int = 1
    """IPv4 addresses wanted from the chosen segment."""
    physnets: tuple[str, ...] = ()
    """Any one of these must reach the host; empty: any host will do."""


class GroupAsk(msgspec.Struct, frozen=True):
    """The server group the server is born into; who is where is in the World."""

    id: str
    policy: GroupPolicy
    max_per_host: int = 1
    own: int = 0
    """So many of its members are the server itself, which is being moved: on the host that it leaves, and where it was tried to put it."""


class Unfit(msgspec.Struct, frozen=True):
    """Why no host of a cell can have a server."""

    cause: str
    """A few words without names: it is what the owner and the fault are told."""
    detail: str = ""
    """Which network, which volume."""

    @override
    def __str__(self) -> str:
        return f"{self.cause} ({self.detail})" if self.detail else self.cause


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a decision depends on, besides the World."""

    resources: dict[str, int]
    required: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    nics: tuple[NicRequirement, ...] = ()
    availability_zone: str | None = None
    host: str | None = None
    """Only this host, by the name people know."""
    node: str | None = None
    """Only this hypervisor hostname."""
    leaves: HostId | None = None
    """The host that a move takes the server away from."""
    not_on: tuple[HostId, ...] = ()
    """Tried before."""
    same_host: tuple[HostId, ...] | None = None
    """Hosts of the servers named by the hint; an empty tuple refuses every host."""
    different_host: tuple[HostId, ...] = ()
    group: GroupAsk | None = None
    groups: tuple[RequestGroup, ...] = ()
    """What ports and flavor ask of single providers, beside the host's own amounts."""
    same_subtree: tuple[Subtree, ...] = ()
    same_device: tuple[Subtree, ...] = ()
    """Ids of groups whose providers must stand for one interface: a virtual function, and the bandwidth of its device."""
    group_policy: Literal["none", "isolate"] = "none"
    """`isolate`: no two groups on one provider."""
    project: str = ""
    extra_specs: dict[str, str] = {}
    image_properties: dict[str, str] = {}
    min_level: int = 0
    max_level: int = 127
    """Hosts with newer agents are refused: while nobody but the host itself could see to the ports."""
    cells: tuple[CellId, ...] | None = None
    cells_out: tuple[CellId, ...] = ()
    """Cells whose databases do not answer: nothing new is begun there."""
    cells_unfit: dict[CellId, Unfit] = {}
    """Cells that a server which is moved cannot go to: its volumes or addresses are not there, or the cells are not linked."""
    prefer_cell: CellId | None = None
    """Of a move that may leave its cell: that one."""
    staying: bool = False
    """More for a server that is on `host` already: whether the host takes new servers does not matter."""
    seed: int = 0


class Choice(msgspec.Struct, frozen=True):
    """A host that would do: for each NIC the segment of its address (None: not claimed), for each group its provider."""

    host: HostId
    name: str
    cell: CellId
    segments: tuple[ProviderId | None, ...] = ()
    providers: dict[str, ProviderId] = {}
    """Group id → the provider that gives what the group asks."""
    versions: dict[ProviderId, int] = {}
    """The versions at which the decision knew the providers of the claim: one that has another by then has changed (RULES §21)."""


@dataclass(frozen=True)
class Refusals:
    """Which hosts are refused, and, worded only when somebody asks, why."""

    where: Mask
    why: Callable[[int], str]
    cause: str
    """A few words without numbers or names of hosts: it is what the owner and the fault are told."""
    lack: "Callable[[Slots], Scores] | None" = None
    """How much is missing there, each amount as a part of what is asked of it; None: it is no matter of amounts."""


Filter: TypeAlias = "Callable[[Ask, World], Refusals | None]"
Weigher: TypeAlias = "Callable[[Ask, World, Slots], Scores | None]"


@dataclass(slots=True)
class Units:
    """The portions of one class; checked only where somebody asks for something unusual."""

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
    """Which hosts some segments serve: worked out once, for wires change seldom and addresses all the time."""

    wired: Mask
    """To any of them."""
    unwired: Mask
    only: NDArray[np.int32]
    """Per host the place of its segment among them; NO_SEGMENT, or SEVERAL."""


NO_SEGMENT, SEVERAL = -1, -2
REACHES_MAX = 1000


@dataclass(frozen=True, slots=True)
class HostAggregate:
    """An aggregate of the compute API as the scheduler sees it."""

    name: str
    metadata: Mapping[str, str]
    hosts: Mask


@dataclass(slots=True)
class Group:
    """Who of a server group is where."""

    hosts: dict[HostId, int] = field(default_factory=dict)
    home: HostId | None = None


@dataclass(frozen=True)
class Nested:
    """Providers below hosts (a bridge, a physical function, an agent), in columns of their own: one slot for each."""

    ids: Sequence[ProviderId] = ()
    names: Sequence[str] = ()
    parents: Sequence[ProviderId | None] = ()
    host: Slots = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    """The slot of its host in the World; -1: the slot is empty, or what it is below is no host."""
    free: Mapping[str, Ints] = field(default_factory=dict)
    capacity: Mapping[str, Ints] = field(default_factory=dict)
    units: Mapping[str, Units] = field(default_factory=dict)
    trait_bits: Mapping[str, int] = field(default_factory=dict)
    trait_bitmap: NDArray[np.uint64] = field(default_factory=lambda: np.zeros((1, 0), dtype=np.uint64))
    below: Mapping[HostId, Sequence[int]] = field(default_factory=dict)
    """The slots of everything below a host."""
    pending: Mapping[tuple[ProviderId, str], int] = field(default_factory=dict)
    """What claims that are under way in this process hold; `free` is less by it."""

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
    """Its slot is one of `World.nested`; else one of the World."""
    slot: int
    hosts: Mask
    """Whom it serves; its own tree's host is not among them."""


@dataclass(frozen=True)
class Roll:
    """All hosts by name."""

    slots: Slots
    names: tuple[str, ...]

    @cached_property
    def digest(self) -> str:
        """Tells whether another roll names the same hosts."""
        return hashlib.sha256("\n".join(self.names).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class World:
    """All hosts in columns of equal length. To be read only, and only until the next `await`: the picture moves on."""

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
    """An administrator closed the host's whole cell to servers from elsewhere."""
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
    """False: the host never said what it is wired to; the network service will judge."""
    aggregates: Sequence[HostAggregate]
    groups: Mapping[str, Group]
    failures: NDArray[np.int16]
    """Builds that failed there lately, in this process."""
    nested: Nested = field(default_factory=Nested)
    sharing: Sequence[SharingProvider] = ()
    reaches: dict[tuple[ProviderId, ...], Reach] = field(default_factory=dict)
    """What `reach` has worked out; a world with other wires is another world."""
    rolls: "list[Roll]" = field(default_factory=list["Roll"])
    """What `roll` has worked out; a world with other hosts is another world."""

    @property
    def size(self) -> int:
        return len(self.present)

    def reach(self, segments: tuple[ProviderId, ...]) -> Reach:
        """Who is wired to any of these segments, and to which."""
        found = self.reaches.get(segments)
        if found is None:
            only = np.full(self.size, NO_SEGMENT, dtype=np.int32)
            for place, segment in enumerate(segments):
                if segment in self.segments:
                    wired = self.segments[segment].wired
                    only[wired] = np.where(only[wired] == NO_SEGMENT, np.int32(place), np.int32(SEVERAL))
            unwired = only == NO_SEGMENT
            if len(self.reaches) >= REACHES_MAX:
                self.reaches.clear()
            found = self.reaches[segments] = Reach(~unwired, unwired, only)
        return found

    def roll(self) -> "Roll":
        """All hosts in the order of their names, which is the same in every process that knows the same hosts."""
        if not self.rolls:
            slots = sorted(np.flatnonzero(self.present).tolist(), key=self.names.__getitem__)
            self.rolls.append(Roll(np.array(slots, dtype=np.intp), tuple(self.names[slot] for slot in slots)))
        return self.rolls[0]

    def device_names(self, host: HostId) -> dict[ProviderId, str]:
        """Names of the providers that may serve groups on the host, besides itself: those below it, and those that share."""
        nested, slot = self.nested, self.slots.get(host)
        found = {nested.ids[each]: nested.names[each] for each in nested.below.get(host, ())}
        return found | {each.id: each.name for each in self.sharing if slot is not None and each.hosts[slot]}

    def has_zone(self, name: str) -> bool:
        """Whether a host that is in service is in this zone; one that is down is, too."""
        if name not in self.zone_names:
            return False
        here = self.zone == list(self.zone_names).index(name)
        return bool(np.any(here & self.present & self.enabled))

    def facts(self, slot: int) -> dict[str, Any]:
        """One host in plain values, for people."""
        return {
            "host": self.names[slot],
            "cell": self.cell_names[self.cell[slot]],
            "availability_zone": self.zone_names[self.zone[slot]],
            "enabled": bool(self.enabled[slot]),
            "alive": bool(self.alive[slot]),
            "free": {name: int(column[slot]) for name, column in self.free.items() if self.capacity[name][slot] > 0},
        }
