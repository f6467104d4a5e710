"""The parts of every proof, as parameters: the suite spreads them over its workers.

`make test` kills every operation of the registry at each commit; all other parts, and all parts of the operations' variants, are
the matrix of `make prove`, `make test-all` and CI.
"""

from collections.abc import Collection
from typing import Any

import pytest

from moorage_testing.proof_parts import PARTS

every_part = pytest.mark.parametrize(
    "part", [pytest.param(part, id=part.name, marks=() if part.daily else pytest.mark.matrix) for part in PARTS]
)
"""For what is killed at each commit every day."""

matrix_part = pytest.mark.parametrize(
    "part", [pytest.param(part, id=part.name, marks=pytest.mark.matrix) for part in PARTS]
)
"""For what they do in other worlds: other ports, other hosts, another network service."""

quick_part = pytest.mark.parametrize(
    "part",
    [pytest.param(part, id=part.name, marks=pytest.mark.matrix if part.quick else pytest.mark.soak) for part in PARTS],
)
"""For what differs from an operation that is proved whole in one step only: the rest of it is proved in `make soak`."""


def every_saga(names: Collection[str], shorter: Collection[str]) -> Any:
    """The operations themselves, by name; `shorter`: those that only an upgrade begins, or that variants prove whole."""
    slow = {name: pytest.mark.soak if name in shorter else pytest.mark.matrix for name in names}
    marks = {
        (name, part): () if part.daily else pytest.mark.matrix if part.quick else slow[name]
        for name in names
        for part in PARTS
    }
    cases = [
        pytest.param(name, part, id=f"{name}-{part.name}", marks=marks[name, part])
        for name in sorted(names)
        for part in PARTS
    ]
    return pytest.mark.parametrize(("name", "part"), cases)
