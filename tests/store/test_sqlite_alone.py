"""A transaction in a commit of its own is rolled back completely, and the writer can run the next one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from moorage.sql import Database, Tx, label, open_database

metadata = sa.MetaData()
words = sa.Table("words", metadata, sa.Column("word", sa.String, primary_key=True))


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await open_database(f"sqlite:///{tmp_path / 'words.db'}", name="words")
    await opened.create(metadata)
    yield opened
    await opened.close()


async def kept(database: Database) -> list[str]:
    return [row.word for row in await database.read(lambda tx: tx.rows(sa.select(words).order_by(words.c.word)))]


def say(word: str, then: str = "") -> "object":
    def work(tx: Tx) -> str:
        tx.run(words.insert(), {"word": word})
        if then == "refuse":
            tx.refuse("no")
        if then == "break":
            raise ValueError(word)
        return word

    return work


async def test_single_and_batched_reads_are_equal(database: Database) -> None:
    assert await database.write(say("a")) == "a"  # type: ignore[arg-type]
    assert await database.write(say("b", "refuse")) == "no"  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="c"):
        await database.write(say("c", "break"))  # type: ignore[arg-type]
    with pytest.raises(sa.exc.IntegrityError):
        await database.write(say("a"))  # type: ignore[arg-type]
    assert await kept(database) == ["a"]
    together = [database.write(say(f"t{n}", "break" if n % 3 == 0 else "")) for n in range(30)]  # type: ignore[arg-type]
    answers = await asyncio.gather(*together, return_exceptions=True)
    assert [isinstance(each, ValueError) for each in answers] == [n % 3 == 0 for n in range(30)]
    assert await kept(database) == sorted(["a", *(f"t{n}" for n in range(30) if n % 3)])


async def test_a_failed_read_fails_only_its_caller(database: Database) -> None:
    def broken(tx: Tx) -> None:
        raise LookupError(tx.dialect)

    with pytest.raises(LookupError):
        await database.read(broken)
    assert await kept(database) == []


async def test_a_shared_commit_is_counted_once_and_each_name_is_known(database: Database) -> None:
    async def written(word: str) -> None:
        with label(word):
            await database.write(say(word))  # type: ignore[arg-type]

    database.meter.reset()
    await asyncio.gather(*(written(f"w{n}") for n in range(20)))
    assert all(database.meter.has_committed(f"w{n}") for n in range(20))
    assert sum(database.meter.commits.values()) + sum(database.meter.shared.values()) == 20
    assert sum(database.meter.shared.values()) > 0, "the writes were meant to share a commit"
