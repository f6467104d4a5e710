"""The whole cloud under the faults of many seeds: nothing is lost, nothing leaks, nothing is stuck."""

import pytest
from tests.helpers.simulation_processes import interpreted, simulated

SEEDS = 300
CHUNKS = 4
SOAK_SEEDS = 10_000
SOAK_CHUNKS = 20


OPEN: dict[int, str] = {}
"""Seeds that found what is not mended yet."""


def hold(first: int, count: int, part: int, of: int) -> None:
    """A part of so many seeds."""
    known = [word for seed in OPEN for word in ("--but", str(seed))]
    ended = simulated("--seeds", f"{first}-{first + count - 1}", "--part", f"{part + 1}/{of}", *known)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr[-4000:]}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_seeds(chunk: int) -> None:
    hold(0, SEEDS, chunk, CHUNKS)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(SOAK_CHUNKS))
def test_many_seeds(chunk: int) -> None:
    hold(SEEDS, SOAK_SEEDS, chunk, SOAK_CHUNKS)


@pytest.mark.slow
def test_a_seed_replays_exactly() -> None:
    """Two interpreters, one trace; another seed has another."""
    output = [simulated("--seed", seed, "--whole").stdout.splitlines()[-1] for seed in ("7", "7", "8")]
    assert output[0].startswith("trace ")
    assert output[0] == output[1]
    assert output[0] != output[2]


@pytest.mark.slow
def test_seeds_started_together_run_as_if_alone() -> None:
    """What one does is nothing to the next."""
    ended = interpreted("-c", TOGETHER)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr[-4000:]}"


TOGETHER = f"""
from moorage_testing.simulation.plan import drawn
from moorage_testing.simulation.run import WARMED_BY, simulate, simulate_all
from moorage_testing.simulation.starts import start_of

alike = [plan for plan in map(drawn, range({SEEDS})) if start_of(plan) == start_of(drawn(7))][:WARMED_BY + 3]
together = {{outcome.plan.seed: outcome.digest for outcome in simulate_all(alike)}}
assert len(set(together.values())) == len(alike) > WARMED_BY
for plan in alike[-2:]:
    assert simulate(plan).digest == together[plan.seed], plan.seed
"""
