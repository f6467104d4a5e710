"""Runs seeds on a cloud that was broken on purpose, until one finds it: `python broken.py NAME SEED [SEED …]`."""

import sys

from moorage.testing.simulation.plan import drawn
from moorage.testing.simulation.run import simulate
from moorage.testing.simulation.template import template


def main(name: str, seeds: list[int]) -> int:
    """1 when none of the seeds fails."""
    from regressions import REGRESSIONS

    template()  # of the cloud as it is
    with REGRESSIONS[name]():
        for seed in seeds:
            outcome = simulate(drawn(seed))
            if outcome.failed:
                sys.stdout.write(f"{name} is found by seed {seed}: {outcome.violations[0]}\n")
                return 0
    sys.stdout.write(f"{name} is not found by {len(seeds)} seeds\n")
    return 1


if __name__ == "__main__":
    first, _, last = sys.argv[2].partition("-")
    sys.exit(main(sys.argv[1], list(range(int(first), int(last or first) + 1))))
