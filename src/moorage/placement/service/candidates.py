"""Allocation candidates, found lazily: for each tree by the same search as the scheduler's (`model/tree_search.py`),
round-robin over the trees.

There is no product of all combinations: with a limit the search stops when it has enough, and a combination that failed
is not tried again. The set of answers is Placement's: the group without a suffix may be spread over the tree and over
providers that share with it by aggregate (MISC_SHARES_VIA_AGGREGATE); its traits must be met together, its aggregates
by the provider or by the tree's root. A group with a suffix must be served by one provider alone.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from moorage.model.ids import ProviderId
from moorage.model.provider_tree import SHARES, Answer, GroupDemand, Key, ProviderTree, Work, serves
from moorage.model.tree_search import TreeSearch
from moorage.placement.cache.cache import ProviderCache
from moorage.placement.cache.provider import Provider
from moorage.placement.service.candidate_prefilter import promising
from moorage.placement.service.candidate_rules import CandidateRules

NO_TREE = ""
CANDIDATES_MAX = 100_000
SEEN_FIRST = 64
"""How many trees are searched before all are checked by their columns."""


def find(
    picture: ProviderCache, groups: Sequence[GroupDemand], rules: CandidateRules, work: Work | None = None
) -> list[Answer]:
    """All candidates, or `rules.limit` of them, from a random start; `work` counts what was searched."""
    most = min(rules.limit or CANDIDATES_MAX, CANDIDATES_MAX)
    work = Work() if work is None else work
    sharing = picture.sharing(SHARES)
    groups = [_within_root(picture, group) for group in groups]
    answers: dict[object, Answer] = {}
    waiting: list[Search] = []
    for root in _roots(picture, groups, rules):
        if len(answers) >= most:
            break
        if len(picture.trees[root.uuid]) == 1 and sharing.keys().isdisjoint(root.aggregates):
            if (alone := _alone(root, groups, rules)) is not None:
                answers[root.uuid] = alone
            continue
        tree, common = _tree(picture, root, sharing)
        search = TreeSearch(tree, groups, rules, work=work).answers(), common
        if _take(search, answers):
            waiting.append(search)
    while waiting and len(answers) < most:
        still = []
        for search in waiting:
            if len(answers) >= most:
                break
            if _take(search, answers):
                still.append(search)
        waiting = still
    return list(answers.values())[:most]


def _within_root(picture: ProviderCache, group: GroupDemand) -> GroupDemand:
    """`in_tree` names any provider of a tree; the search uses its root."""
    if group.in_tree is None:
        return group
    member = picture.providers.get(ProviderId(group.in_tree))
    return replace(group, in_tree=NO_TREE if member is None else member.root)


def _tree(picture: ProviderCache, root: Provider, sharing: Mapping[str, list[Provider]]) -> tuple[ProviderTree, bool]:
    """The tree, and whether another tree may give the same answer: if it is only from providers that share with both."""
    members = list(picture.trees[root.uuid].values())
    outside: list[Provider] = []
    shared: dict[ProviderId, Provider] = {}
    if sharing:
        aggregates = {aggregate for member in members for aggregate in member.aggregates}
        shared = {p.uuid: p for aggregate in aggregates & sharing.keys() for p in sharing[aggregate]}
        outside = [p for p in shared.values() if p.root != root.uuid]
    return ProviderTree(root, members, outside, lambda uuid: picture.providers[uuid].parent), bool(shared)


def find_alone(picture: ProviderCache, groups: Sequence[GroupDemand], rules: CandidateRules) -> list[Provider] | None:
    """The answer of `find` when no provider has children or shares and there is one group: each provider by itself.

    None: the condition is not met, and `find` must be used. Most hosts of most clouds meet it, and one check of each is
    enough.
    """
    if len(groups) != 1 or len(picture.trees) != len(picture.providers) or picture.sharing(SHARES):
        return None
    group = groups[0]
    if group.in_tree is not None or rules.same_subtree:
        return None
    plain = not (group.required or group.forbidden or group.member_of or group.not_member_of)
    rooted = bool(rules.root_required or rules.root_forbidden)
    most = min(rules.limit or CANDIDATES_MAX, CANDIDATES_MAX)
    amounts = tuple(group.resources.items())
    roots: list[Provider] = []
    for root in _somewhere(picture, groups, rules):
        stocks = root.stocks
        for resource, amount in amounts:
            stock = stocks.get(resource)
            if stock is None or stock.used + amount > stock.cap or amount > stock.max_unit:
                break
            if amount < stock.min_unit or amount % stock.step:
                break
        else:
            if rooted and not (rules.root_required <= root.traits and not rules.root_forbidden & root.traits):
                continue
            if plain or serves(root, group):
                roots.append(root)
                if len(roots) == most:
                    break
    return roots


def _alone(root: Provider, groups: Sequence[GroupDemand], rules: CandidateRules) -> Answer | None:
    """The only candidate of a provider without children, with which no other shares: most hosts of most clouds."""
    if root.uuid != root.root or (rules.group_policy == "isolate" and sum(1 for g in groups if g.suffix) > 1):
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
    providers = frozenset([root.uuid])
    return Answer(amounts, {group.suffix: providers for group in groups})


Search: TypeAlias = tuple[Iterator[Answer], bool]
"""A tree's candidates, and whether another tree may have the same ones: if they are only from providers that share with
both.
"""


def _take(search: Search, answers: dict[object, Answer]) -> bool:
    candidates, shared = search
    one = next(candidates, None)
    if one is None:
        return False
    answers.setdefault(one.key() if shared else len(answers), one)
    return True


def _somewhere(picture: ProviderCache, groups: Sequence[GroupDemand], rules: CandidateRules) -> Iterator[Provider]:
    """All anchors that may fit, from a random one on when there is a limit; the first few are not checked before."""
    slots = picture.anchors()
    start = 0 if rules.limit is None or len(slots) < 2 else random.randrange(len(slots))
    soon = min(len(slots), max(SEEN_FIRST, 2 * (rules.limit or 0)))
    first = slots[start : start + soon]
    if len(first) < soon:
        first = np.concatenate((first, slots[: soon - len(first)]))
    yield from _at(picture, first)
    rest = np.roll(slots, -start)[soon:] if soon < len(slots) else slots[:0]
    if len(rest) and not picture.sharing(SHARES):
        rest = rest[promising(picture, groups, rules)[rest]]
    yield from _at(picture, rest)


def _at(picture: ProviderCache, slots: NDArray[np.int32]) -> Iterator[Provider]:
    providers, ids = picture.providers, picture.rows.ids
    for place in np.frombuffer(picture.root_places, dtype=np.int32)[slots].tolist():
        yield providers[ids[place]]


def _roots(picture: ProviderCache, groups: Sequence[GroupDemand], rules: CandidateRules) -> Iterator[Provider]:
    """The anchors, from a random place on when there is a limit."""
    tree = next((group.in_tree for group in groups if group.in_tree is not None and not group.suffix), None)
    if tree is not None:
        root = picture.providers.get(ProviderId(tree))
        anchors: Iterable[Provider] = [] if root is None else [root]
    else:
        anchors = _somewhere(picture, groups, rules)
    for root in anchors:
        if rules.root_required <= root.traits and not rules.root_forbidden & root.traits:
            yield root
