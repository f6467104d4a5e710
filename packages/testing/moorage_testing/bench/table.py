"""The table: one row per measure, with its budget; red when it is missed."""

import sys
from dataclasses import dataclass, field
from typing import Literal

GREEN, RED, DIM, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True)
class BenchRow:
    """One measure. `counting` ones are free of noise: missing one fails the bench."""

    name: str
    value: float
    unit: str = ""
    budget: float | None = None
    sense: Literal["at most", "at least"] = "at most"
    counting: bool = False
    note: str = ""

    @property
    def missed(self) -> bool:
        if self.budget is None:
            return False
        return self.value > self.budget if self.sense == "at most" else self.value < self.budget


@dataclass
class Table:
    """Printed as it grows: a long bench shows what it has."""

    rows: list[BenchRow] = field(default_factory=list[BenchRow])

    def title(self, words: str) -> None:
        print_line(f"\n{words}")

    def add(self, row: BenchRow) -> None:
        self.rows.append(row)
        budget = "" if row.budget is None else f"{'≤' if row.sense == 'at most' else '≥'} {row.budget:g}"
        verdict = "" if row.budget is None else (_painted("missed", RED) if row.missed else _painted("kept", GREEN))
        print_line(
            f"  {row.name:58} {_number(row.value):>10} {row.unit:9} {budget:>8}  {verdict:6}  {_painted(row.note, DIM)}"
        )

    @property
    def broken(self) -> list[BenchRow]:
        return [row for row in self.rows if row.counting and row.missed]

    @property
    def missed(self) -> list[BenchRow]:
        return [row for row in self.rows if row.missed and not row.counting]


def print_line(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _painted(words: str, colour: str) -> str:
    return f"{colour}{words}{PLAIN}" if words and sys.stdout.isatty() else words
