"""Runs seeds on a cloud with a reintroduced fault, until a seed finds it that finds nothing in a correct cloud.

`python broken.py NAME [NAME …]`: names of `tests/helpers/reintroduced_faults.py`, each with the scene that is in its plans.
"""

import sys

import tests.helpers.reintroduced_older_stores  # noqa: F401  # it registers its own
from tests.helpers.reintroduced_faults import NOT_FOUND_YET, REGRESSIONS, SCENE_OF

from moorage_testing.simulation.plan import drawn
from moorage_testing.simulation.run import simulate
from moorage_testing.simulation.template import template

SEEDS = 500


def finder(name: str) -> str:
    """What is said of it; empty: no seed finds it."""
    for seed in range(SEEDS):
        plan = drawn(seed, SCENE_OF[name])
        with {**REGRESSIONS, **NOT_FOUND_YET}[name]():
            broken = simulate(plan)
        if broken.failed and not simulate(plan).failed:
            return f"found by seed {seed}: {broken.violations[0]}"
    return ""


def main(names: list[str]) -> int:
    """1 when one of them is not found."""
    template()  # of the cloud as it is
    missed = 0
    for name in names:
        found = finder(name)
        missed += not found
        sys.stdout.write(f"{name}: {found or 'not found'}\n")
        sys.stdout.flush()
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
