"""Candidates against an oracle that tries every combination: the same set, for random trees, sharing providers and groups."""

import itertools
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.model.ids import ProviderId
from moorage.model.provider_tree import SHARES, GroupDemand, Work
from moorage.placement.cache.cache import ProviderCache
from moorage.placement.cache.provider import Provider
from moorage.placement.service import candidates
from moorage.placement.service.candidate_rules import CandidateRules
from moorage.placement.service.candidates import find, find_alone
from moorage.store.region.placement.change_feed import ProviderChanges

CLASSES = ("VCPU", "DISK_GB")


@pytest.fixture(autouse=True, scope="module", params=[0, 64], ids=["all are judged before", "some are looked at first"])
def _seen_first(request: pytest.FixtureRequest) -> Iterator[None]:
    """Trees that cannot do are left out by the columns, or found out by looking: the answer is the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "SEEN_FIRST", request.param)
        yield


TRAITS = ("T1", "T2", SHARES)

_stock = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 2))  # capacity, largest portion, step
_provider = st.tuples(
    st.integers(-1, 3),  # the parent among the earlier ones; -1: a root
    st.dictionaries(st.sampled_from(CLASSES), _stock, max_size=2),
    st.frozensets(st.sampled_from(TRAITS), max_size=2),
    st.frozensets(st.sampled_from(["A", "B"]), max_size=1),
)
_group = st.tuples(
    st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 3), min_size=1, max_size=2),
    st.sampled_from([None, "T1", "T2"]),
    st.sampled_from([None, "T1"]),
    st.sampled_from([None, "A"]),
)


def draw(specs: list[tuple[int, dict[str, tuple[int, int, int]], frozenset[str], frozenset[str]]]) -> ProviderCache:
    rows: dict[str, list[SimpleNamespace]] = {kind: [] for kind in ("providers", "whole", "traits", "aggregates")}
    roots: list[str] = []
    for index, (parent, stocks, traits, aggregates) in enumerate(specs):
        uuid, above = f"p{index}", f"p{parent}" if 0 <= parent < index else None
        roots.append(uuid if above is None else roots[parent])
        one = SimpleNamespace(uuid=uuid, name=uuid, parent=above, root=roots[-1], generation=0, version=1, updated_at=0)
        rows["providers"].append(one)
        for name, (cap, largest, step) in stocks.items():
            row = SimpleNamespace(total=cap, reserved=0, ratio=1.0, min_unit=1, max_unit=largest, step=step)
            row.provider, row.resource, row.cap, row.used, row.version = uuid, name, cap, 0, 1
            rows["whole"].append(row)
        rows["traits"] += [SimpleNamespace(provider=uuid, trait=trait) for trait in traits]
        rows["aggregates"] += [SimpleNamespace(provider=uuid, aggregate=aggregate) for aggregate in aggregates]
    picture = ProviderCache()
    picture.apply(ProviderChanges(1, everything=True, **rows))  # type: ignore[arg-type]
    return picture


def groups_of(
    specs: list[tuple[dict[str, int], str | None, str | None, str | None]], suffixes: list[str]
) -> list[GroupDemand]:
    found = []
    for suffix, (resources, required, forbidden, aggregate) in zip(suffixes, specs, strict=False):
        group = GroupDemand(suffix, dict(resources))
        group.required = [frozenset([required])] if required else []
        group.forbidden = {forbidden} - {required} if forbidden and forbidden != required else set()
        group.member_of = [frozenset([aggregate])] if aggregate else []
        found.append(group)
    return found


def fits(provider: Provider, name: str, amount: int) -> bool:
    stock = provider.stocks.get(name)
    return (
        stock is not None
        and stock.used + amount <= stock.cap
        and stock.min_unit <= amount <= stock.max_unit
        and amount % stock.step == 0
    )


def at_or_above(picture: ProviderCache, upper: Provider, lower: Provider) -> bool:
    at: Provider | None = lower
    while at is not None and at is not upper:
        at = None if at.parent is None else picture.providers[at.parent]
    return at is upper


def oracle(
    picture: ProviderCache, groups: list[GroupDemand], policy: str, together: frozenset[str] = frozenset()
) -> Iterator[object]:
    """Every anchor, every assignment of providers to demands, judged by the letter."""
    for anchor, tree in picture.trees.items():
        root = picture.providers[anchor]
        tied = {a for member in tree.values() for a in member.aggregates}
        reach = [
            p for p in picture.providers.values() if p.root == anchor or (SHARES in p.traits and tied & p.aggregates)
        ]
        demands = []
        for group in groups:
            if group.suffix:
                demands.append((group, dict(group.resources)))
            else:
                demands += [(group, {name: amount}) for name, amount in group.resources.items()]
        for chosen in itertools.product(reach, repeat=len(demands)):
            near = {p for p, (group, _) in zip(chosen, demands, strict=True) if group.suffix in together}
            if near and not any(all(at_or_above(picture, top, p) for p in near) for top in near):
                continue
            if judged(chosen, demands, root, picture, policy):
                amounts: dict[tuple[str, str], int] = {}
                mapping: dict[str, set[str]] = {}
                for provider, (group, resources) in zip(chosen, demands, strict=True):
                    mapping.setdefault(group.suffix, set()).add(provider.uuid)
                    for name, amount in resources.items():
                        amounts[provider.uuid, name] = amounts.get((provider.uuid, name), 0) + amount
                held = {(u, n): picture.providers[ProviderId(u)].stocks[n] for u, n in amounts}
                over = any(
                    amount + held[key].used > held[key].cap or amount > held[key].max_unit
                    for key, amount in amounts.items()
                )
                if not over:
                    yield frozenset(amounts.items()), frozenset((k, frozenset(v)) for k, v in mapping.items())


def judged(chosen, demands, root, picture, policy) -> bool:  # type: ignore[no-untyped-def]
    for provider, (group, resources) in zip(chosen, demands, strict=True):
        near = provider.aggregates, root.aggregates if not group.suffix and provider.root == root.uuid else frozenset()
        if not all(fits(provider, name, amount) for name, amount in resources.items()):
            return False
        if group.forbidden & provider.traits or not any(
            all(each & aggregates for each in group.member_of) for aggregates in near
        ):
            return False
        if group.suffix and not all(each & provider.traits for each in group.required):
            return False
    spread = frozenset().union(*(p.traits for p, (g, _) in zip(chosen, demands, strict=True) if not g.suffix))
    if any(not g.suffix and not all(each & spread for each in g.required) for g, _ in demands):
        return False
    single = [p.uuid for p, (g, _) in zip(chosen, demands, strict=True) if g.suffix]
    return policy != "isolate" or len(set(single)) == len(single)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(_provider, min_size=1, max_size=5),
    st.lists(_group, min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from(["none", "isolate"]),
    st.sampled_from([frozenset(), frozenset("12"), frozenset("123"), frozenset("2")]),
)
def test_candidates_equal_the_oracles(specs, wanted, spread, policy, together) -> None:  # type: ignore[no-untyped-def]
    picture = draw(specs)
    groups = groups_of(wanted, ["", "1", "2"] if spread else ["1", "2", "3"])
    subtrees = (together,) if together else ()
    found = [one.key() for one in find(picture, groups, CandidateRules(group_policy=policy, same_subtree=subtrees))]
    expected = set(oracle(picture, groups, policy, together))
    assert set(found) == expected
    assert len(found) == len(set(found))
    if (alone := find_alone(picture, groups, CandidateRules(group_policy=policy, same_subtree=subtrees))) is not None:
        assert {frozenset(p for (p, _), _ in amounts) for amounts, _ in expected} == {
            frozenset([p.uuid]) for p in alone
        }
    limited = find(picture, groups, CandidateRules(group_policy=policy, limit=2, same_subtree=subtrees))
    assert len(limited) == min(2, len(expected))
    assert {one.key() for one in limited} <= expected


def equals(children: int, hosts: int, portion: int = 4) -> ProviderCache:
    """Hosts with so many identical children, each with room for eight, in portions up to `portion`."""
    specs: list[tuple[int, dict[str, tuple[int, int, int]], frozenset[str], frozenset[str]]] = []
    for host in range(hosts):
        specs.append((-1, {"VCPU": (64, 64, 1)}, frozenset(), frozenset()))
        specs += [(host * (children + 1), {"DISK_GB": (8, portion, 1)}, frozenset(), frozenset())] * children
    return draw(specs)


def asked(groups: int, amount: int = 1) -> list[GroupDemand]:
    return [GroupDemand("", {"VCPU": 1}), *(GroupDemand(f"_{n}", {"DISK_GB": amount}) for n in range(groups))]


@pytest.mark.parametrize("policy", ["isolate", "none"])
@pytest.mark.parametrize("size", [8, 16])
def test_wide_trees_cost_groups_times_children_for_each_answer(size: int, policy: str) -> None:
    picture, work = equals(size, hosts=16), Work()
    found = find(picture, asked(size), CandidateRules(group_policy=policy, limit=10), work)
    assert len({one.key() for one in found}) == 10
    assert work.tries <= 10 * (size + 1) * size
    more = Work()
    assert len(find(picture, asked(size), CandidateRules(group_policy=policy, limit=100), more)) == 100
    assert more.tries <= 100 * (size + 1) * size


@pytest.mark.parametrize(
    ("size", "amount", "policy"), [(8, 1, "isolate"), (16, 1, "isolate"), (8, 5, "none"), (16, 5, "none")]
)
def test_a_request_that_fits_nowhere_is_refused_without_trying_all(size: int, amount: int, policy: str) -> None:
    """One group more than equal children: their order does not matter, so what failed once fails in every order."""
    picture, work = equals(size, hosts=4, portion=5), Work()
    assert find(picture, asked(size + 1, amount), CandidateRules(group_policy=policy, limit=10), work) == []
    assert work.tries <= 4 * 2 * (size + 2) * size
    assert find(picture, asked(size, amount), CandidateRules(group_policy=policy, limit=10)) != []


def test_impossible_subtrees_are_skipped_early() -> None:
    """Siblings are not below one another, however many groups there are to try."""
    picture, work = equals(12, hosts=2, portion=8), Work()
    together = (frozenset(f"_{n}" for n in range(8)),)
    assert find(picture, asked(8), CandidateRules(group_policy="isolate", same_subtree=together), work) == []
    assert work.tries <= 2 * 12 * 13
    alone = find(picture, asked(8), CandidateRules(group_policy="none", same_subtree=together, limit=5))
    assert all(len({p for p, name in one.amounts if name == "DISK_GB"}) == 1 for one in alone)
    assert len(alone) == 5


def test_the_work_does_not_grow_with_the_fleet() -> None:
    tries = []
    for hosts in (10, 100, 1000):
        work = Work()
        assert len(find(equals(4, hosts), asked(3), CandidateRules(group_policy="isolate", limit=10), work)) == 10
        tries.append(work.tries)
    assert tries[0] == tries[1] == tries[2]


def test_different_children_are_all_tried() -> None:
    """What is remembered of one kind of child is not believed of another."""
    specs = [(-1, {}, frozenset(), frozenset())]
    specs += [(0, {"DISK_GB": (cap, cap, 1)}, frozenset(), frozenset()) for cap in (1, 2, 2, 3)]
    picture = draw(specs)  # type: ignore[arg-type]
    groups = [GroupDemand(f"_{n}", {"DISK_GB": amount}) for n, amount in enumerate((2, 2, 3, 1))]
    found = {one.key() for one in find(picture, groups, CandidateRules(group_policy="none"))}
    assert found == set(oracle(picture, groups, "none"))
    assert len(found) == 2


def test_a_candidate_of_sharing_providers_only_is_returned_once() -> None:
    """It is an answer of its own tree, and of every tree it shares with."""
    aggregate = frozenset(["A"])
    host: tuple[int, dict[str, tuple[int, int, int]], frozenset[str], frozenset[str]]
    host = (-1, {"VCPU": (4, 4, 1)}, frozenset(), aggregate)
    picture = draw([host, (-1, {"DISK_GB": (4, 4, 1)}, frozenset([SHARES]), aggregate), host])
    for rules in (CandidateRules(), CandidateRules(limit=2)):
        assert [one.amounts for one in find(picture, [GroupDemand("", {"DISK_GB": 1})], rules)] == [
            {("p1", "DISK_GB"): 1}
        ]


def test_a_provider_that_failed_for_some_amounts_is_tried_for_others() -> None:
    """2 and 1 here and 2 there leave no room for 3; 2 and 2 here and 1 there do: of two equal children with room for 4."""
    child: tuple[int, dict[str, tuple[int, int, int]], frozenset[str], frozenset[str]]
    child = (0, {"DISK_GB": (4, 4, 1)}, frozenset(), frozenset())
    picture = draw([(-1, {}, frozenset(), frozenset()), child, child])
    groups = [GroupDemand(f"_{n}", {"DISK_GB": amount}) for n, amount in enumerate((2, 1, 2, 3))]
    found = {one.key() for one in find(picture, groups, CandidateRules(group_policy="none"))}
    assert found == set(oracle(picture, groups, "none"))
    assert len(found) == 2


def test_a_limited_request_searches_few_trees() -> None:
    """And sees trees that came or went since the last time."""
    picture = draw([(-1, {"VCPU": (4, 4, 1)}, frozenset(), frozenset())] * 50)
    one = [GroupDemand("", {"VCPU": 1})]
    anchors = picture.anchors()
    assert len(find_alone(picture, one, CandidateRules(limit=3)) or []) == 3
    assert {p.uuid for _ in range(200) for p in find_alone(picture, one, CandidateRules(limit=3)) or []} == set(
        picture.trees
    )
    assert picture.anchors() is anchors
    picture._remove(ProviderId("p7"))
    assert len(find_alone(picture, one, CandidateRules()) or []) == 49
    assert ProviderId("p7") not in {
        p.uuid for _ in range(200) for p in find_alone(picture, one, CandidateRules(limit=3)) or []
    }
