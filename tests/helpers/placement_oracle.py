"""Allocation candidates by brute force: every choice of providers, checked against the text of the API. It is for small worlds only.

It knows the API and nothing of the engine: no tree walk, no pruning, no order.
"""

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

SHARES = "MISC_SHARES_VIA_AGGREGATE"
CLASSES = ("VCPU", "DISK_GB")
TRAITS = ("HW_CPU_X86_AVX", "COMPUTE_NODE", SHARES)
AGGREGATES = tuple(str(uuid.UUID(int=number)) for number in (1, 2))
PROVIDERS_MAX = 6
Answer = tuple[frozenset[Any], frozenset[Any]]
"""What is taken where, and who serves which group."""


@dataclass
class Thing:
    """A provider, as the model knows it."""

    uuid: str
    parent: str | None
    root: str
    generation: int = 0
    inventories: dict[str, dict[str, Any]] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Part:
    """One group of a request; of each set in `required` and `member_of` one is enough. `in_tree` counts the providers.

    Without resources it wants a provider for its traits or aggregates alone.  The real Placement finds none for a group that
    only forbids, and does not look at the tree of such a group; ours neither.
    """

    resources: Mapping[str, int]
    required: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()
    member_of: tuple[frozenset[str], ...] = ()
    not_member_of: frozenset[str] = frozenset()
    in_tree: int | None = None

    def said(self, suffix: str, things: Sequence[Thing]) -> Iterator[tuple[str, str]]:
        if self.resources:
            yield f"resources{suffix}", ",".join(f"{name}:{amount}" for name, amount in self.resources.items())
        for name, some, none in (
            ("required", self.required, self.forbidden),
            ("member_of", self.member_of, self.not_member_of),
        ):
            for words in some:
                yield name + suffix, ("in:" if len(words) > 1 else "") + ",".join(sorted(words))
            for word in sorted(none):
                yield name + suffix, "!" + word
        if self.in_tree is not None:
            yield f"in_tree{suffix}", self.tree(things).uuid

    def tree(self, things: Sequence[Thing]) -> Thing:
        assert self.in_tree is not None
        return things[self.in_tree % len(things)]


@dataclass(frozen=True)
class Asked:
    """A whole request."""

    parts: Mapping[str, Part]
    policy: str = "none"
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    together: bool = False
    """All groups with a suffix in one subtree."""
    apart: frozenset[str] = frozenset()
    """Suffixes that are a subtree of their own."""

    @property
    def subtrees(self) -> list[frozenset[str]]:
        """What `same_subtree` says, each time it is said; groups without resources must be in one."""
        suffixed = frozenset(suffix for suffix in self.parts if suffix)
        said = [suffixed] if self.together and suffixed else []
        own = self.apart & suffixed | {suffix for suffix in suffixed if not said and not self.parts[suffix].resources}
        return said + ([own] if own else [])

    def said(self, things: Sequence[Thing]) -> list[tuple[str, str]]:
        """The query string."""
        words = [pair for suffix, part in self.parts.items() for pair in part.said(suffix, things)]
        suffixed = [suffix for suffix in self.parts if suffix]
        if suffixed:
            words.append(("group_policy", self.policy))
        if self.root_required or self.root_forbidden:
            roots = [*sorted(self.root_required), *("!" + word for word in sorted(self.root_forbidden))]
            words.append(("root_required", ",".join(roots)))
        return words + [("same_subtree", ",".join(sorted(each))) for each in self.subtrees]


def capacity(inventory: Mapping[str, Any]) -> int:
    return int((inventory["total"] - inventory.get("reserved", 0)) * inventory.get("allocation_ratio", 1.0))


class Oracle:
    """Answers over some providers and what is used of them."""

    def __init__(self, things: Sequence[Thing], used: Callable[[str, str], int], *, one_portion: bool = True) -> None:
        """`one_portion`: whether all that one provider gives of a class must be one portion of it."""
        self._things = things
        self._one_portion = one_portion
        self._used = used
        self._parents = {thing.uuid: thing.parent for thing in things}

    def answers(self, asked: Asked) -> set[Answer]:
        """All of them."""
        return {answer for thing in self._things if thing.parent is None for answer in self._below(thing, asked)}

    def _below(self, root: Thing, asked: Asked) -> Iterator[Answer]:
        if not asked.root_required <= root.traits or asked.root_forbidden & root.traits:
            return
        spread = asked.parts.get("")
        if spread is not None and spread.in_tree is not None and spread.tree(self._things).root != root.uuid:
            return
        inside = [thing for thing in self._things if thing.root == root.uuid]
        near = frozenset[str]().union(*(thing.aggregates for thing in inside))
        reach = inside + [
            thing
            for thing in self._things
            if thing.root != root.uuid and SHARES in thing.traits and near & thing.aggregates
        ]
        demands = [
            (suffix, part, one)
            for suffix, part in asked.parts.items()
            for one in ([part.resources] if suffix else [{name: n} for name, n in part.resources.items()])
        ]
        options = [
            [thing for thing in reach if self._suits(thing, suffix, part, one, root)] for suffix, part, one in demands
        ]
        for chosen in itertools.product(*options):
            taken: dict[tuple[str, str], int] = {}
            serving: dict[str, set[str]] = {}
            for thing, (suffix, _, one) in zip(chosen, demands, strict=True):
                serving.setdefault(suffix, set()).add(thing.uuid)
                for name, amount in one.items():
                    taken[thing.uuid, name] = taken.get((thing.uuid, name), 0) + amount
            if self._fits(taken) and self._agrees(serving, asked):
                yield (
                    frozenset(taken.items()),
                    frozenset((suffix, frozenset(uuids)) for suffix, uuids in serving.items()),
                )

    def _suits(self, thing: Thing, suffix: str, part: Part, one: Mapping[str, int], root: Thing) -> bool:
        """By itself: portions, room, traits that one alone decides, aggregates and tree."""
        for name, amount in one.items():
            inventory = thing.inventories.get(name)
            if inventory is None or amount % inventory.get("step_size", 1):
                return False
            if not inventory.get("min_unit", 1) <= amount <= inventory.get("max_unit", amount):
                return False
            if self._used(thing.uuid, name) + amount > capacity(inventory):
                return False
        if part.forbidden & thing.traits or (suffix and not all(each & thing.traits for each in part.required)):
            return False
        if not one and not part.required and not part.member_of:
            return False
        if one and part.in_tree is not None and thing.root != part.tree(self._things).root:
            return False
        banned, gathered = thing.aggregates, all(each & thing.aggregates for each in part.member_of)
        if not suffix:  # what the root is in, its tree is in
            banned |= root.aggregates
            gathered |= thing.root == root.uuid and all(each & root.aggregates for each in part.member_of)
        return gathered and not part.not_member_of & banned

    def _fits(self, taken: Mapping[tuple[str, str], int]) -> bool:
        stocks = {thing.uuid: thing.inventories for thing in self._things}
        return all(
            self._used(uuid, name) + amount <= capacity(stocks[uuid][name])
            and (not self._one_portion or amount <= stocks[uuid][name].get("max_unit", amount))
            for (uuid, name), amount in taken.items()
        )

    def _agrees(self, serving: Mapping[str, set[str]], asked: Asked) -> bool:
        """Together: the traits of the group that is spread, isolation, and the subtree."""
        traits = {thing.uuid: thing.traits for thing in self._things}
        if "" in asked.parts:
            spread = frozenset[str]().union(*(traits[uuid] for uuid in serving[""]))
            if not all(each & spread for each in asked.parts[""].required):
                return False
        single = {suffix: next(iter(uuids)) for suffix, uuids in serving.items() if suffix}
        if asked.policy == "isolate" and len(set(single.values())) < len(single):
            return False
        near = [{single[suffix] for suffix in subtree} for subtree in asked.subtrees]
        return all(any(all(top in self._upwards(uuid) for uuid in each) for top in each) for each in near)

    def _upwards(self, uuid: str) -> set[str]:
        found: set[str] = set()
        at: str | None = uuid
        while at is not None:
            found.add(at)
            at = self._parents[at]
        return found


# ------------------------------------------------------------------------------------------- what may be asked


_resources = st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 3), min_size=1).map(Part)


def _words(words: tuple[str, ...], most: int) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(words), min_size=1, max_size=most)


_nothing = st.builds(
    lambda traits, aggregates: Part({}, required=traits, member_of=aggregates),
    st.lists(_words(TRAITS, 2), max_size=1).map(tuple),
    st.lists(_words(AGGREGATES, 2), max_size=1).map(tuple),
).filter(lambda part: part.required or part.member_of)
_bare = st.one_of(
    st.fixed_dictionaries({"": _resources}, optional={"_A": _resources, "_C": _nothing}),
    st.fixed_dictionaries({"_A": _resources, "_B": _resources}, optional={"": _resources}),
    st.fixed_dictionaries({"_A": _resources, "_C": _nothing}, optional={"": _resources, "_D": _nothing}),
)


_twist = st.one_of(
    st.tuples(st.just("required"), _words(TRAITS, 2)),
    st.tuples(st.just("forbidden"), _words(TRAITS, 1)),
    st.tuples(st.just("member_of"), _words(AGGREGATES, 2)),
    st.tuples(st.just("not_member_of"), _words(AGGREGATES, 1)),
    st.tuples(st.just("in_tree"), st.integers(0, PROVIDERS_MAX - 1)),
    st.tuples(st.just("root_required"), _words(TRAITS, 1)),
    st.tuples(st.just("root_forbidden"), _words(TRAITS, 1)),
)
"""One more thing that a request or one of its groups asks; few of them together, or nothing is left to compare."""


def _twisted(
    parts: dict[str, Part],
    policy: str,
    together: bool,
    apart: frozenset[str],
    twists: list[tuple[int, tuple[str, Any]]],
) -> Asked:
    asked = Asked(parts, policy, together=together, apart=apart)
    for where, (kind, value) in twists:
        if kind.startswith("root"):
            asked = replace(asked, **{kind: value})
            asked = replace(asked, root_forbidden=asked.root_forbidden - asked.root_required)
            continue
        suffix = list(asked.parts)[where % len(asked.parts)]
        part = asked.parts[suffix]
        changed = replace(part, **{kind: (*getattr(part, kind), value) if kind in ("required", "member_of") else value})
        wanted = frozenset[str]().union(*changed.required)
        changed = replace(changed, forbidden=changed.forbidden - wanted)  # both at once is refused, and told elsewhere
        asked = replace(asked, parts={**asked.parts, suffix: changed})
    return asked


requests = st.builds(
    _twisted,
    _bare,
    st.sampled_from(["none", "isolate"]),
    st.booleans(),
    st.frozensets(st.sampled_from(["_A", "_C"]), max_size=2),
    st.lists(st.tuples(st.integers(0, 2), _twist), max_size=3),
)
