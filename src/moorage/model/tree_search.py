"""The search of provider trees: which provider serves which group, below one root and on the providers that share with it.

The scheduler and the Placement API both use it, so that both give the same answers.  It is pure: it reads providers through a
Protocol, and changes none of them.

The search is depth first.  A slot is one choice to make: a provider for one resource class of the group without a suffix, which
may be spread, or a provider for a whole group with a suffix.  Answers come one at a time, with little work between two of them:

- There is one set of running sums.  It is changed and changed back.
- Checks are made as early as possible: a class or trait that no provider has, a subtree or an interface that is impossible.
- A state from which no answer was found is remembered, and no equal state is tried again.  Two states are equal if they differ
  only in which of several equal providers was taken.  Eight equal children that are one too few for nine equal groups cost
  9 × 8 tries, not 8 factorial.

So the work between two answers grows with groups × distinct providers.  Placing unequal amounts on unequal providers is bin
packing all the same: `tries_max` ends it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from moorage.model.ids import ProviderId
from moorage.model.provider_tree import (
    Answer,
    GroupDemand,
    Key,
    Preference,
    ProviderTree,
    SearchRules,
    TreeProvider,
    Work,
    can_give,
    device_of,
    serves,
)

TRIES_MAX = 500_000
"""Providers tried in one tree before the search is given up."""


@dataclass
class _Slot:
    """One choice to make: a provider for one class of the spread group, or for a whole group with a suffix."""

    suffix: str
    amounts: Sequence[tuple[str, int]]
    options: list[TreeProvider]
    subtrees: Sequence[frozenset[str]] = ()
    devices: Sequence[frozenset[str]] = ()

    @property
    def located(self) -> bool:
        """Whether the provider's place in the tree matters."""
        return bool(self.subtrees or self.devices)


class TreeSearch:
    """All ways to serve some groups from one tree."""

    def __init__(
        self,
        tree: ProviderTree,
        groups: Sequence[GroupDemand],
        rules: SearchRules,
        *,
        work: Work | None = None,
        prefer: Preference | None = None,
        tries_max: int = TRIES_MAX,
    ) -> None:
        self.exhausted = False
        """Whether the search reached its limit: there may be more answers."""
        self._tree = tree
        self._groups = groups
        self._rules = rules
        self._isolate = rules.group_policy == "isolate"
        self._spread = next((group for group in groups if not group.suffix), None)
        self._work = Work() if work is None else work
        self._prefer = prefer
        self._tries_max = tries_max
        self._slots: list[_Slot] = []
        self._ordered: list[Sequence[TreeProvider]] = []
        self._sums: dict[Key, int] = {}
        self._isolated: set[ProviderId] = set()
        self._chosen: list[TreeProvider] = []
        self._dead: set[object] = set()
        self._kinds: dict[object, int] = {}
        """Numbers of kinds: a state is hashed often."""
        self._kind_of: tuple[dict[ProviderId, int], dict[ProviderId, int]] = {}, {}
        """Where the place in the tree does not matter, and where it does."""
        self._parents: frozenset[ProviderId | None] | None = None

    def answers(self) -> Iterator[Answer]:
        """Yield every way to serve all groups; with a preference, better ones first."""
        began = self._work.tries
        slots = self._make_slots()
        if slots is None:
            return
        self._slots = slots
        self._ordered = [slot.options for slot in slots]
        depth, level = len(slots), 0
        next_option = [0] * (depth + 1)
        fruitful = [False] * (depth + 1)
        if self._prefer is not None and depth:
            self._ordered[0] = self._preferred(0)
        while level >= 0:
            if level == depth:
                fruitful = [True] * (depth + 1)
                yield self._answer()
            elif self._advance(level, next_option):
                level += 1
                if level < depth and not (self._dead and self._state(level) in self._dead):
                    next_option[level], fruitful[level] = 0, False
                    if self._prefer is not None:
                        self._ordered[level] = self._preferred(level)
                    continue
                if level == depth:
                    continue
            elif not fruitful[level]:
                if self._work.tries - began > self._tries_max:
                    self.exhausted = True
                    return
                self._dead.add(self._state(level))
            level -= 1
            if level >= 0:
                self._release(slots[level])

    # ------------------------------------------------------------------------------------------------ the slots

    def _make_slots(self) -> list[_Slot] | None:
        """The slots in the order of choosing: groups that must lie together first, the spread group last; None: there is no answer."""
        slots: list[_Slot] = []
        for group in self._groups:
            reachable = self._reachable(group)
            if group.suffix:
                options = [p for p in reachable if serves(p, group)]
                if not options:
                    return None
                subtrees = [each for each in self._rules.same_subtree if group.suffix in each]
                devices = [each for each in self._rules.same_device if group.suffix in each]
                slots.append(_Slot(group.suffix, tuple(group.resources.items()), options, subtrees, devices))
                continue
            if not all(any(each & p.traits for p in reachable) for each in group.required):
                return None
            for resource, amount in group.resources.items():
                options = [p for p in reachable if can_give(p, resource, amount) and self._may_help(p, group)]
                if not options:
                    return None
                slots.append(_Slot("", ((resource, amount),), options))
        sets = (*self._rules.same_subtree, *self._rules.same_device)
        fewest = [min((len(s.options) for s in slots if s.suffix in each), default=0) for each in sets]

        def hardest_first(slot: _Slot) -> tuple[bool, bool, int, int, int]:
            """What belongs together is chosen together."""
            of = next((number for number, each in enumerate(sets) if slot.suffix in each), -1)
            hardest = len(slot.options) if of < 0 else fewest[of]
            return not slot.located, slot.suffix != "", hardest, of, len(slot.options)

        slots.sort(key=hardest_first)
        return slots

    def _reachable(self, group: GroupDemand) -> Sequence[TreeProvider]:
        tree = self._tree
        if group.in_tree is None:
            return [*tree.members, *tree.outside] if tree.outside else tree.members
        if not group.suffix:
            return tree.members if group.in_tree == tree.root.uuid else []
        return [p for p in (*tree.members, *tree.outside) if p.root == group.in_tree]

    def _may_help(self, provider: TreeProvider, group: GroupDemand) -> bool:
        """The spread group: aggregates of the root span its tree, not who shares with it; forbidden traits count for each."""
        if group.forbidden and group.forbidden & provider.traits:
            return False
        if not group.member_of and not group.not_member_of:
            return True
        root = self._tree.root
        inside = provider.root == root.uuid and all(each & root.aggregates for each in group.member_of)
        return (inside or all(each & provider.aggregates for each in group.member_of)) and not (
            group.not_member_of & (provider.aggregates | root.aggregates)
        )

    # ----------------------------------------------------------------------------------------------- the search

    def _advance(self, level: int, next_option: list[int]) -> bool:
        """Take the slot's next provider that fits; False: there is none left."""
        slot, options = self._slots[level], self._ordered[level]
        for index in range(next_option[level], len(options)):
            self._work.tries += 1
            provider = options[index]
            if not self._fits(provider, slot):
                continue
            self._take(provider, slot)
            if self._hopeful(level):
                next_option[level] = index + 1
                return True
            self._release(slot)
        return False

    def _fits(self, provider: TreeProvider, slot: _Slot) -> bool:
        """Isolation; and the sum over all groups stays within capacity, and within the largest portion where the rules say so."""
        if slot.suffix and provider.uuid in self._isolated:
            return False
        for resource, amount in slot.amounts:
            have = self._sums.get((provider.uuid, resource))
            if have is not None:
                stock = provider.stocks[resource]
                if stock.used + have + amount > stock.cap:
                    return False
                if self._rules.max_unit_of_sums and have + amount > stock.max_unit:
                    return False
        return self._rules.nested or all(p.root != provider.root or p is provider for p in self._chosen)

    def _take(self, provider: TreeProvider, slot: _Slot) -> None:
        self._chosen.append(provider)
        for resource, amount in slot.amounts:
            key = provider.uuid, resource
            self._sums[key] = self._sums.get(key, 0) + amount
        if slot.suffix and self._isolate:
            self._isolated.add(provider.uuid)

    def _release(self, slot: _Slot) -> None:
        provider = self._chosen.pop()
        for resource, amount in slot.amounts:
            key = provider.uuid, resource
            left = self._sums[key] - amount
            if left:
                self._sums[key] = left
            else:
                del self._sums[key]
        if slot.suffix:
            self._isolated.discard(provider.uuid)

    def _hopeful(self, level: int) -> bool:
        """Whether the present state can still become an answer, judged by traits, subtrees and interfaces."""
        slots, slot = self._slots, self._slots[level]
        if slot.located:
            return all(self._one_device(each) for each in slot.devices) and all(
                self._one_subtree(level, each) for each in slot.subtrees
            )
        if not slot.suffix and self._spread is not None and self._spread.required:
            last = level + 1 == len(slots) or bool(slots[level + 1].suffix)
            return not last or len(self._met()) == len(self._spread.required)
        return True

    def _met(self) -> frozenset[int]:
        """Which of the spread group's required traits its providers have together."""
        assert self._spread is not None
        serving = [p for p, slot in zip(self._chosen, self._slots, strict=False) if not slot.suffix]
        together: frozenset[str] = frozenset().union(*(p.traits for p in serving))
        return frozenset(n for n, each in enumerate(self._spread.required) if each & together)

    def _serving(self, suffixes: frozenset[str]) -> list[TreeProvider]:
        return [p for p, slot in zip(self._chosen, self._slots, strict=False) if slot.suffix in suffixes]

    def _one_device(self, suffixes: frozenset[str]) -> bool:
        return len({device_of(provider) for provider in self._serving(suffixes)}) <= 1

    def _one_subtree(self, level: int, suffixes: frozenset[str]) -> bool:
        """Whether one of the chosen providers is at or above all the others, or a later one could be."""
        chosen = {p.uuid for p in self._serving(suffixes)}
        above = set.intersection(*(self._upwards(uuid) for uuid in chosen))
        if above & chosen:
            return True
        to_come = (slot for slot in self._slots[level + 1 :] if slot.suffix in suffixes)
        return any(p.uuid in above for slot in to_come for p in slot.options)

    def _upwards(self, uuid: ProviderId) -> set[ProviderId]:
        above = {uuid}
        parent = self._tree.parent_of(uuid)
        while parent is not None and parent not in above:
            above.add(parent)
            parent = self._tree.parent_of(parent)
        return above

    def _preferred(self, level: int) -> Sequence[TreeProvider]:
        """The providers to try, the one with the most free first, and only one of equal ones; the seed orders ties."""
        assert self._prefer is not None
        slot, seed, options = self._slots[level], self._prefer.seed, self._slots[level].options
        alike: dict[object, list[int]] = {}
        open_sets = self._open_sets(level)
        for index, provider in enumerate(options):
            if self._fits(provider, slot):
                key = (
                    index
                    if self._prefer.every
                    else self._mark(provider, slot.located, open_sets, self._taken(provider))
                )
                alike.setdefault(key, []).append(index)
        firsts = [each[seed % len(each)] for each in alike.values()]
        if slot.amounts:
            main, size = slot.amounts[0][0], len(options)

            def most_free_first(index: int) -> tuple[int, int]:
                stock, have = options[index].stocks[main], self._sums.get((options[index].uuid, main), 0)
                return stock.used + have - stock.cap, (index + seed) % size

            firsts.sort(key=most_free_first)
        return [options[index] for index in firsts]

    def _taken(self, provider: TreeProvider) -> list[tuple[str, int]]:
        uuid = provider.uuid
        return [(name, self._sums[uuid, name]) for name in provider.stocks if (uuid, name) in self._sums]

    # ------------------------------------------------------------------------------------------- what was tried

    def _state(self, level: int) -> object:
        """Everything that decides whether the remaining slots can be served; equal providers are not distinguished."""
        located = self._slots[level].located
        open_sets = self._open_sets(level)
        sums: dict[ProviderId, list[tuple[str, int]]] = {}
        for (uuid, resource), amount in self._sums.items():
            sums.setdefault(uuid, []).append((resource, amount))
        touched: dict[object, int] = {}
        for uuid, provider in {p.uuid: p for p in self._chosen}.items():
            mark = self._mark(provider, located, open_sets, sums.get(uuid, ()))
            touched[mark] = touched.get(mark, 0) + 1
        met: object = None
        if not located and self._spread is not None and self._spread.required and not self._slots[level].suffix:
            met = self._met()
        return level, frozenset(touched.items()), met

    def _open_sets(self, level: int) -> frozenset[str]:
        """Suffixes that must lie together and of which only some are chosen."""
        sets = (*self._slots[level].subtrees, *self._slots[level].devices)
        if not sets:
            return frozenset()
        to_come = {slot.suffix for slot in self._slots[level:]}
        still = (each for each in (*self._rules.same_subtree, *self._rules.same_device) if each & to_come)
        return frozenset[str]().union(*still)

    def _mark(
        self, provider: TreeProvider, located: bool, open_sets: frozenset[str], sums: Sequence[tuple[str, int]]
    ) -> object:
        """A provider's part of the state: its kind, what is taken of it, and the groups whose place still matters."""
        uuid = provider.uuid
        serving: tuple[str, ...] = ()
        if open_sets:
            pairs = zip(self._chosen, self._slots, strict=False)
            serving = tuple(sorted(s.suffix for p, s in pairs if p.uuid == uuid and s.suffix in open_sets))
        taken = tuple(sorted(sums)) if len(sums) > 1 else tuple(sums)
        return self._kind(provider, located), taken, uuid in self._isolated, serving

    def _kind(self, provider: TreeProvider, located: bool) -> int:
        """A key that is equal for interchangeable providers; if the place matters, only siblings without children are interchangeable."""
        known = self._kind_of[located]
        number = known.get(provider.uuid)
        if number is None:
            slots = self._slots
            resources = {resource for slot in slots for resource, _ in slot.amounts}
            stocks = tuple(
                (name, stock.cap - stock.used, stock.max_unit)
                for name, stock in sorted(provider.stocks.items())
                if name in resources
            )
            serves_slots = tuple(number for number, slot in enumerate(slots) if provider in slot.options)
            wanted = () if self._spread is None else self._spread.required
            traits = tuple(bool(each & provider.traits) for each in wanted)
            place: object = provider.root
            if located:
                place = provider.parent if self._is_leaf(provider) else provider.uuid
                place = place, device_of(provider) if self._rules.same_device else None
            kind = located, place, stocks, serves_slots, traits
            number = known[provider.uuid] = self._kinds.setdefault(kind, len(self._kinds))
        return number

    def _is_leaf(self, provider: TreeProvider) -> bool:
        if self._parents is None:
            self._parents = frozenset(p.parent for p in (*self._tree.members, *self._tree.outside))
        return provider.parent is not None and provider.uuid not in self._parents

    def _answer(self) -> Answer:
        serving: dict[str, set[ProviderId]] = {}
        for provider, slot in zip(self._chosen, self._slots, strict=True):
            serving.setdefault(slot.suffix, set()).add(provider.uuid)
        return Answer(dict(self._sums), {suffix: frozenset(uuids) for suffix, uuids in serving.items()})
