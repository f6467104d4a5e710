"""The table of the benchmarks: missed budgets, and what fails a run."""

import pytest

from moorage_testing.bench.against import rows_of
from moorage_testing.bench.table import BenchRow, Table


def test_only_a_broken_counting_budget_fails() -> None:
    table = Table()
    table.add(BenchRow("slow", 9.0, "ms", 4.0))
    table.add(BenchRow("few", 10.0, "/s", 250.0, "at least"))
    table.add(BenchRow("statements", 14, budget=14, counting=True))
    assert [row.name for row in table.missed] == ["slow", "few"]
    assert table.broken == []
    table.add(BenchRow("commits", 6, budget=5, counting=True))
    assert [row.name for row in table.broken] == ["commits"]


def test_without_a_budget_no_row_is_missed() -> None:
    assert not BenchRow("published", 1.28).missed


def test_printed_rows_are_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    """For the comparison with another commit, whose bench knows nothing of it."""
    table = Table()
    rows = [
        BenchRow("servers to ACTIVE, 64 in flight, 100 hosts, SQLite", 187.2, "/s", 250, "at least", note="300 boots"),
        BenchRow("statements", 14, budget=14, counting=True),
        BenchRow("a name of 70 characters, which is longer than the column that it is in", 0.05, "ms"),
        BenchRow("growth (exponent)", -0.0123),
        BenchRow("rows", 1_000_000.0),
    ]
    for title in ("One process on SQLite, bus in memory", "Moves: each"):
        table.title(title)
        for row in rows:
            table.add(row)
    read = list(rows_of(capsys.readouterr().out))
    assert [(value, unit) for _, value, unit in read[:5]] == [
        (187, "/s"), (14, ""), (0.05, "ms"), (-0.0123, ""), (1_000_000, ""),
    ]  # fmt: skip
    assert (
        read[2][0] == "a name of 70 characters, which is longer than the column that it is in [One process on SQLite]"
    )
    assert read[6][0] == "statements [Moves]"
