"""Console tokens: stored as hashes, limited for each server, usable once, and removed."""

import asyncio

import pytest

from moorage.model.console import ConsoleSocket, ConsoleToken
from moorage.sql import Database
from moorage.store.region import console_tokens
from moorage.store.region.tables import region_metadata


@pytest.fixture
async def region(database: Database) -> Database:
    await database.create(region_metadata)
    return database


def a_token(number: int, server: str = "s", expires_at: int = 1_000) -> ConsoleToken:
    return ConsoleToken(
        f"hash{number}", server, "novnc", "host1", ConsoleSocket("192.0.2.1", 5900, None, "/p"), expires_at, number
    )


async def add(region: Database, *tokens: ConsoleToken, most: int = 3) -> None:
    for each in tokens:
        await region.write(lambda tx, new=each: console_tokens.add(tx, new, most))  # type: ignore[misc]


async def there(region: Database, numbers: range) -> list[int]:
    return [n for n in numbers if await region.read(lambda tx, n=n: console_tokens.get(tx, f"hash{n}")) is not None]  # type: ignore[misc]


async def test_a_server_has_a_limited_number_of_tokens(region: Database) -> None:
    await add(region, *(a_token(n) for n in range(6)), a_token(9, "other"))
    assert await there(region, range(10)) == [3, 4, 5, 9]
    kept = await region.read(lambda tx: console_tokens.get(tx, "hash5"))
    assert kept == a_token(5)


async def test_of_concurrent_uses_of_a_token_one_succeeds(region: Database) -> None:
    await add(region, a_token(1))
    took = await asyncio.gather(*(region.write(lambda tx: console_tokens.take(tx, "hash1", 999)) for _ in range(8)))
    assert sorted(took) == [False] * 7 + [True]
    kept = await region.read(lambda tx: console_tokens.get(tx, "hash1"))
    assert kept is not None
    assert kept.used


async def test_expired_tokens_are_refused_and_removed(region: Database) -> None:
    await add(region, a_token(1), a_token(2, expires_at=2_000), a_token(3, "other"))
    assert not await region.write(lambda tx: console_tokens.take(tx, "hash1", 1_000))
    assert await region.write(lambda tx: console_tokens.forget_expired(tx, 1_000, 1)) == 1
    assert await region.write(lambda tx: console_tokens.forget_expired(tx, 1_000, 10)) == 1
    assert await there(region, range(10)) == [2]
