"""Candidates against an oracle that tries every combination: the same set, for random trees, sharing providers and groups."""

import itertools
from collections.abc import Iterator
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.model.ids import ProviderId
from moorage.placement.candidates import SHARES, Group, Wide, find, find_alone
from moorage.placement.known import Provider, Stock
from moorage.placement.world import Picture

CLASSES = ("VCPU", "DISK_GB")
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


def draw(specs: list[tuple[int, dict[str, tuple[int, int, int]], frozenset[str], frozenset[str]]]) -> Picture:
    picture = Picture()
    for index, (parent, stocks, traits, aggregates) in enumerate(specs):
        one = Provider(ProviderId(f"p{index}"))
        if 0 <= parent < index:
            above = picture.providers[ProviderId(f"p{parent}")]
            one.parent, one.root = above.uuid, above.root
        one.traits = traits
        for name, (cap, largest, step) in stocks.items():
            row = SimpleNamespace(total=cap, reserved=0, ratio=1.0, min_unit=1, max_unit=largest, step=step)
            row.cap, row.used, row.version = cap, 0, 1
            one.stocks[name] = Stock(row)
        picture.providers[one.uuid] = one
        picture.trees.setdefault(one.root, {})[one.uuid] = one
        picture._set_aggregates(one, aggregates)
    return picture


def groups_of(
    specs: list[tuple[dict[str, int], str | None, str | None, str | None]], suffixes: list[str]
) -> list[Group]:
    found = []
    for suffix, (resources, required, forbidden, aggregate) in zip(suffixes, specs, strict=False):
        group = Group(suffix, dict(resources))
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


def oracle(picture: Picture, groups: list[Group], policy: str) -> Iterator[object]:
    """Every anchor, every assignment of providers to demands, judged by the letter."""
    for anchor, tree in picture.trees.items():
        root = picture.providers[anchor]
        near = {a for member in tree.values() for a in member.aggregates}
        reach = [
            p for p in picture.providers.values() if p.root == anchor or (SHARES in p.traits and near & p.aggregates)
        ]
        demands = []
        for group in groups:
            if group.suffix:
                demands.append((group, dict(group.resources)))
            else:
                demands += [(group, {name: amount}) for name, amount in group.resources.items()]
        for chosen in itertools.product(reach, repeat=len(demands)):
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
)
def test_the_set_of_candidates_is_the_oracles(specs, wanted, spread, policy) -> None:  # type: ignore[no-untyped-def]
    picture = draw(specs)
    groups = groups_of(wanted, ["", "1", "2"] if spread else ["1", "2", "3"])
    found = [one.key() for one in find(picture, groups, Wide(group_policy=policy))]
    expected = set(oracle(picture, groups, policy))
    assert set(found) == expected
    assert len(found) == len(set(found))
    if (alone := find_alone(picture, groups, Wide(group_policy=policy))) is not None:
        assert {frozenset(p for (p, _), _ in amounts) for amounts, _ in expected} == {
            frozenset([p.uuid]) for p in alone
        }
    limited = find(picture, groups, Wide(group_policy=policy, limit=2))
    assert len(limited) == min(2, len(expected))
    assert {one.key() for one in limited} <= expected
