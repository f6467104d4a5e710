"""Every operation, with each answer of a host lost once, and the host silent afterwards (RULES §24, §25)."""

from collections.abc import AsyncIterator

import pytest
from tests.sagas.test_operations_proof import scenario

from moorage.operations.registry import SAGAS
from moorage.operations.steps.sleepers import WAITING_BOOTS
from moorage_testing.proof_silence import prove_unanswered
from moorage_testing.region_fixture import SmallRegion
from moorage_testing.region_prepared import PreparedRegion


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


LEFT_HALF_REPAIRED = "repair_devices/1"
"""Each of its changes is right by itself: what is left of it is found, and done, by the next audit."""


@pytest.mark.parametrize("name", sorted(SAGAS.keys() - {*WAITING_BOOTS, LEFT_HALF_REPAIRED}))
async def test_no_lost_answer_leaves_anything_behind(name: str, small: SmallRegion) -> None:
    asked, new_world = await scenario(small, name)
    await prove_unanswered(SAGAS[name], asked, PreparedRegion(small, new_world))
