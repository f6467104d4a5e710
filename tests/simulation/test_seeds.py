"""The whole cloud under the faults of many seeds: nothing is lost, nothing is left, nothing is stuck."""

import pytest
from interpreters import simulated

SEEDS = 300
CHUNKS = 4
SOAK_SEEDS = 10_000
SOAK_CHUNKS = 20


OPEN: dict[int, str] = {}
"""Seeds that found what is not mended yet."""


def hold(first: int, count: int) -> None:
    known = [word for seed in OPEN for word in ("--but", str(seed))]
    ended = simulated("--seeds", f"{first}-{first + count - 1}", *known)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr[-4000:]}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_seeds(chunk: int) -> None:
    hold(chunk * SEEDS // CHUNKS, SEEDS // CHUNKS)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(SOAK_CHUNKS))
def test_many_seeds(chunk: int) -> None:
    hold(SEEDS + chunk * SOAK_SEEDS // SOAK_CHUNKS, SOAK_SEEDS // SOAK_CHUNKS)


@pytest.mark.slow
def test_a_seed_replays_exactly() -> None:
    """Two interpreters, one trace; another seed has another."""
    said = [simulated("--seed", seed, "--whole").stdout.splitlines()[-1] for seed in ("7", "7", "8")]
    assert said[0].startswith("trace ")
    assert said[0] == said[1]
    assert said[0] != said[2]
