"""The simulation finds each reintroduced fault; and the same plans pass without it."""

import pytest
import tests.helpers.reintroduced_older_stores  # noqa: F401  # it registers its own
from tests.helpers.reintroduced_faults import NOT_FOUND_YET, REGRESSIONS, SCENE_OF
from tests.helpers.simulation_processes import SOURCE, interpreted

from moorage_testing.simulation import run  # it registers all scenes
from moorage_testing.simulation.plan import LATER_SCENES, SHARES

HERE = SOURCE.parent / "tests" / "simulation"
CHUNKS = 3


def test_every_reintroduced_fault_has_a_scene() -> None:
    assert REGRESSIONS.keys() | NOT_FOUND_YET.keys() == SCENE_OF.keys()
    assert callable(run.simulate)
    assert LATER_SCENES.keys() == SHARES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_reintroduced_faults_are_found(chunk: int) -> None:
    names = sorted(REGRESSIONS)[chunk::CHUNKS]
    ended = interpreted(str(HERE / "broken.py"), *names)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr[-4000:]}"
