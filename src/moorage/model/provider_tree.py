"""Providers in trees, and what groups ask of them: what the search of provider trees (tree_search.py) reads and answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from moorage.model.ids import ProviderId

SHARES = "MISC_SHARES_VIA_AGGREGATE"
"""The trait of providers that serve every tree with which they share an aggregate."""

Key = tuple[ProviderId, str]


class Stock(Protocol):
    """One inventory: `used` of `cap`, given away in portions."""

    @property
    def used(self) -> int: ...
    @property
    def cap(self) -> int: ...
    @property
    def min_unit(self) -> int: ...
    @property
    def max_unit(self) -> int: ...
    @property
    def step(self) -> int: ...


class TreeProvider(Protocol):
    """A resource provider, as far as the search reads it."""

    @property
    def uuid(self) -> ProviderId: ...
    @property
    def name(self) -> str: ...
    @property
    def root(self) -> ProviderId: ...
    @property
    def parent(self) -> ProviderId | None: ...
    @property
    def traits(self) -> frozenset[str]: ...
    @property
    def aggregates(self) -> frozenset[str]: ...
    @property
    def stocks(self) -> Mapping[str, Stock]: ...


@dataclass
class GroupDemand:
    """What is asked together: of one provider, or, without a suffix, of a tree and the providers that share with it."""

    suffix: str
    resources: dict[str, int] = field(default_factory=dict)
    required: list[frozenset[str]] = field(default_factory=list)
    """Of each set one trait is enough."""
    forbidden: set[str] = field(default_factory=set)
    member_of: list[frozenset[str]] = field(default_factory=list)
    """Of each set one aggregate is enough."""
    not_member_of: set[str] = field(default_factory=set)
    in_tree: str | None = None
    """The root of the only tree that may serve it."""


@dataclass(frozen=True)
class SearchRules:
    """What concerns all groups of a request."""

    group_policy: str | None = None
    """`isolate`: no two groups with a suffix on one provider."""
    same_subtree: Sequence[frozenset[str]] = ()
    """Suffixes whose providers lie in one subtree: one of them at or above all the others."""
    same_device: Sequence[frozenset[str]] = ()
    """Suffixes whose providers stand for one interface of one host."""
    nested: bool = True
    """False: one provider of each tree at most, as before microversion 1.29."""
    max_unit_of_sums: bool = True
    """Whether all that one provider gives must be one portion, as Placement's allocations are. False: each group's amount is a portion of its
    own, as in the claims of servers (RULES §5): two ports may have more together than one may have alone."""


@dataclass(frozen=True)
class ProviderTree:
    """Where to search: one root, what is below it, and the providers of other trees that share with it."""

    root: TreeProvider
    members: Sequence[TreeProvider]
    """The root among them."""
    outside: Sequence[TreeProvider]
    parent_of: Callable[[ProviderId], ProviderId | None]
    """Of any provider of these trees."""


@dataclass(frozen=True)
class Preference:
    """Which answers come first: those that take from the provider with the most free; None of two that are alike, unless `every`."""

    seed: int = 0
    """Which of several equal providers is the first."""
    every: bool = False
    """Providers that cannot be told apart are different answers."""


@dataclass
class Answer:
    """Amounts by provider and class, and which providers serve which group."""

    amounts: dict[Key, int]
    mappings: dict[str, frozenset[ProviderId]]

    def key(self) -> object:
        return frozenset(self.amounts.items()), frozenset(self.mappings.items())


@dataclass
class Work:
    """What searches did: providers tried for a slot, in all trees."""

    tries: int = 0


def can_give(provider: TreeProvider, resource: str, amount: int) -> bool:
    """Whether the provider has so much free, as one portion."""
    stock = provider.stocks.get(resource)
    return (
        stock is not None
        and stock.used + amount <= stock.cap
        and stock.min_unit <= amount <= stock.max_unit
        and amount % stock.step == 0
    )


def serves(provider: TreeProvider, group: GroupDemand) -> bool:
    """Whether one provider meets everything that a group asks, by itself."""
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


def device_of(provider: TreeProvider) -> tuple[ProviderId, str]:
    """The host and the interface that the provider stands for: its name is `<host>:<agent>:<interface>`."""
    return provider.root, provider.name.rpartition(":")[2]
