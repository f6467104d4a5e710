"""Which provider of one host's tree serves which group, so that all are served together: a search, never a product.

Depth first, the groups with the fewest places first.  Providers that cannot be told apart (siblings without children, equally
free, of equal kind, serving the same) are tried once, and a state from which there was no way on is remembered, whatever the
order of choices that led to it.  So eight equal ports over eight equal devices cost little more than one, and "no" is soon said.

A host has few providers and a request few groups, so the search is in plain numbers, read from the columns once for each host.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from moorage.model.ids import ProviderId
from moorage.model.request_groups import RequestGroup
from moorage.model.world import Ask, World
from moorage.scheduler.columns import WORD_BITS, Numbers
from moorage.scheduler.filters.devices import TOGETHER

TRIES_MAX = 20_000
"""Places tried on one host before it is given up: far more than any tree of devices needs."""

ROOT = 0

Providers = dict[str, ProviderId]
Portions = tuple[tuple[str, int, int, int], ...]


@dataclass(slots=True)
class Node:
    """One provider of a host's tree: the host itself, or something below it."""

    id: ProviderId
    name: str
    parent: int
    """Its place in the tree's list; the host is its own parent."""
    free: dict[str, int]
    portions: Portions
    """(class, least, most, step) of what it gives away."""
    traits: frozenset[str]
    """Those that the groups speak of."""
    leaf: bool = True

    @property
    def device(self) -> str:
        """The interface it stands for, as the network service names its providers: `<host>:<agent>:<interface>`."""
        return self.name.rpartition(":")[2]

    def serves(self, group: RequestGroup) -> bool:
        """All of the group, by itself."""
        if not all(self.free.get(name, 0) >= amount for name, amount in group.resources.items()):
            return False
        for name, least, most, step in self.portions:
            amount = group.resources.get(name)
            if amount is not None and (not least <= amount <= most or amount % step):
                return False
        return self.traits.issuperset(group.required) and self.traits.isdisjoint(group.forbidden)


def draw(ask: Ask, world: World, slot: int) -> list[Node]:
    """One host and what is below it, in the order of ids, as far as the groups of an ask go."""
    nested = world.nested
    below = sorted(nested.below.get(world.host_ids[slot], ()), key=lambda each: nested.ids[each])
    classes = tuple(dict.fromkeys(name for group in ask.groups for name in group.resources))
    traits = tuple(dict.fromkeys(name for group in ask.groups for name in (*group.required, *group.forbidden)))
    root = _node(world, slot, ProviderId(world.host_ids[slot]), world.names[slot], classes, traits)
    for name, amount in ask.resources.items():
        if name in root.free:
            root.free[name] -= amount
    nodes = [root, *(_node(nested, each, nested.ids[each], nested.names[each], classes, traits) for each in below)]
    place = {node.id: index for index, node in enumerate(nodes)}
    for index, each in enumerate(below, start=1):
        parent = nested.parents[each]
        nodes[index].parent = ROOT if parent is None else place.get(parent, ROOT)
    for node in nodes[1:]:
        nodes[node.parent].leaf = False
    return nodes


def _node(
    numbers: Numbers, slot: int, id: ProviderId, name: str, classes: Sequence[str], traits: Sequence[str]
) -> Node:
    free: dict[str, int] = {}
    portions: list[tuple[str, int, int, int]] = []
    for resource in classes:
        capacity = numbers.capacity.get(resource)
        if capacity is not None and capacity[slot] > 0:
            units = numbers.units[resource]
            free[resource] = int(numbers.free[resource][slot])
            portions.append((resource, int(units.minimum[slot]), int(units.maximum[slot]), int(units.step[slot])))
    words = [int(word) for word in numbers.trait_bitmap[:, slot]]
    bits = numbers.trait_bits
    has = (
        each
        for each in traits
        if (bit := bits.get(each)) is not None and words[bit // WORD_BITS] >> bit % WORD_BITS & 1
    )
    return Node(id, name, ROOT, free, tuple(portions), frozenset(has))


def shape(nodes: Sequence[Node], *, named: bool) -> object:
    """Equal for hosts on which the search goes the same way."""
    return tuple(
        (node.parent, node.portions, tuple(node.free.items()), node.traits, node.device if named else "")
        for node in nodes
    )


@dataclass(slots=True)
class Search:
    """All ways to serve the groups of an ask from one tree; what is said of them is in `Search.ways`."""

    ask: Ask
    nodes: list[Node]
    every: bool = False
    """Providers that cannot be told apart are different ways: for a rival who took one of them, they are."""
    exhausted: bool = False
    """It was given up: there may be ways that were not found."""
    _tries: int = 0
    _groups: list[RequestGroup] = field(default_factory=list)
    _options: list[list[int]] = field(default_factory=list)
    _judged: list[list[tuple[str, ...]]] = field(default_factory=list)
    _open: list[frozenset[str]] = field(default_factory=list)
    _kinds: list[int] = field(default_factory=list)
    _serving: list[set[str]] = field(default_factory=list)
    _chosen: dict[str, int] = field(default_factory=dict)
    _dead: set[object] = field(default_factory=set)

    def ways(self) -> Iterator[Providers]:
        """Group id → provider, one way after the other; nothing when the groups cannot be served together."""
        options = {
            group.id: [n for n, node in enumerate(self.nodes) if node.serves(group)] for group in self.ask.groups
        }
        if not all(options.values()):
            return
        self._order(options)
        self._tell_apart()
        yield from self._place(0)

    # -------------------------------------------------------------------------------------------------- preparing

    def _order(self, options: dict[str, list[int]]) -> None:
        """What belongs together is placed together, and the hardest first."""
        sets = (*self.ask.same_subtree, *self.ask.same_device)
        by_id = {group.id: group for group in self.ask.groups}
        of = {id: next((each for each in sets if id in each), (id,)) for id in by_id}
        hardest = {id: min(len(options[each]) for each in of[id] if each in options) for id in by_id}
        order = sorted(by_id, key=lambda id: (hardest[id], of[id], len(options[id]), id))
        self._groups = [by_id[id] for id in order]
        self._options = [options[id] for id in order]
        depth = {id: index for index, id in enumerate(order)}
        for index in range(len(order)):
            ends = [each for each in sets if max((depth[id] for id in each if id in depth), default=-1) == index]
            self._judged.append(ends)
            running = [
                e
                for e in sets
                if any(id in depth and depth[id] < index for id in e)
                and any(id in depth and depth[id] >= index for id in e)
            ]
            self._open.append(frozenset(id for each in running for id in each))

    def _tell_apart(self) -> None:
        """Nodes of one kind are alike for every group: siblings without children, with the same traits and portions."""
        known: dict[object, int] = {}
        for index, node in enumerate(self.nodes):
            name = node.device if self.ask.same_device else ""
            key: object = (node.parent, node.portions, node.traits, name) if node.leaf and index != ROOT else index
            self._kinds.append(known.setdefault(key, len(known)))
        self._serving = [set() for _ in self.nodes]

    # --------------------------------------------------------------------------------------------------- choosing

    def _place(self, depth: int) -> Iterator[Providers]:
        if depth == len(self._groups):
            yield {id: self.nodes[index].id for id, index in self._chosen.items()}
            return
        states = self._states(depth)
        state = (depth, *sorted(states))
        if state in self._dead:
            return
        group, led_on = self._groups[depth], False
        for index in self._preferred(depth, states):
            self._tries += 1
            if self._tries > TRIES_MAX:
                self.exhausted = True
                return
            self._take(group, index, +1)
            if all(self._agree(each) for each in self._judged[depth]):
                for way in self._place(depth + 1):
                    led_on = True
                    yield way
            self._take(group, index, -1)
            if self.exhausted:
                return
        if not led_on:
            self._dead.add(state)

    def _states(self, depth: int) -> list[tuple[object, ...]]:
        """What may still matter of each node: its kind, what is free, and what it serves of that which is not yet judged."""
        watched, isolate = self._open[depth], self.ask.group_policy == "isolate"
        return [
            (kind, tuple(node.free.values()), isolate and bool(serving), tuple(sorted(serving & watched)))
            for kind, node, serving in zip(self._kinds, self.nodes, self._serving, strict=True)
        ]

    def _preferred(self, depth: int, states: list[tuple[object, ...]]) -> list[int]:
        """The emptiest first, one of those that are alike; equal ones in an order that differs from request to request."""
        group = self._groups[depth]
        found: dict[object, list[int]] = {}
        isolate = self.ask.group_policy == "isolate"
        for index in self._options[depth]:
            free = self.nodes[index].free
            if (isolate and self._serving[index]) or any(free[n] < amount for n, amount in group.resources.items()):
                continue
            found.setdefault(index if self.every else states[index], []).append(index)
        turn = self.ask.seed
        firsts = [alike[turn % len(alike)] for alike in found.values()]
        main = next(iter(group.resources), None)
        if main is None:
            return firsts
        return sorted(firsts, key=lambda index: (-self.nodes[index].free[main], (index + turn) % len(self.nodes)))

    def _take(self, group: RequestGroup, index: int, sign: int) -> None:
        free = self.nodes[index].free
        for name, amount in group.resources.items():
            free[name] -= sign * amount
        if sign > 0:
            self._chosen[group.id] = index
            self._serving[index].add(group.id)
        else:
            del self._chosen[group.id]
            self._serving[index].discard(group.id)

    def _agree(self, together: tuple[str, ...]) -> bool:
        """One of the providers is at or above all the others; or, for groups of one device, all stand for one interface."""
        indexes = {self._chosen[id] for id in together if id in self._chosen}
        if together in self.ask.same_device:
            return len({self.nodes[index].device for index in indexes}) <= 1
        common = set.intersection(*(self._upwards(index) for index in indexes)) if indexes else set()
        return len(indexes) <= 1 or bool(common & indexes)

    def _upwards(self, index: int) -> set[int]:
        found = {index}
        while index != ROOT:
            index = self.nodes[index].parent
            found.add(index)
        return found


# ------------------------------------------------------------------------------------------------------------ why

APART = "too few devices to keep the groups apart (group_policy isolate)"
SUBTREE = "not enough in any one part of its devices for what belongs together (same_subtree)"
DEVICE = "no virtual function free on a device with the bandwidth"
BOTH = "the groups cannot be kept apart (group_policy isolate) and in one part of its devices (same_subtree)"
GAVE_UP = "too many combinations of devices and groups"


def cause_of(ask: Ask, nodes: list[Node]) -> str:
    """Why there is no way: the demand without which there would be one."""
    relaxed = msgspec.structs.replace
    without_device = relaxed(ask, same_device=())
    if ask.same_device and _some(without_device, nodes):
        return DEVICE
    apart, together = relaxed(without_device, group_policy="none"), relaxed(without_device, same_subtree=())
    if ask.group_policy == "isolate" and _some(apart, nodes):
        return APART
    if ask.same_subtree and _some(together, nodes):
        return SUBTREE
    both = relaxed(apart, same_subtree=())
    return BOTH if both not in (apart, together) and _some(both, nodes) else TOGETHER


def _some(ask: Ask, nodes: list[Node]) -> bool:
    fresh = [Node(n.id, n.name, n.parent, dict(n.free), n.portions, n.traits, n.leaf) for n in nodes]
    return next(Search(ask, fresh).ways(), None) is not None


def words_of(ask: Ask, nodes: Sequence[Node], cause: str) -> str:
    """The cause, what is asked of single devices, and what is free on them."""
    said: list[str] = []
    for name in dict.fromkeys(name for group in ask.groups for name in group.resources):
        asked = sorted((g.resources[name] for g in ask.groups if name in g.resources), reverse=True)
        free = sorted((node.free[name] for node in nodes if name in node.free), reverse=True)
        said.append(f"{name}: {' + '.join(map(str, asked))} asked, {', '.join(map(str, free))} free")
    return f"{cause}: " + "; ".join(said)
