"""What the engine for PostgreSQL does with failures, without a server."""

from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from moorage.model.errors import Unavailable
from moorage.sql.meter import Meter
from moorage.sql.postgresql import LOST_RACES, TRIES_AFTER_DEADLOCK, PostgresqlDatabase


class Refusal(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


async def tries(monkeypatch: pytest.MonkeyPatch, sqlstate: str) -> tuple[int, Exception]:
    """How often a transaction is run that always ends so, and how its caller hears of it."""
    database = PostgresqlDatabase("postgresql://nobody@127.0.0.1:1/none", "region", Meter())
    made = 0

    async def once(self: Any, work: Any) -> None:
        nonlocal made
        made += 1
        raise DBAPIError("UPDATE …", {}, Refusal(sqlstate))

    monkeypatch.setattr(PostgresqlDatabase, "_once", once)
    with pytest.raises(Exception, match=r".") as raised:
        await database.write(lambda tx: None)
    await database.close()
    return made, raised.value


@pytest.mark.parametrize("sqlstate", sorted(LOST_RACES))
async def test_a_transaction_that_always_loses_is_unavailable(monkeypatch: pytest.MonkeyPatch, sqlstate: str) -> None:
    made, said = await tries(monkeypatch, sqlstate)
    assert made == TRIES_AFTER_DEADLOCK + 1
    assert isinstance(said, Unavailable)


async def test_errors_of_the_work_are_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    made, said = await tries(monkeypatch, "23505")
    assert made == 1
    assert isinstance(said, DBAPIError)
