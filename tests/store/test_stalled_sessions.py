"""A process that is suspended between preparing and executing a statement keeps no locks: other processes end its session."""

import asyncio
import struct
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from moorage.main.store_watch import end_stalled
from moorage.sql import Database, open_database, postgresql
from moorage.sql.postgresql import PostgresqlDatabase

pytestmark = pytest.mark.postgres

TIMEOUT_MS = 200
WORDS = sa.table("words", sa.column("word"))


class Frozen:
    """A client that speaks PostgreSQL's protocol up to the message before the one that executes, and nothing after that."""

    def __init__(self, url: str, application: str) -> None:
        self._where = urlsplit(url)
        self._application = application

    async def begin(self, statement: str) -> None:
        """`statement` is done in an open transaction; of the next one only its preparation is sent, as asyncpg does."""
        self._reader, self._writer = await asyncio.open_connection(self._where.hostname, self._where.port)
        settings = {
            "user": self._where.username,
            "database": self._where.path[1:],
            "application_name": self._application,
            "idle_in_transaction_session_timeout": str(TIMEOUT_MS),
            "statement_timeout": str(TIMEOUT_MS),
        }
        words = b"".join(f"{key}\0{value}\0".encode() for key, value in settings.items()) + b"\0"
        self._writer.write(struct.pack("!ii", len(words) + 8, 196608) + words)
        await self._until(b"Z")
        self._say(b"Q", f"BEGIN; {statement}\0".encode())
        await self._until(b"Z")
        self._say(b"P", b"\0SELECT 1\0" + struct.pack("!h", 0))
        self._say(b"H", b"")
        await self._until(b"1")

    def _say(self, kind: bytes, body: bytes) -> None:
        self._writer.write(kind + struct.pack("!i", len(body) + 4) + body)

    async def _until(self, wanted: bytes) -> None:
        while True:
            kind = await self._reader.readexactly(1)
            (length,) = struct.unpack("!i", await self._reader.readexactly(4))
            body = await self._reader.readexactly(length - 4)
            assert kind != b"E", body
            if kind == wanted:
                return

    async def ended(self) -> None:
        await self._reader.read()

    async def close(self) -> None:
        self._writer.close()


@pytest.fixture
async def region(postgres_url: str) -> AsyncIterator[Database]:
    opened = await open_database(postgres_url, name="region")
    assert isinstance(opened, PostgresqlDatabase)
    await opened.write(lambda tx: tx.run(sa.text("CREATE TABLE words (word TEXT)")))
    await opened.write(lambda tx: tx.run(sa.text("INSERT INTO words VALUES ('a')")))
    yield opened
    await opened.close()


async def standing(region: Database, application: str, for_s: float) -> bool:
    """Whether a session of this application has waited for its client for so long in the middle of a statement."""
    asked = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = :name"
        " AND state = 'active' AND wait_event = 'ClientRead' AND state_change < clock_timestamp() - make_interval(secs => :s)"
    )
    return await region.read(lambda tx: tx.scalar(asked, {"name": application, "s": for_s})) == 1


async def locked(region: Database) -> bool:
    asked = sa.text("SELECT word FROM words FOR UPDATE SKIP LOCKED")
    return await region.write(lambda tx: tx.rows(asked)) == []


async def stands(region: Database, application: str, for_s: float = 4 * TIMEOUT_MS / 1000) -> None:
    deadline = asyncio.get_running_loop().time() + 180
    while not await standing(region, application, for_s):
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.05)


async def test_a_session_stalled_in_a_statement_is_ended(
    postgres_url: str, region: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "STALLED_S", 2 * TIMEOUT_MS / 1000)
    frozen = Frozen(postgres_url, "moorage")
    await frozen.begin("UPDATE words SET word = 'b'")
    await stands(region, "moorage")
    assert await locked(region), "the server's own time-outs do not end it"
    await end_stalled(region)
    await asyncio.wait_for(frozen.ended(), 60)
    assert not await locked(region)
    assert await region.read(lambda tx: tx.scalar(sa.text("SELECT word FROM words"))) == "a"
    await frozen.close()


async def test_foreign_and_recently_active_sessions_are_left_alone(postgres_url: str, region: Database) -> None:
    other, ours = Frozen(postgres_url, "somebody"), Frozen(postgres_url, "moorage")
    await other.begin("UPDATE words SET word = 'b'")
    await ours.begin("SELECT 1")
    await stands(region, "somebody")
    await stands(region, "moorage")
    await end_stalled(region)
    assert await standing(region, "somebody", 0)
    assert await standing(region, "moorage", 0)
    for each in (other, ours):
        await each.close()
