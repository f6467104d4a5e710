"""The search below one anchor: every way to serve all groups from a tree and from whoever shares with it, one at a time.

A depth-first search over slots: one choice for each class of the group that may be spread, one for each group with a suffix.
It gives its answers lazily and with little work between two of them:

- one set of running sums is changed and changed back; nothing is copied before there is an answer;
- what can be judged early is: a tree that lacks a class or a trait is not searched, `same_subtree` as soon as it can no longer be met;
- a state from which nothing was found is remembered, and no state like it is tried again.  Two states are alike when they differ
  only in which of several equal providers was taken.  Eight equal children that are one too few for nine equal groups are found out
  after 9 × 8 looks, not after 8 factorial.

So the work between two answers grows with groups × distinct children, not with the number of combinations.  Placing unequal
amounts into unequal children is bin packing all the same: `TRIES_MAX` ends what no memory of failures can.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from moorage.model.ids import ProviderId
from moorage.placement.cache.cache import ProviderCache
from moorage.placement.cache.provider import Provider

TRIES_MAX = 500_000
"""Of one tree."""

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
class AllocationCandidate:
    """Amounts by provider and class, and which providers serve which group."""

    amounts: dict[Key, int]
    mappings: dict[str, frozenset[str]]

    def key(self) -> object:
        return frozenset(self.amounts.items()), frozenset(self.mappings.items())


@dataclass
class Work:
    """What a search did: providers looked at for a slot, in all trees."""

    tries: int = 0


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
    amounts: Sequence[tuple[str, int]]
    options: list[Provider]
    subtrees: Sequence[frozenset[str]] = ()
    """The `same_subtree` sets it belongs to."""


class Tree:
    """One anchor, what is below it, and who shares with it."""

    def __init__(
        self,
        picture: ProviderCache,
        root: Provider,
        groups: Sequence[Group],
        wide: Wide,
        sharing: Mapping[str, list[Provider]],
        work: Work,
    ) -> None:
        self._picture = picture
        self._root = root
        self._wide = wide
        self._groups = groups
        self._spread = next((group for group in groups if not group.suffix), None)
        self._work = work
        self._members = list(picture.trees[root.uuid].values())
        self.outside: list[Provider] = []
        """Sharing providers of other trees."""
        self.common = False
        """Whether another tree may give the same answer: all of it from who shares with others, here or there."""
        if sharing:
            aggregates = {aggregate for member in self._members for aggregate in member.aggregates}
            shared = {p.uuid: p for aggregate in aggregates & sharing.keys() for p in sharing[aggregate]}
            self.outside = [p for p in shared.values() if p.root != root.uuid]
            self.common = bool(shared)
        self._sums: dict[Key, int] = {}
        self._taken: set[ProviderId] = set()
        self._chosen: list[Provider] = []
        self._dead: set[object] = set()
        self._kinds: dict[ProviderId, object] = {}

    def search(self) -> Iterator[AllocationCandidate]:
        """Every way to serve all groups from here."""
        slots = self._slots()
        self._began = self._work.tries
        if slots is not None:
            yield from self._choose(slots)

    # ------------------------------------------------------------------------------------------------ the slots

    def _slots(self) -> list[_Slot] | None:
        """What is to be chosen, in the order of choosing: `same_subtree` first, then the spread group; None: it cannot be."""
        slots: list[_Slot] = []
        for group in self._groups:
            reachable = self._reachable(group)
            if group.suffix:
                options = [p for p in reachable if serves(p, group)]
                subtrees = [each for each in self._wide.same_subtree if group.suffix in each]
                slots.append(_Slot(group.suffix, tuple(group.resources.items()), options, subtrees))
                if not options:
                    return None
                continue
            if not all(any(each & p.traits for p in reachable) for each in group.required):
                return None
            for resource, amount in group.resources.items():
                options = [p for p in reachable if room(p, resource, amount) and self._may_help(p, group)]
                if not options:
                    return None
                slots.append(_Slot("", ((resource, amount),), options))
        slots.sort(key=lambda slot: (not slot.subtrees, slot.suffix != "", len(slot.options)))
        return slots

    def _reachable(self, group: Group) -> list[Provider]:
        """The tree, and who shares with it; `in_tree` narrows to one tree."""
        if group.in_tree is None:
            return self._members + self.outside if self.outside else self._members
        member = self._picture.providers.get(ProviderId(group.in_tree))
        root = None if member is None else member.root
        if not group.suffix:
            return self._members if root == self._root.uuid else []
        return [p for p in self._members + self.outside if p.root == root]

    def _may_help(self, provider: Provider, group: Group) -> bool:
        """The spread group: aggregates of the root span the tree, not who shares with it; forbidden traits count for each."""
        if group.forbidden and group.forbidden & provider.traits:
            return False
        if not group.member_of and not group.not_member_of:
            return True
        root = self._root.aggregates
        inside = provider.root == self._root.uuid and all(each & root for each in group.member_of)
        return (inside or all(each & provider.aggregates for each in group.member_of)) and not (
            group.not_member_of & (provider.aggregates | root)
        )

    # ----------------------------------------------------------------------------------------------- the search

    def _choose(self, slots: list[_Slot]) -> Iterator[AllocationCandidate]:
        """Depth first, without recursion: `at[level]` is the next option of each slot, `fruitful` whether it led to an answer."""
        depth, level = len(slots), 0
        at = [0] * (depth + 1)
        fruitful = [False] * (depth + 1)
        while level >= 0:
            if level == depth:
                fruitful = [True] * (depth + 1)
                yield self._candidate(slots)
            elif self._advance(slots, level, at):
                level += 1
                if level < depth and not (self._dead and self._state(slots, level) in self._dead):
                    at[level], fruitful[level] = 0, False
                    continue
                if level == depth:
                    continue
            elif not fruitful[level]:
                if self._work.tries - self._began > TRIES_MAX:
                    return
                self._dead.add(self._state(slots, level))
            level -= 1
            if level >= 0:
                self._give(slots[level])

    def _advance(self, slots: list[_Slot], level: int, at: list[int]) -> bool:
        """Take the slot's next provider that fits; False: there is none left."""
        slot = slots[level]
        options = slot.options
        isolate = bool(slot.suffix) and self._wide.group_policy == "isolate"
        for index in range(at[level], len(options)):
            self._work.tries += 1
            provider = options[index]
            if (isolate and provider.uuid in self._taken) or not self._fits(provider, slot):
                continue
            self._take(provider, slot)
            if self._hopeful(slots, level):
                at[level] = index + 1
                return True
            self._give(slot)
        return False

    def _fits(self, provider: Provider, slot: _Slot) -> bool:
        """The sum over all groups stays within capacity and the largest portion; before 1.29 one provider of each tree."""
        for resource, amount in slot.amounts:
            have = self._sums.get((provider.uuid, resource))
            if have is not None:
                stock = provider.stocks[resource]
                if stock.used + have + amount > stock.cap or have + amount > stock.max_unit:
                    return False
        return self._wide.nested or all(p.root != provider.root or p is provider for p in self._chosen)

    def _take(self, provider: Provider, slot: _Slot) -> None:
        self._chosen.append(provider)
        for resource, amount in slot.amounts:
            key = provider.uuid, resource
            self._sums[key] = self._sums.get(key, 0) + amount
        if slot.suffix and self._wide.group_policy == "isolate":
            self._taken.add(provider.uuid)

    def _give(self, slot: _Slot) -> None:
        provider = self._chosen.pop()
        for resource, amount in slot.amounts:
            key = provider.uuid, resource
            left = self._sums[key] - amount
            if left:
                self._sums[key] = left
            else:
                del self._sums[key]
        if slot.suffix:
            self._taken.discard(provider.uuid)

    def _hopeful(self, slots: list[_Slot], level: int) -> bool:
        """Whether what was just taken can still become an answer, as far as traits and subtrees say."""
        slot = slots[level]
        if slot.subtrees:
            return all(self._common(slots, level, each) for each in slot.subtrees)
        if not slot.suffix and self._spread is not None and self._spread.required:
            last = level + 1 == len(slots) or bool(slots[level + 1].suffix)
            return not last or len(self._met(slots)) == len(self._spread.required)
        return True

    def _met(self, slots: list[_Slot]) -> frozenset[int]:
        """Which of the spread group's required traits its providers have together."""
        assert self._spread is not None
        serving = [p for p, slot in zip(self._chosen, slots, strict=False) if not slot.suffix]
        together: frozenset[str] = frozenset().union(*(p.traits for p in serving))
        return frozenset(n for n, each in enumerate(self._spread.required) if each & together)

    def _common(self, slots: list[_Slot], level: int, suffixes: frozenset[str]) -> bool:
        """`same_subtree`: one of its providers is at or above all the others, or one that is to come could be."""
        chosen = {p.uuid for p, slot in zip(self._chosen, slots, strict=False) if slot.suffix in suffixes}
        above = set.intersection(*(self._upwards(uuid) for uuid in chosen))
        if above & chosen:
            return True
        to_come = (slot for slot in slots[level + 1 :] if slot.suffix in suffixes)
        return any(p.uuid in above for slot in to_come for p in slot.options)

    def _upwards(self, uuid: ProviderId) -> set[ProviderId]:
        found = {uuid}
        parent = self._picture.providers[uuid].parent
        while parent is not None and parent not in found:
            found.add(parent)
            parent = self._picture.providers[parent].parent
        return found

    # ------------------------------------------------------------------------------------------- what was tried

    def _state(self, slots: list[_Slot], level: int) -> object:
        """All that decides whether the slots from here on can be served; equal providers are not told apart.

        While `same_subtree` is open it matters who is below whom, so there every provider is itself.
        """
        itself = bool(slots[level].subtrees)
        sums: dict[ProviderId, list[tuple[str, int]]] = {}
        for (uuid, resource), amount in self._sums.items():
            sums.setdefault(uuid, []).append((resource, amount))
        touched: dict[object, int] = {}
        for provider in {p.uuid: p for p in self._chosen}.values():
            uuid = provider.uuid
            kind = uuid if itself else self._kind(provider, slots)
            each = kind, tuple(sorted(sums.get(uuid, ()))), uuid in self._taken
            touched[each] = touched.get(each, 0) + 1
        undecided: object = None
        if itself:
            to_come = {slot.suffix for slot in slots[level:]}
            serving = list(zip(self._chosen, slots, strict=False))
            undecided = tuple(
                frozenset(p.uuid for p, slot in serving if slot.suffix in each)
                for each in self._wide.same_subtree
                if each & to_come
            )
        elif self._spread is not None and self._spread.required and not slots[level].suffix:
            undecided = self._met(slots)
        return level, frozenset(touched.items()), undecided

    def _kind(self, provider: Provider, slots: list[_Slot]) -> object:
        """What providers have in common that may stand for each other."""
        kind = self._kinds.get(provider.uuid)
        if kind is None:
            resources = {resource for slot in slots for resource, _ in slot.amounts}
            stocks = tuple(
                (name, stock.cap - stock.used, stock.max_unit)
                for name, stock in sorted(provider.stocks.items())
                if name in resources
            )
            serves_slots = tuple(number for number, slot in enumerate(slots) if provider in slot.options)
            asked = () if self._spread is None else self._spread.required
            traits = tuple(bool(each & provider.traits) for each in asked)
            kind = self._kinds[provider.uuid] = (provider.root, stocks, serves_slots, traits)
        return kind

    def _candidate(self, slots: list[_Slot]) -> AllocationCandidate:
        serving: dict[str, set[str]] = {}
        for provider, slot in zip(self._chosen, slots, strict=True):
            serving.setdefault(slot.suffix, set()).add(provider.uuid)
        return AllocationCandidate(dict(self._sums), {suffix: frozenset(uuids) for suffix, uuids in serving.items()})
