"""Hypothesis strategies for bodies of requests to the Placement API: inventories, traits, aggregates, allocations."""

from hypothesis import strategies as st

from tests.helpers.placement_oracle import AGGREGATES, CLASSES, PROVIDERS_MAX, TRAITS

inventory_bodies = st.fixed_dictionaries(
    {"total": st.integers(1, 6)},
    optional={
        "reserved": st.integers(1, 2),
        "max_unit": st.integers(1, 3),
        "min_unit": st.integers(1, 2),
        "step_size": st.integers(1, 2),
        "allocation_ratio": st.sampled_from([0.5, 1.5, 2.0]),
    },
)
inventories_by_class = st.dictionaries(st.sampled_from(CLASSES), inventory_bodies, min_size=1)
one_in_five = st.sampled_from([False, False, False, False, True])
provider_numbers = st.integers(0, PROVIDERS_MAX - 1)
allocated_amounts = st.dictionaries(
    provider_numbers, st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 4), min_size=1), min_size=0, max_size=2
)
trait_sets = st.frozensets(st.sampled_from(TRAITS))
aggregate_sets = st.frozensets(st.sampled_from(AGGREGATES))
provider_lists = st.lists(
    st.tuples(st.none() | provider_numbers, inventories_by_class, trait_sets, aggregate_sets),
    min_size=2,
    max_size=PROVIDERS_MAX - 2,
)
