"""Plans that once failed, each for its own reason; their names say which."""

from pathlib import Path

import pytest
from tests.helpers.simulation_processes import simulated

PLANS = sorted((Path(__file__).parent / "plans").glob("*.json"))


@pytest.mark.slow
def test_plans_that_failed_once_pass() -> None:
    ended = simulated("--whole", *(word for plan in PLANS for word in ("--plan", str(plan))))
    assert ended.returncode == 0, f"{ended.stdout[-20000:]}\n{ended.stderr[-4000:]}"
