"""Provider trees and the demands of request groups: the input and output of the search (tree_search.py)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from moorage.model.ids import ProviderId

SHARES = "MISC_SHARES_VIA_AGGREGATE"
"""The trait of providers that serve every tree with which they share an aggregate."""

Key = tuple[ProviderId, str]


class Stock(Protocol):
    """One inventory: `used` of `cap`, with the limits of a single allocation."""

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
    """The attributes of a resource provider that the search reads."""

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
    """Amounts that are asked together: of one provider, or, without a suffix, of a tree and the providers that share with it."""

    suffix: str
    resources: dict[str, int] = field(default_factory=dict)
    required: list[frozenset[str]] = field(default_factory=list)
    """One trait of each set is enough."""
    forbidden: set[str] = field(default_factory=set)
    member_of: list[frozenset[str]] = field(default_factory=list)
    """One aggregate of each set is enough."""
    not_member_of: set[str] = field(default_factory=set)
    in_tree: str | None = None
    """The root of the only tree that may serve it."""


@dataclass(frozen=True)
class SearchRules:
    """Rules for all groups of a request."""

    group_policy: str | None = None
    """`isolate`: no two groups with a suffix on one provider."""
    same_subtree: Sequence[frozenset[str]] = ()
    """Suffixes whose providers lie in one subtree: one of them at or above all the others."""
    same_device: Sequence[frozenset[str]] = ()
    """Suffixes whose providers must represent one interface of one host."""
    nested: bool = True
    """False: one provider of each tree at most, as before microversion 1.29."""
    max_unit_of_sums: bool = True
    """Whether `max_unit` limits the sum that one provider gives, as in Placement's allocations. False: it limits each group's amount alone,
    as in servers' claims (RULES §5): two ports may have more together than one may have alone."""


@dataclass(frozen=True)
class ProviderTree:
    """The providers to search: one root, those below it, and those of other trees that share with it."""

    root: TreeProvider
    members: Sequence[TreeProvider]
    """All providers of the tree, including the root."""
    outside: Sequence[TreeProvider]
    parent_of: Callable[[ProviderId], ProviderId | None]
    """Returns the parent of any provider of these trees."""


@dataclass(frozen=True)
class Preference:
    """The order of answers: those that take from the provider with the most free come first. Of equal answers only one is given,
    unless `every`."""

    seed: int = 0
    """Chooses which of several equal providers is the first."""
    every: bool = False
    """Whether answers that differ only in equal providers are all given."""


@dataclass
class Answer:
    """One answer: amounts by provider and class, and the providers of each group."""

    amounts: dict[Key, int]
    mappings: dict[str, frozenset[ProviderId]]

    def key(self) -> object:
        return frozenset(self.amounts.items()), frozenset(self.mappings.items())


@dataclass
class Work:
    """Counts the work of searches: providers tried for a slot, in all trees."""

    tries: int = 0


def can_give(provider: TreeProvider, resource: str, amount: int) -> bool:
    """Tell whether the provider can give this amount in one allocation."""
    stock = provider.stocks.get(resource)
    return (
        stock is not None
        and stock.used + amount <= stock.cap
        and stock.min_unit <= amount <= stock.max_unit
        and amount % stock.step == 0
    )


def serves(provider: TreeProvider, group: GroupDemand) -> bool:
    """Tell whether one provider alone meets everything that a group asks."""
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
    """Return the host and the interface that the provider represents: its name is `<host>:<agent>:<interface>`."""
    return provider.root, provider.name.rpartition(":")[2]
