"""The statements of a claim, as they are sent: this test shows every change of them."""

from pathlib import Path

import pytest

from moorage.store.region.placement import allocation_writes, claim_statements

GOLDEN = Path(__file__).parents[1] / "golden" / "sql"
STATEMENTS = {
    "postgresql/take_all_that_fit.sql": str(claim_statements._TAKE_POSTGRESQL),
    "sqlite/take_all_that_fit.sql": str(claim_statements._take_sqlite(2)),
    "sqlite/take_all_that_fit_unchanged.sql": str(claim_statements._take_sqlite(2, 2)),
    "postgresql/write_allocations.sql": str(claim_statements._WRITE_POSTGRESQL),
    "sqlite/write_allocations.sql": str(claim_statements._write_sqlite(2)),
    "sqlite/look_at_consumers.sql": allocation_writes._CONSUMERS.sqlite,
    "postgresql/look_at_consumers.sql": allocation_writes._CONSUMERS.postgresql,
    "sqlite/look_at_stocks.sql": allocation_writes._LEVELS.sqlite,
    "postgresql/look_at_stocks.sql": allocation_writes._LEVELS.postgresql,
    "postgresql/look_at_what_is_held.sql": allocation_writes._HELD.postgresql,
    "sqlite/put_counters.sql": allocation_writes._COUNT.sqlite,
    "sqlite/put_generations.sql": allocation_writes._ADVANCE.sqlite,
    "sqlite/put_consumers.sql": allocation_writes._OWN.sqlite,
    "sqlite/put_allocations.sql": allocation_writes._HOLD.sqlite,
    "sqlite/put_allocations_gone.sql": allocation_writes._DROP.sqlite,
    "postgresql/put_all.sql": allocation_writes._WRITE.postgresql,
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_statements_equal_the_golden_file(name: str) -> None:
    assert STATEMENTS[name].strip() == (GOLDEN / name).read_text().strip()
