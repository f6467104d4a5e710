"""Reads one host's tree and the providers that share with it from the World's columns, for the search of provider trees.

A host has few providers and a request few groups, so the tree is read into plain numbers, once for each host.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from moorage.model.ids import ProviderId
from moorage.model.provider_tree import GroupDemand, Preference, ProviderTree, SearchRules, device_of
from moorage.model.request_groups import SRIOV_NET_VF, RequestGroup
from moorage.model.tree_search import TreeSearch
from moorage.model.world import Ask, World
from moorage.scheduler.columns import WORD_BITS, Numbers
from moorage.scheduler.filters.devices import TOGETHER

TRIES_MAX = 20_000
"""Limit of providers that are tried on one host: far more than any tree of devices needs."""

Providers = dict[str, ProviderId]
"""Group id → the provider that serves it."""


class NodeStock(NamedTuple):
    """One inventory of a node, reduced by what the ask takes from the host itself."""

    used: int
    cap: int
    min_unit: int
    max_unit: int
    step: int


@dataclass(slots=True, eq=False)
class Node:
    """One provider of a host's tree, or one that shares with it."""

    uuid: ProviderId
    name: str
    root: ProviderId
    parent: ProviderId | None
    traits: frozenset[str]
    """Those of its traits that the groups name."""
    stocks: dict[str, NodeStock]
    """Its inventories of the classes that the groups name."""
    aggregates: frozenset[str] = frozenset()
    """Always empty: the groups of an ask name no aggregates."""


@dataclass(frozen=True, slots=True)
class HostTree:
    """The providers that may serve the groups of an ask on one host."""

    members: Sequence[Node]
    """The host first, then the providers below it in the order of ids."""
    outside: Sequence[Node]
    parents: dict[ProviderId, ProviderId | None]

    @property
    def nodes(self) -> Sequence[Node]:
        return [*self.members, *self.outside]

    def shape(self, *, named: bool) -> object:
        """Return a key that is equal for hosts on which the search has the same result; `named`: it uses names of interfaces too."""
        place = {node.uuid: index for index, node in enumerate(self.nodes)}
        roots = {node.root: place.setdefault(node.root, len(place)) for node in self.nodes}
        outside = tuple(node.uuid for node in self.outside)
        members = tuple(
            (
                None if node.parent is None else place.get(node.parent),
                tuple(node.stocks.items()),
                node.traits,
                (roots[node.root], device_of(node)[1]) if named else None,
            )
            for node in self.nodes
        )
        return members, outside


def read_tree(ask: Ask, world: World, slot: int) -> HostTree:
    """Read one host, the providers below it and those that share with it, as far as the groups of the ask need them."""
    nested, host = world.nested, ProviderId(world.host_ids[slot])
    below = sorted(nested.below.get(world.host_ids[slot], ()), key=lambda each: nested.ids[each])
    classes = tuple(dict.fromkeys(name for group in ask.groups for name in group.resources))
    traits = tuple(dict.fromkeys(name for group in ask.groups for name in (*group.required, *group.forbidden)))

    def node(numbers: Numbers, at: int, uuid: ProviderId, name: str, root: ProviderId) -> Node:
        return Node(uuid, name, root, None, _traits(numbers, at, traits), _stocks(numbers, at, classes))

    top = node(world, slot, host, world.names[slot], host)
    for name, amount in ask.resources.items():
        if (stock := top.stocks.get(name)) is not None:
            top.stocks[name] = stock._replace(used=stock.used + amount)
    members = [top, *(node(nested, each, nested.ids[each], nested.names[each], host) for each in below)]
    for each, member in zip(below, members[1:], strict=True):
        member.parent = nested.parents[each] or host
    parents: dict[ProviderId, ProviderId | None] = {member.uuid: member.parent for member in members}
    outside: list[Node] = []
    for shared in world.sharing:
        if shared.hosts[slot]:
            numbers: Numbers = nested if shared.nested else world
            other = node(numbers, shared.slot, shared.id, shared.name, shared.root)
            other.parent = shared.above[0] if shared.above else None
            parents |= zip((shared.id, *shared.above), (*shared.above, None), strict=True)
            outside.append(other)
    return HostTree(members, outside, parents)


def _stocks(numbers: Numbers, at: int, classes: Sequence[str]) -> dict[str, NodeStock]:
    stocks: dict[str, NodeStock] = {}
    for resource in classes:
        column = numbers.capacity.get(resource)
        if column is not None and (cap := int(column[at])) > 0:
            units = numbers.units[resource]
            portions = int(units.minimum[at]), int(units.maximum[at]), int(units.step[at])
            stocks[resource] = NodeStock(cap - int(numbers.free[resource][at]), cap, *portions)
    return stocks


def _traits(numbers: Numbers, at: int, traits: Sequence[str]) -> frozenset[str]:
    words, bits = [int(word) for word in numbers.trait_bitmap[:, at]], numbers.trait_bits
    return frozenset(
        each
        for each in traits
        if (bit := bits.get(each)) is not None and words[bit // WORD_BITS] >> bit % WORD_BITS & 1
    )


# -------------------------------------------------------------------------------------------------------- search


def _demand(group: RequestGroup, host: ProviderId) -> GroupDemand:
    """The demand of one group; a virtual function must be one of the host's own, never of a sharing provider."""
    return GroupDemand(
        group.id,
        group.resources,
        [frozenset((trait,)) for trait in group.required],
        set(group.forbidden),
        in_tree=host if SRIOV_NET_VF in group.resources else None,
    )


def search(ask: Ask, tree: HostTree, *, every: bool = False) -> TreeSearch:
    """Search the ways to serve the groups of the ask; `every`: also ways that differ only in which of equal providers is taken."""
    root = tree.members[0]
    rules = SearchRules(
        group_policy=ask.group_policy,
        same_subtree=_known(ask.same_subtree, ask),
        same_device=_known(ask.same_device, ask),
        max_unit_of_sums=False,
    )
    return TreeSearch(
        ProviderTree(root, tree.members, tree.outside, tree.parents.get),
        [_demand(group, root.uuid) for group in ask.groups],
        rules,
        prefer=Preference(ask.seed, every),
        tries_max=TRIES_MAX,
    )


def _known(sets: Sequence[Sequence[str]], ask: Ask) -> tuple[frozenset[str], ...]:
    ids = frozenset(group.id for group in ask.groups)
    return tuple(members for each in sets if (members := ids.intersection(each)))


def ways(searched: TreeSearch) -> Iterator[Providers]:
    """Yield the results of a search as group id → provider."""
    for answer in searched.answers():
        yield {group: provider for group, (provider,) in answer.mappings.items()}


# ------------------------------------------------------------------------------------------------------------ why

APART = "too few devices to keep the groups apart (group_policy isolate)"
SUBTREE = "not enough in any one part of its devices for what belongs together (same_subtree)"
DEVICE = "no virtual function free on a device with the bandwidth"
BOTH = "the groups cannot be kept apart (group_policy isolate) and in one part of its devices (same_subtree)"
GAVE_UP = "too many combinations of devices and groups"


def cause_of(ask: Ask, tree: HostTree) -> str:
    """Return why there is no way: the demand without which there would be one."""
    relaxed = msgspec.structs.replace
    without_device = relaxed(ask, same_device=())
    if ask.same_device and _possible(without_device, tree):
        return DEVICE
    apart, together = relaxed(without_device, group_policy="none"), relaxed(without_device, same_subtree=())
    if ask.group_policy == "isolate" and _possible(apart, tree):
        return APART
    if ask.same_subtree and _possible(together, tree):
        return SUBTREE
    both = relaxed(apart, same_subtree=())
    return BOTH if both not in (apart, together) and _possible(both, tree) else TOGETHER


def _possible(ask: Ask, tree: HostTree) -> bool:
    return next(search(ask, tree).answers(), None) is not None


def describe(ask: Ask, tree: HostTree, cause: str) -> str:
    """Describe the cause with the amounts that are asked of single devices, and those that are free on them."""
    parts: list[str] = []
    for name in dict.fromkeys(name for group in ask.groups for name in group.resources):
        wanted = sorted((g.resources[name] for g in ask.groups if name in g.resources), reverse=True)
        stocks = [node.stocks[name] for node in tree.nodes if name in node.stocks]
        free = sorted((stock.cap - stock.used for stock in stocks), reverse=True)
        parts.append(f"{name}: {' + '.join(map(str, wanted))} asked, {', '.join(map(str, free))} free")
    return f"{cause}: " + "; ".join(parts)
