"""Allocation candidates, found lazily: per tree a depth-first search with capacity pruning, round-robin over the trees.

Never a product: with a limit the search stops as soon as it has enough, and a branch ends where a group has no place left.
The set of answers is Placement's: the group without a suffix may be spread over the tree and over providers that share with it
by aggregate (MISC_SHARES_VIA_AGGREGATE); its traits are met together, its aggregates by the provider or by the tree's root.
A group with a suffix is one provider's, which must have all that is asked itself.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from moorage.model.ids import ProviderId
from moorage.placement.known import Provider
from moorage.placement.world import Picture

SHARES = "MISC_SHARES_VIA_AGGREGATE"
CANDIDATES_MAX = 100_000
TRIED_PER_TREE_MAX = 2_000_000

Key = tuple[ProviderId, str]


@dataclass
class Group:
    """What is asked together."""

    suffix: str
    resources: dict[str, int] = field(default_factory=dict)
    required: list[frozenset[str]] = field(default_factory=list)
    forbidden: set[str] = field(default_factory=set)
    member_of: list[frozenset[str]] = field(default_factory=list)
    not_member_of: set[str] = field(default_factory=set)
    in_tree: str | None = None


@dataclass(frozen=True)
class Wide:
    """What concerns the request as a whole."""

    limit: int | None = None
    group_policy: str | None = None
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtree: Sequence[frozenset[str]] = ()
    nested: bool = True


@dataclass
class Candidate:
    """Amounts by provider and class, and which providers serve which group."""

    amounts: dict[Key, int]
    mappings: dict[str, frozenset[str]]

    def key(self) -> object:
        return frozenset(self.amounts.items()), frozenset(self.mappings.items())


def find(picture: Picture, groups: Sequence[Group], wide: Wide) -> list[Candidate]:
    """All candidates, or `wide.limit` of them, from a random start."""
    most = min(wide.limit or CANDIDATES_MAX, CANDIDATES_MAX)
    sharing = picture.sharing(SHARES)
    found: dict[object, Candidate] = {}
    waiting: list[Iterator[Candidate]] = []
    for root in _roots(picture, groups, wide):
        if len(found) >= most:
            break
        if len(picture.trees[root.uuid]) == 1 and sharing.keys().isdisjoint(root.aggregates):
            if (alone := _alone(root, groups, wide)) is not None:
                found[root.uuid] = alone
            continue
        search = _Tree(picture, root, groups, wide, sharing).search()
        if _take(search, found):
            waiting.append(search)
    while waiting and len(found) < most:
        still = []
        for search in waiting:
            if len(found) >= most:
                break
            if _take(search, found):
                still.append(search)
        waiting = still
    return list(found.values())[:most]


def find_alone(picture: Picture, groups: Sequence[Group], wide: Wide) -> list[Provider] | None:
    """The same answer where no provider has children or shares and one group is asked: each provider by itself.

    None: it is not so, and `find` must be asked.  Most hosts of most clouds are like that, and one look at each is enough.
    """
    if len(groups) != 1 or len(picture.trees) != len(picture.providers) or picture.sharing(SHARES):
        return None
    group = groups[0]
    if group.in_tree is not None or wide.same_subtree:
        return None
    plain = not (group.required or group.forbidden or group.member_of or group.not_member_of)
    rooted = bool(wide.root_required or wide.root_forbidden)
    most = min(wide.limit or CANDIDATES_MAX, CANDIDATES_MAX)
    providers = list(picture.providers.values())
    if wide.limit is not None and len(providers) > 1:
        start = random.randrange(len(providers))
        providers = providers[start:] + providers[:start]
    asked = tuple(group.resources.items())
    found: list[Provider] = []
    for root in providers:
        stocks = root.stocks
        for resource, amount in asked:
            stock = stocks.get(resource)
            if stock is None or stock.used + amount > stock.cap or amount > stock.max_unit:
                break
            if amount < stock.min_unit or amount % stock.step:
                break
        else:
            if rooted and not (wide.root_required <= root.traits and not wide.root_forbidden & root.traits):
                continue
            if plain or serves(root, group):
                found.append(root)
                if len(found) == most:
                    break
    return found


def _alone(root: Provider, groups: Sequence[Group], wide: Wide) -> Candidate | None:
    """The only candidate of a provider without children or sharing neighbours: most hosts of most clouds."""
    if root.uuid != root.root or (wide.group_policy == "isolate" and sum(1 for g in groups if g.suffix) > 1):
        return None
    if any(group.in_tree not in (None, root.uuid) for group in groups):
        return None
    amounts: dict[Key, int] = {}
    for group in groups:
        if not serves(root, group):
            return None
        for resource, amount in group.resources.items():
            key = root.uuid, resource
            amounts[key] = amounts.get(key, 0) + amount
    if len(groups) > 1:
        for (_, resource), amount in amounts.items():
            stock = root.stocks[resource]
            if stock.used + amount > stock.cap or amount > stock.max_unit:
                return None
    here = frozenset([root.uuid])
    return Candidate(amounts, {group.suffix: here for group in groups})


def serves(provider: Provider, group: Group) -> bool:
    """One provider meets everything a group asks, by itself."""
    stocks = provider.stocks
    for resource, amount in group.resources.items():
        stock = stocks.get(resource)
        if stock is None or stock.used + amount > stock.cap or amount > stock.max_unit:
            return False
        if amount < stock.min_unit or amount % stock.step:
            return False
    return (
        all(each & provider.traits for each in group.required)
        and not (group.forbidden and group.forbidden & provider.traits)
        and all(each & provider.aggregates for each in group.member_of)
        and not (group.not_member_of and group.not_member_of & provider.aggregates)
    )


def _take(search: Iterator[Candidate], found: dict[object, Candidate]) -> bool:
    one = next(search, None)
    if one is None:
        return False
    found.setdefault(one.key(), one)
    return True


def _roots(picture: Picture, groups: Sequence[Group], wide: Wide) -> Iterator[Provider]:
    """The anchors, from a random place on when there is a limit."""
    tree = next((group.in_tree for group in groups if group.in_tree is not None and not group.suffix), None)
    if tree is not None:
        member = picture.providers.get(ProviderId(tree))
        anchors = [] if member is None else [member.root]
    else:
        anchors = list(picture.trees)
        if wide.limit is not None and len(anchors) > 1:
            start = random.randrange(len(anchors))
            anchors = anchors[start:] + anchors[:start]
    for anchor in anchors:
        root = picture.providers.get(anchor)
        if root is not None and wide.root_required <= root.traits and not wide.root_forbidden & root.traits:
            yield root


def room(provider: Provider, resource: str, amount: int) -> bool:
    """Whether the provider could give this portion by itself."""
    stock = provider.stocks.get(resource)
    return (
        stock is not None
        and stock.used + amount <= stock.cap
        and stock.min_unit <= amount <= stock.max_unit
        and amount % stock.step == 0
    )


@dataclass
class _Slot:
    """One choice to make: a provider for one class of the spread group, or for a whole group with a suffix."""

    suffix: str
    amounts: Mapping[str, int]
    options: list[Provider]


class _Tree:
    """The search below one anchor."""

    def __init__(
        self,
        picture: Picture,
        root: Provider,
        groups: Sequence[Group],
        wide: Wide,
        sharing: Mapping[str, list[Provider]],
    ) -> None:
        self._picture = picture
        self._root = root
        self._wide = wide
        self._groups = {group.suffix: group for group in groups}
        members = list(picture.trees[root.uuid].values())
        aggregates = {aggregate for member in members for aggregate in member.aggregates}
        shared = {p.uuid: p for aggregate in aggregates & sharing.keys() for p in sharing[aggregate]}
        self._outside = [p for p in shared.values() if p.root != root.uuid]
        self._members = members

    def search(self) -> Iterator[Candidate]:
        """Every way to serve all groups from here."""
        slots = self._slots()
        if slots is None:
            return
        self._tries = 0
        yield from self._choose(slots, 0, {}, {}, set())

    def _slots(self) -> list[_Slot] | None:
        slots: list[_Slot] = []
        for suffix, group in self._groups.items():
            if suffix:
                options = [p for p in self._reachable(group) if serves(p, group)]
                slots.append(_Slot(suffix, group.resources, options))
                continue
            for resource, amount in group.resources.items():
                options = [p for p in self._reachable(group) if room(p, resource, amount) and self._may_help(p, group)]
                slots.append(_Slot("", {resource: amount}, options))
        if any(not slot.options for slot in slots):
            return None
        slots.sort(key=lambda slot: (slot.suffix != "", len(slot.options)))
        return slots

    def _reachable(self, group: Group) -> list[Provider]:
        """The tree, and who shares with it; `in_tree` narrows to one tree."""
        if group.in_tree is None:
            return self._members + self._outside
        member = self._picture.providers.get(ProviderId(group.in_tree))
        root = None if member is None else member.root
        if not group.suffix:
            return self._members if root == self._root.uuid else []
        return [p for p in self._members + self._outside if p.root == root]

    def _may_help(self, provider: Provider, group: Group) -> bool:
        """The spread group: aggregates of the root span the tree, not who shares with it; forbidden traits count for each."""
        root = self._root.aggregates
        inside = provider.root == self._root.uuid and all(each & root for each in group.member_of)
        return (
            not group.forbidden & provider.traits
            and (inside or all(each & provider.aggregates for each in group.member_of))
            and not group.not_member_of & (provider.aggregates | root)
        )

    def _choose(
        self,
        slots: list[_Slot],
        index: int,
        amounts: dict[Key, int],
        serving: dict[str, set[ProviderId]],
        taken: set[ProviderId],
    ) -> Iterator[Candidate]:
        if index == len(slots):
            if self._together(serving) and self._flat(amounts):
                mappings = {suffix: frozenset(uuids) for suffix, uuids in serving.items()}
                yield Candidate(dict(amounts), mappings)  # type: ignore[arg-type]
            return
        slot = slots[index]
        if slot.suffix and "" in serving and not self._spread_traits(serving[""]):
            return
        isolate = bool(slot.suffix) and self._wide.group_policy == "isolate"
        for provider in slot.options:
            self._tries += 1
            if self._tries > TRIED_PER_TREE_MAX:
                return
            if (isolate and provider.uuid in taken) or not self._fits(provider, slot, amounts):
                continue
            more = dict(amounts)
            for resource, amount in slot.amounts.items():
                more[provider.uuid, resource] = more.get((provider.uuid, resource), 0) + amount
            here = serving | {slot.suffix: serving.get(slot.suffix, set()) | {provider.uuid}}
            yield from self._choose(slots, index + 1, more, here, taken | {provider.uuid} if slot.suffix else taken)

    def _fits(self, provider: Provider, slot: _Slot, amounts: Mapping[Key, int]) -> bool:
        """The sum over all groups stays within capacity and the largest portion."""
        for resource, amount in slot.amounts.items():
            total = amounts.get((provider.uuid, resource), 0) + amount
            stock = provider.stocks[resource]
            if stock.used + total > stock.cap or total > stock.max_unit:
                return False
        return True

    def _spread_traits(self, uuids: set[ProviderId]) -> bool:
        group = self._groups[""]
        if not group.required:
            return True
        together = frozenset().union(*(self._picture.providers[uuid].traits for uuid in uuids))
        return all(each & together for each in group.required)

    def _together(self, serving: Mapping[str, set[ProviderId]]) -> bool:
        """The spread group's traits, and `same_subtree`: one of the providers is at or above all the others."""
        if "" in serving and not self._spread_traits(serving[""]):
            return False
        for suffixes in self._wide.same_subtree:
            uuids = {uuid for suffix in suffixes for uuid in serving.get(suffix, ())}
            common = set.intersection(*(self._upwards(uuid) for uuid in uuids)) if uuids else uuids
            if len(uuids) > 1 and not common & uuids:
                return False
        return True

    def _upwards(self, uuid: ProviderId) -> set[ProviderId]:
        found = {uuid}
        parent = self._picture.providers[uuid].parent
        while parent is not None and parent not in found:
            found.add(parent)
            parent = self._picture.providers[parent].parent
        return found

    def _flat(self, amounts: Mapping[Key, int]) -> bool:
        """Before 1.29: at most one provider of each tree."""
        if self._wide.nested:
            return True
        uuids = {uuid for uuid, _ in amounts}
        return len({self._picture.providers[uuid].root for uuid in uuids}) == len(uuids)
