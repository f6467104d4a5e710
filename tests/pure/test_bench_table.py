"""The table of the benchmarks: missed budgets, and what fails a run."""

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
