"""The parts of every proof, as parameters: the suite spreads them over its workers, and the slow ones run in `make prove` and CI."""

import pytest

from moorage.testing.sagas import PARTS

every_part = pytest.mark.parametrize(
    "part", [pytest.param(part, id=part.name, marks=() if part.quick else pytest.mark.matrix) for part in PARTS]
)
