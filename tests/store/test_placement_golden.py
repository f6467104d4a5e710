"""The statements of a claim, as they are sent: a change here is a change of the heart, and should be seen."""

from pathlib import Path

import pytest

from moorage.store.region.placement import allocation_writes, claim_statements

GOLDEN = Path(__file__).parents[1] / "golden" / "sql"
STATEMENTS = {
    "take_all_that_fit.postgresql.sql": str(claim_statements._TAKE_POSTGRESQL),
    "take_all_that_fit.sqlite.sql": str(claim_statements._take_sqlite(2)),
    "take_all_that_fit_unchanged.sqlite.sql": str(claim_statements._take_sqlite(2, 2)),
    "write_allocations.postgresql.sql": str(claim_statements._WRITE_POSTGRESQL),
    "write_allocations.sqlite.sql": str(claim_statements._write_sqlite(2)),
    "look_at_consumers.sqlite.sql": allocation_writes._CONSUMERS.sqlite,
    "look_at_consumers.postgresql.sql": allocation_writes._CONSUMERS.postgresql,
    "look_at_stocks.sqlite.sql": allocation_writes._LEVELS.sqlite,
    "look_at_stocks.postgresql.sql": allocation_writes._LEVELS.postgresql,
    "look_at_what_is_held.postgresql.sql": allocation_writes._HELD.postgresql,
    "put_counters.sqlite.sql": allocation_writes._COUNT.sqlite,
    "put_generations.sqlite.sql": allocation_writes._ADVANCE.sqlite,
    "put_consumers.sqlite.sql": allocation_writes._OWN.sqlite,
    "put_allocations.sqlite.sql": allocation_writes._HOLD.sqlite,
    "put_allocations_gone.sqlite.sql": allocation_writes._DROP.sqlite,
    "put_all.postgresql.sql": allocation_writes._WRITE.postgresql,
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_statement_is_the_golden_one(name: str) -> None:
    assert STATEMENTS[name].strip() == (GOLDEN / name).read_text().strip()
