"""`make bench`: the measures of docs/performance.md, printed as a table with budgets.

Exit 1 only when a counting budget is broken; figures of time depend on the machine and stay red in the table.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from moorage_testing.bench import (
    against,
    candidates,
    capacity,
    claims,
    counts,
    decisions,
    fleets,
    machine,
    moves,
    network_bound,
    peers,
    peers_placement,
    placement,
    port_costs,
    provider_cache,
    rates,
    reads,
    rounds,
    startup,
    waiting,
    watching,
)
from moorage_testing.bench.clouds import Kind, backing, cloud
from moorage_testing.bench.table import Table, print_line

PARTS = (
    *("counts", "rates", "reads", "growth", "startup", "moves"),
    *(
        "fleets",
        "capacity",
        "placement",
        "claims",
        "candidates",
        "nested",
        "picture",
        "network",
        "shift",
        "rounds",
        "watching",
        "waiting",
        "decisions",
    ),
)


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m moorage_testing.bench", description=__doc__)
    options.add_argument(
        "--peers", action="store_true", help="only the rows beside real peers (they are installed first)"
    )
    options.add_argument("--only", help=f"comma-separated parts of: {', '.join(PARTS)}; with --peers: placement, stack")
    options.add_argument("--on", choices=("sqlite", "postgresql"), help="only on this kind of database")
    options.add_argument("--boots", type=int, default=rates.BOOTS, help=f"boots per rate (default: {rates.BOOTS})")
    options.add_argument("--durability", choices=("power", "process"), default="power", help="of SQLite's commits")
    options.add_argument(
        "--against", metavar="REF", help="the same of this commit, in turns with this tree, and the ratios"
    )
    options.add_argument("--turns", type=int, default=3, help="with --against: how often each is measured (default: 3)")
    return options


async def growth(parts: Sequence[str], table: Table) -> None:
    """What must not grow with the number of servers, and what their moves cost."""
    if "growth" in parts:
        table.title("Growth, SQLite")
        await rates.growth(table)
    if "rounds" in parts:
        table.title("Periodic rounds, SQLite: in one process of the region")
        await rounds.rounds(table)
    if "moves" in parts:
        table.title("Moves, SQLite")
        await moves.moves(table)
    if "waiting" in parts:
        table.title("Servers that wait for a host, SQLite: in the conductor that leads")
        await waiting.waiting_servers(table)
    if "watching" in parts:
        table.title("Being watched, SQLite (durability power)")
        await watching.watching(table)
    if "decisions" in parts:
        table.title("Decisions that are kept, SQLite (durability power)")
        await decisions.decisions(table)


def in_memory(parts: Sequence[str], table: Table) -> None:
    """What needs no database."""
    if "fleets" in parts:
        table.title("Servers that fleets hold, counted in memory")
        fleets.fleets(table)
    if "capacity" in parts:
        table.title("What fits, and what if a rack fails, in memory")
        capacity.capacity(table)


async def bench(arguments: argparse.Namespace, table: Table) -> None:
    parts = tuple((arguments.only or ",".join(PARTS)).split(","))
    kinds: tuple[Kind, ...] = (arguments.on,) if arguments.on else ("sqlite", "postgresql")
    for kind in kinds:
        if {"counts", "rates", "reads"} & set(parts):
            await on(kind, parts, arguments, table)
    await growth(parts, table)
    if "startup" in parts:
        table.title("Start")
        startup.start_up(table)
    if "shift" in parts and "postgresql" in kinds:
        table.title(
            "Who makes and binds the ports: the hosts (level 1) or the conductor (level 3); processes, PostgreSQL and NATS"
        )
        await port_costs.shift(table)
    if "network" in parts and "sqlite" in kinds:
        await network_bound.network_bound(table, arguments.durability)
    in_memory(parts, table)
    if "placement" in parts:
        table.title(f"Placement in process, SQLite (durability {arguments.durability})")
        await placement.placement(table, arguments.durability)
    if "picture" in parts:
        await provider_cache.measure_cache(table, kinds)
    if "claims" in parts:
        table.title("Durable claims, PostgreSQL; PUT /allocations over HTTP, another process's load")
        await claims.claims(table)
    if "candidates" in parts:
        table.title(f"Allocation candidates over HTTP, SQLite (durability {arguments.durability}), one connection")
        await candidates.candidates(table)
    if "nested" in parts:
        table.title("Hosts of seven providers, PostgreSQL (fsync on, READ COMMITTED), one connection")
        await candidates.nested(table)


async def on(kind: Kind, parts: tuple[str, ...], arguments: argparse.Namespace, table: Table) -> None:
    """Counts, rates and reads of one cloud."""
    title = "SQLite, bus in memory" if kind == "sqlite" else "PostgreSQL and NATS"
    kept = f"durability {arguments.durability}" if kind == "sqlite" else "fsync on"
    table.title(f"One process on {title} ({kept}), {rates.HOSTS} simulated hosts in two cells, embedded neighbours")
    with backing(kind) as found:
        async with cloud(found, hosts=rates.HOSTS, durability=arguments.durability) as running:
            if "counts" in parts:
                await counts.count(table, running)
            if "rates" in parts:
                await rates.rate(table, running, arguments.boots)
            if "reads" in parts:
                await reads.reads(table, running)


async def compare_with_peers(only: str | None, table: Table) -> None:
    """`--only placement` or `--only stack` narrows it."""
    parts = (only or "placement,stack").split(",")
    if "placement" in parts:
        await peers_placement.compare_with_placement(table)
    if "stack" in parts:
        await peers.peers(table)


def _without(argv: Sequence[str], *options: str) -> list[str]:
    """The command line without these options and their values."""
    rest = parser().parse_args(argv)
    kept: list[str] = []
    for name, value in vars(rest).items():
        option = f"--{name}"
        if option in options or value is None or value is False:
            continue
        kept += [option] if value is True else [option, str(value)]
    return kept


def main(argv: Sequence[str]) -> int:
    arguments = parser().parse_args(argv)
    if arguments.against:
        return against.compare(arguments.against, arguments.turns, _without(argv, "--against", "--turns"))
    table = Table()
    print_line(machine.described(Path(tempfile.gettempdir())))
    print_line("The load comes from this process; CPU is that of the cloud's process, user and system, all threads.")
    if arguments.peers:
        asyncio.run(compare_with_peers(arguments.only, table))
    else:
        asyncio.run(bench(arguments, table))
    print_line("")
    for row in table.missed:
        print_line(
            f"missed: {row.name}: {row.value:.3g} {row.unit}, target {row.budget:g} (docs/performance.md says why)"
        )
    for row in table.broken:
        print_line(f"BROKEN: {row.name}: {row.value:.3g}, budget {row.budget:g}")
    return 1 if table.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
