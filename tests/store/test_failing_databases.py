"""Databases that are full, read-only, damaged, slow or hanging are `Unavailable` within bounded time, with the reason."""

import asyncio
import os
import signal
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import asyncpg
import pytest
import sqlalchemy as sa

from moorage.main.local_cluster.postgres import PostgresServer, start_postgres
from moorage.main.observability.database_reads import PATIENCE_S as LOOK_S
from moorage.main.observability.database_reads import CachedReads
from moorage.model.errors import Invalid, Unavailable, UnknownOutcome
from moorage.sql import Database, DatabaseLimits, DatabaseLoad, Tx, open_database
from moorage.sql.failures import RETRY_AFTER_S, TAKEN_BACK, of_postgresql, of_sqlite
from moorage.sql.postgresql import PostgresqlDatabase
from moorage.sql.sqlite import SqliteDatabase
from moorage.store.region.counts import Backlog
from moorage.store.region.tables import region_metadata
from moorage_testing.waiting import PATIENCE_S, until

metadata = sa.MetaData()
words = sa.Table("words", metadata, sa.Column("word", sa.String, primary_key=True))


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await open_database(f"sqlite:///{tmp_path}/words.db", name="words", limits=DatabaseLimits(file_wait_s=0.3))
    await opened.create(metadata)
    yield opened
    await opened.close()


def say(word: str) -> "object":
    return lambda tx: tx.run(words.insert(), {"word": word})


async def kept(database: Database) -> int:
    return cast("int", await database.read(lambda tx: tx.scalar(sa.select(sa.func.count()).select_from(words))))


def pragma(text: str) -> "object":
    def work(tx: Tx) -> object:
        assert tx._raw is not None  # pyright: ignore[reportPrivateUsage]
        return tx._raw.execute(f"PRAGMA {text}").fetchall()  # pyright: ignore[reportPrivateUsage]

    return work


async def test_a_full_disk_is_reported_and_waits_for_an_operator(file: Database) -> None:
    """Alone and together with others: what one's failure took back of the others, they are told."""
    await file.write(pragma("max_page_count=8"))  # type: ignore[arg-type]
    big = "x" * 8000
    with pytest.raises(Unavailable, match="words database is out of disk space") as full:
        await file.write(say(big * 8))  # type: ignore[arg-type]
    assert full.value.retry_after_s == RETRY_AFTER_S
    assert not isinstance(full.value, UnknownOutcome)
    before = await kept(file)
    answers = await asyncio.gather(*(file.write(say(f"t{n}{big}")) for n in range(20)), return_exceptions=True)  # type: ignore[arg-type]
    assert {type(each) for each in answers} == {Unavailable}
    assert all("out of disk space" in str(each) for each in answers)
    assert await kept(file) == before
    await file.write(pragma("max_page_count=100000"))  # type: ignore[arg-type]
    await file.write(say("again"))  # type: ignore[arg-type]
    assert await kept(file) == before + 1


async def test_an_unwritable_file_is_reported(file: Database) -> None:
    assert isinstance(file, SqliteDatabase)
    writer = cast("sqlite3.Connection", file._writing.connection.driver_connection)  # pyright: ignore[reportPrivateUsage]
    writer.execute("PRAGMA query_only=ON")
    with pytest.raises(Unavailable, match="read-only"):
        await file.write(say("a"))  # type: ignore[arg-type]
    writer.execute("PRAGMA query_only=OFF")
    await file.write(say("a"))  # type: ignore[arg-type]
    assert await kept(file) == 1


async def test_a_file_that_is_no_database_is_reported_when_opened(tmp_path: Path) -> None:
    (tmp_path / "words.db").write_bytes(b"no database at all, and longer than a header of a hundred bytes" * 4)
    with pytest.raises(Unavailable, match="the words database is no database file"):
        await open_database(f"sqlite:///{tmp_path}/words.db", name="words")


async def test_a_hanging_disk_is_given_up_and_waiting_work_is_not_run_later(file: Database) -> None:
    goes_on, ran = threading.Event(), []
    hung = asyncio.ensure_future(file.write(lambda tx: goes_on.wait(120)))
    reads = [asyncio.ensure_future(file.read(lambda tx: goes_on.wait(120))) for _ in range(6)]
    behind = asyncio.ensure_future(file.write(lambda tx: ran.append("late")))
    async with asyncio.timeout(60):
        with pytest.raises(UnknownOutcome, match="has not answered"):
            await hung
        with pytest.raises(UnknownOutcome, match="has not answered"):
            await behind
        answers = await asyncio.gather(*reads, return_exceptions=True)
    assert {type(each) for each in answers} == {Unavailable}
    goes_on.set()
    async with asyncio.timeout(60):
        await file.write(say("after"))  # type: ignore[arg-type]
    assert await kept(file) == 1
    assert ran == []


def test_a_disk_failure_in_a_commit_has_an_unknown_outcome() -> None:
    failed = sqlite3.OperationalError("disk I/O error")
    failed.sqlite_errorcode = sqlite3.SQLITE_IOERR | (4 << 8)  # type: ignore[misc]  # SQLITE_IOERR_FSYNC
    assert type(of_sqlite("region", failed)) is Unavailable
    assert type(of_sqlite("region", failed, committing=True)) is UnknownOutcome
    assert of_sqlite("region", sqlite3.IntegrityError("UNIQUE")) is None


THEIR_FAULT = sorted(
    state
    for each in vars(asyncpg.exceptions).values()
    if isinstance(state := getattr(each, "sqlstate", None), str)
    and (state[:2] in {"08", "28", "53", "57", "58", "3D"} or state in {"25P03", "25P04", "40003"})
)
"""All of these classes that the driver knows, whose table is made of PostgreSQL's own."""


@pytest.mark.parametrize(
    ("sqlstate", "says", "committed"),
    [
        ("53100", "out of disk space", Unavailable),
        ("25006", "read-only", Unavailable),
        ("57P01", "is shutting down", UnknownOutcome),
        ("57P03", "is starting", UnknownOutcome),
        ("08006", "does not answer", UnknownOutcome),
        ("58030", "disk", UnknownOutcome),
        ("57014", "took longer than 20 s", Unavailable),
        ("57P04", "does not exist", UnknownOutcome),
        ("3D000", "does not exist", UnknownOutcome),
        ("53300", "max_connections", UnknownOutcome),
        ("42501", "rights of its tables", Unavailable),
        *((state, "", Unavailable if state in TAKEN_BACK else UnknownOutcome) for state in THEIR_FAULT),
    ],
)
def test_postgresql_error_codes_become_problems(sqlstate: str, says: str, committed: type[Unavailable]) -> None:
    class Refusal(Exception):
        pass

    refusal = Refusal(sqlstate)
    refusal.sqlstate = sqlstate  # type: ignore[attr-defined]
    failure = sa.exc.DBAPIError("UPDATE …", {}, refusal)
    problem = of_postgresql("region", failure, statement_s=20)
    assert type(problem) is Unavailable
    assert says in str(problem)
    assert type(of_postgresql("region", failure, committing=True, statement_s=20)) is committed


@pytest.mark.postgres
async def test_codes_of_a_running_postgresql(postgres_url: str) -> None:
    database = await open_database(postgres_url, name="region", limits=DatabaseLimits(statement_s=2.0))
    try:
        full = sa.text("DO $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; END $$")
        with pytest.raises(Unavailable, match="out of disk space"):
            await database.write(lambda tx: tx.run(full))
        with pytest.raises(Unavailable, match="took longer than"):
            await database.read(lambda tx: tx.scalar(sa.text("SELECT pg_sleep(60)")))
        with pytest.raises(Invalid):
            await database.write(lambda tx: tx.scalar(sa.text("SELECT cast(:x AS text)"), {"x": "a\0b"}))
        await database.create(metadata)

        def on_a_standby(tx: Tx) -> None:
            tx.run(sa.text("SET TRANSACTION READ ONLY"))
            tx.run(words.insert(), {"word": "a"})

        with pytest.raises(Unavailable, match="read-only"):
            await database.write(on_a_standby)
        await database.alter(lambda connection: connection.execute(sa.text("SELECT pg_sleep(2.5)")))
    finally:
        await database.close()
    with pytest.raises(Unavailable, match="does not exist"):
        await open_database(postgres_url + "_not", name="region")


def children_of(process: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.fixture
def freezable() -> Iterator[PostgresServer]:
    """A server of one's own: the others would freeze with it."""
    server = start_postgres()
    yield server
    server.stop()


@pytest.mark.postgres
async def test_a_server_that_hangs_is_given_up_in_bounded_time(freezable: PostgresServer) -> None:
    """As a machine that froze, or a network that swallows everything: nothing is closed, nothing is answered."""
    limits = DatabaseLimits(statement_s=1.5, connect_s=3.0, pool_size=4, pool_wait_s=6.0)
    database = await open_database(freezable.create_database("r"), name="region", limits=limits)
    assert isinstance(database, PostgresqlDatabase)
    await asyncio.gather(*(database.read(lambda tx: tx.scalar(sa.text("SELECT pg_sleep(0.05)"))) for _ in range(4)))
    first = freezable.process_id
    children = children_of(first)
    for each in (*children, first):
        os.kill(each, signal.SIGSTOP)
    try:
        reads = [asyncio.ensure_future(database.read(lambda tx: tx.scalar(sa.text("SELECT 1")))) for _ in range(6)]
        writes = [asyncio.ensure_future(database.write(lambda tx: tx.scalar(sa.text("SELECT 1")))) for _ in range(6)]
        done, waiting = await asyncio.wait([*reads, *writes], timeout=150)
        assert not waiting
        assert {type(each.exception()) for each in done} == {Unavailable}
    finally:
        for each in (*children, first):
            os.kill(each, signal.SIGCONT)
    async with asyncio.timeout(180):
        assert await database.read(lambda tx: tx.scalar(sa.text("SELECT 1"))) == 1
    await database.close()


@pytest.mark.postgres
async def test_a_metrics_scrape_waits_only_a_moment_for_a_hanging_server(freezable: PostgresServer) -> None:
    """What was seen before is shown, and that it does not answer; however many scrape, one look waits for it."""
    limits = DatabaseLimits(pool_size=2, connect_s=5, statement_s=5, pool_wait_s=5)
    database = await open_database(freezable.create_database("scraped"), name="region", limits=limits)
    await database.create(region_metadata)
    reads = CachedReads(kept_s=0.001)
    reads.at({"region": database}, conducts=True, outboxes=True)
    await reads.refresh(patience_s=PATIENCE_S)
    assert reads.of["region"].answers
    first = freezable.process_id
    children = children_of(first)
    for each in (*children, first):
        os.kill(each, signal.SIGSTOP)
    try:
        for _ in range(3):
            looking, sleeping = asyncio.create_task(reads.refresh()), asyncio.create_task(asyncio.sleep(2 * LOOK_S))
            await asyncio.wait([looking, sleeping], return_when=asyncio.FIRST_COMPLETED)
            assert looking.done()
            await sleeping
            assert not reads.of["region"].answers
            assert reads.shown()["region"].outbox == Backlog(0, None)
            assert isinstance(database, PostgresqlDatabase)
            assert database.load.in_use <= 1
    finally:
        for each in (*children, first):
            os.kill(each, signal.SIGCONT)
    async with asyncio.timeout(PATIENCE_S):
        while not reads.of["region"].answers:
            await reads.refresh()
    await reads.close()
    await database.close()


@pytest.mark.postgres
async def test_the_load_of_a_connection_pool_is_measured(postgres_url: str) -> None:
    database = await open_database(postgres_url, name="region", limits=DatabaseLimits(pool_size=1))
    assert isinstance(database, PostgresqlDatabase)
    assert database.load == DatabaseLoad(1, 0, 0)
    sleeping = [
        asyncio.create_task(database.read(lambda tx: tx.scalar(sa.text("SELECT pg_sleep(60)")))) for _ in range(3)
    ]
    await until(lambda: database.load == DatabaseLoad(1, 1, 2))
    for each in sleeping:
        each.cancel()
    await asyncio.gather(*sleeping, return_exceptions=True)
    await until(lambda: database.load == DatabaseLoad(1, 0, 0))
    await database.close()


async def test_the_load_of_a_file_database_is_measured(tmp_path: Path) -> None:
    database = await open_database(f"sqlite:///{tmp_path}/words.db", name="words")
    assert isinstance(database, SqliteDatabase)
    begun, gate = threading.Event(), threading.Event()

    def first(_: Tx) -> None:
        begun.set()
        gate.wait(PATIENCE_S)

    writing = [asyncio.create_task(database.write(first))]
    try:
        await until(begun.is_set)
        assert (database.load.in_use, database.load.waiting) == (1, 0)
        writing.append(asyncio.create_task(database.write(lambda _: None)))
        await until(lambda: database.load.waiting == 1)
        assert database.load.in_use == 1
    finally:
        gate.set()
        await asyncio.gather(*writing)
    assert (database.load.in_use, database.load.waiting) == (0, 0)
    await database.close()


@pytest.mark.postgres
async def test_connections_notice_a_machine_that_vanished(postgres_url: str) -> None:
    database = await open_database(postgres_url, name="region")
    assert isinstance(database, PostgresqlDatabase)
    try:
        async with database._engine.connect() as connection:  # pyright: ignore[reportPrivateUsage]
            raw = await connection.get_raw_connection()
            known = raw.driver_connection._transport.get_extra_info("socket")  # type: ignore[union-attr]
            assert known.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert known.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) > 0
        assert await database.read(lambda tx: tx.scalar(sa.text("SHOW tcp_keepalives_idle"))) == "15"
        assert await database.read(lambda tx: tx.scalar(sa.text("SHOW statement_timeout"))) == "20s"
        assert await database.read(lambda tx: tx.scalar(sa.text("SHOW idle_in_transaction_session_timeout"))) == "5s"
    finally:
        await database.close()
