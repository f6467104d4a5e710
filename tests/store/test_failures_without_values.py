"""A database error is logged with its statement, and without users' data."""

import traceback

import pytest
import sqlalchemy as sa

from moorage.sql import Database

SECRET = "CANARY of a tenant"
TABLE = sa.Table(
    "kept",
    sa.MetaData(),
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("number", sa.Integer, nullable=False),
)


async def said_of(database: Database, *rows: dict[str, object]) -> str:
    with pytest.raises(Exception, match=r"(?i)constraint") as failed:
        await database.write(lambda tx: [tx.run(sa.insert(TABLE).values(row)) for row in rows])
    return "".join(traceback.format_exception(failed.value)) + repr(failed.value)


async def test_a_database_traceback_contains_no_values(database: Database) -> None:
    await database.create(TABLE.metadata)
    for rows in (
        ({"id": SECRET, "number": 1}, {"id": SECRET, "number": 2}),
        ({"id": SECRET, "number": None},),
    ):
        said = await said_of(database, *rows)
        assert "INSERT INTO kept" in said
        assert SECRET not in said
