"""The same parts of another commit and of this tree, in turns in one run: machines differ from hour to hour, ratios do not."""

import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from moorage_testing.bench.table import print_line

HERE = Path(__file__).parents[4]
"""The repository of this tree."""
ROW = re.compile(r"  (?P<name>.{58,}?) (?=.{10} )\s*(?P<value>-?\d[\d.e+-]*) (?P<unit>\S*)")
"""A line of `Table`."""


def rows_of(printed: str) -> Iterator[tuple[str, float, str]]:
    """Name, value and unit of each row that a bench printed. A name that is printed under two titles is two names."""
    title = ""
    for line in printed.splitlines():
        if (row := ROW.match(line)) is not None:
            yield f"{row['name'].strip()} [{title}]", float(row["value"]), row["unit"]
        elif line and not line.startswith(" "):
            title = line.partition(",")[0].partition(":")[0]


def compare(ref: str, turns: int, arguments: Sequence[str]) -> int:
    """Print the median of each row of both trees, and the median of its ratios, turn by turn. Raises CalledProcessError when a bench
    did not end, or when git knows no such commit.
    """
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as room:
        packed = subprocess.run(["git", "-C", str(HERE), "archive", ref], check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", room], check=True, input=packed)
        seen: list[tuple[dict[str, float], dict[str, float]]] = []
        units: dict[str, str] = {}
        for turn in range(turns):
            order = (Path(room), HERE) if turn % 2 == 0 else (HERE, Path(room))
            found = {tree: _bench(tree, arguments, units) for tree in order}
            seen.append((found[Path(room)], found[HERE]))
            print_line(f"turn {turn + 1} of {turns} has ended")
    _print(ref, seen, units)
    return 0


def _bench(tree: Path, arguments: Sequence[str], units: dict[str, str]) -> dict[str, float]:
    """Its code is found before the installed one; libraries are those of this environment. A missed budget is no failure here."""
    places = [tree / "src", *sorted((tree / "packages").iterdir())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    command = [sys.executable, "-m", "moorage_testing.bench", *arguments]
    ended = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True)
    values: dict[str, float] = {}
    for name, value, unit in rows_of(ended.stdout):
        values[name] = value
        units[name] = unit
    if not values:
        raise subprocess.CalledProcessError(ended.returncode, command, ended.stdout)
    return values


def _print(ref: str, seen: Sequence[tuple[dict[str, float], dict[str, float]]], units: dict[str, str]) -> None:
    print_line(
        f"\n  {'median of ' + str(len(seen)) + ' turns':90} {ref[:12]:>12} {'this tree':>12} {'ratio':>7}  least to most"
    )
    for name in seen[0][1]:
        both = [(old[name], new[name]) for old, new in seen if name in old and name in new]
        if not both:
            print_line(f"  {name:90} {'-':>12} {seen[0][1][name]:>12.4g}")
            continue
        ratios = sorted(new / old for old, new in both if old)
        span = f"{statistics.median(ratios):>7.3f}  {ratios[0]:.3f} to {ratios[-1]:.3f}" if ratios else ""
        old, new = (statistics.median(each[at] for each in both) for at in (0, 1))
        print_line(f"  {name:90} {old:>12.4g} {new:>12.4g} {span} {units[name]}")
