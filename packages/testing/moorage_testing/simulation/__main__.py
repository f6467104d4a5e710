"""`python -m moorage_testing.simulation --seed N`: see docs/howto/simulate.md."""

import argparse
import hashlib
import os
import sys
from pathlib import Path

import msgspec

from moorage_testing.simulation.determinism import hash_is_fixed
from moorage_testing.simulation.plan import SimulationPlan, drawn
from moorage_testing.simulation.run import SimulationOutcome, simulate, simulate_all, summed
from moorage_testing.simulation.shrink import shrunk
from moorage_testing.simulation.starts import start_of


def _parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="moorage_testing.simulation", description=__doc__)
    options.add_argument("--seed", type=int, action="append", default=[], help="run this seed and show its trace")
    options.add_argument("--seeds", help="run these and say which fail: 0-299")
    options.add_argument("--scene", help="of --seed and --seeds: with this scene in their plans")
    options.add_argument("--part", default="1/1", help="of --seeds: those of this part, 2/4, which begin alike")
    options.add_argument("--but", type=int, action="append", default=[], help="of --seeds: not this one")
    options.add_argument(
        "--plan", type=Path, action="append", default=[], help="run the plan in this file (JSON) and show its trace"
    )
    options.add_argument("--save", type=Path, help="write the plan of --seed, shortened if it fails, to this file")
    options.add_argument("--whole", action="store_true", help="do not look for the shortest plan that fails")
    return options


def main(argv: list[str]) -> int:
    """1 when a simulation failed."""
    arguments = _parser().parse_args(argv)
    if not hash_is_fixed():
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "moorage_testing.simulation", *argv], environment)
    if arguments.seeds:
        first, _, last = arguments.seeds.partition("-")
        seeds = range(int(first), int(last or first) + 1)
        return _many([each for each in seeds if each not in arguments.but], arguments.scene, arguments.part)
    plans = [drawn(seed, arguments.scene) for seed in arguments.seed]
    plans += [msgspec.json.decode(each.read_bytes(), type=SimulationPlan) for each in arguments.plan]
    failed = [_one(plan, arguments) for plan in plans]
    return int(any(failed))


def _one(plan: SimulationPlan, arguments: argparse.Namespace) -> bool:
    outcome = simulate(plan)
    if outcome.failed and not arguments.whole:
        outcome = shrunk(outcome)
    if arguments.save:
        arguments.save.write_bytes(msgspec.json.format(msgspec.json.encode(outcome.plan), indent=1))
    print(outcome_text(outcome))
    return outcome.failed


def outcome_text(outcome: SimulationOutcome) -> str:
    """The plan, what happened, and what is wrong."""
    plan = outcome.plan
    across = ", servers may leave their segments" if plan.across else ""
    across += ", and their cells" if plan.cross_cell else ""
    lines = [f"seed {plan.seed}: {len(plan.events)} events in {plan.span_s} s, hosts of levels {plan.levels}{across}"]
    lines += [f"  {event.text()}" for event in plan.events]
    lines += ["", *outcome.lines, ""]
    verdict = [f"VIOLATED: {each}" for each in outcome.violations] or ["all is as it must be"]
    return "\n".join([*lines, *verdict, f"trace {outcome.digest}, {outcome.events} events, {outcome.virtual_s:.0f} s"])


def _many(seeds: list[int], scene: str | None, part: str) -> int:
    began = _cpu_s()
    plans = sorted((drawn(seed, scene) for seed in seeds), key=start_of)
    number, _, of = part.partition("/")
    first, last = (len(plans) * each // int(of) for each in (int(number) - 1, int(number)))
    outcomes: list[SimulationOutcome] = []
    for outcome in simulate_all(plans[first:last]):
        outcomes.append(outcome)
        if outcome.failed:
            print(f"seed {outcome.plan.seed}: {outcome.violations[0]}", flush=True)
    outcomes.sort(key=lambda each: each.plan.seed)
    failed = [each for each in outcomes if each.failed]
    traces = hashlib.blake2b("".join(each.digest for each in outcomes).encode(), digest_size=16)
    hours, cpu_s = sum(each.virtual_s for each in outcomes) / 3600, _cpu_s() - began
    print(
        f"{len(outcomes)} seeds, {len(failed)} failed: {[each.plan.seed for each in failed]}; {hours:.1f} simulated hours in "
        f"{cpu_s:.1f} s of CPU ({cpu_s / len(outcomes):.2f} s each), {sum(each.events for each in outcomes)} events; "
        f"traces {traces.hexdigest()}"
    )
    print(", ".join(f"{count} {kind}" for kind, count in summed(outcomes).most_common()))
    if failed:
        print(f"\nthe first of them, made short:\n{outcome_text(shrunk(failed[0]))}")
    return int(bool(failed))


def _cpu_s() -> float:
    """Of this process, and of those that it made."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
