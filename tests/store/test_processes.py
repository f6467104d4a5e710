"""Which processes run, and of which release."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import ProgrammingError

from moorage.cli import status
from moorage.model.clock import SystemClock
from moorage.operations.process_heartbeat import Presence
from moorage.sql import Database
from moorage.store.region import processes
from moorage.store.region.processes import ProcessRecord
from moorage.store.region.processes import processes as table
from moorage.store.region.tables import region_metadata
from moorage_testing.waiting import until

API = ProcessRecord("p-1", "api", "rack1", "0.2.0")
CONDUCTOR = ProcessRecord("p-2", "conductor", "rack2", "0.1.9")


async def test_processes_are_listed_while_they_report(database: Database) -> None:
    await database.create(region_metadata)
    await database.write(lambda tx: processes.report(tx, CONDUCTOR, 60.0))
    await database.write(lambda tx: processes.report(tx, API, -1.0))
    assert await database.read(processes.living) == [CONDUCTOR]
    await database.write(lambda tx: processes.report(tx, API, 60.0))
    assert await database.read(processes.living) == [API, CONDUCTOR]
    await database.write(lambda tx: processes.leave(tx, API.id))
    assert await database.read(processes.living) == [CONDUCTOR]


async def test_killed_processes_are_removed_after_an_hour(database: Database) -> None:
    await database.create(region_metadata)
    await database.write(lambda tx: processes.report(tx, API, -processes.FORGET_AFTER_S - 60.0))
    await database.write(lambda tx: processes.report(tx, CONDUCTOR, -60.0))
    await database.write(processes.forget)
    assert [row.id for row in await database.read(lambda tx: tx.rows(sa.select(table)))] == [CONDUCTOR.id]


class Ticks(SystemClock):
    """Sleeps until the test says that it is time."""

    def __init__(self) -> None:
        self.ticks = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        await self.ticks.acquire()


class Broken:
    """A database whose tables are gone below the process, from the second write to the third."""

    def __init__(self) -> None:
        self.writes = 0

    async def write(self, _: Callable[[Any], Any]) -> None:
        self.writes += 1
        if self.writes in {2, 3}:
            raise ProgrammingError("INSERT", {}, Exception("no such table: processes"))


async def test_a_process_keeps_reporting_after_database_errors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, database = Ticks(), Broken()
    presence = Presence(cast("Database", database), clock, API.id, API.role)
    await presence.start()
    for _ in range(3):
        clock.ticks.release()
    await until(lambda: database.writes == 4)
    assert caplog.text.count("no such table") == 2
    await presence.stop()
    assert database.writes == 5


def test_the_report_names_the_releases_of_each_role() -> None:
    told = [
        {"role": "agent", "release": "0.1.0", "count": 2},
        {"role": "agent", "release": "0.2.0", "count": 1},
        {"role": "conductor", "release": "", "count": 1},
    ]
    assert list(status.releases(told)) == [
        "releases     agent: 2 of 0.1.0, 1 of 0.2.0",
        "             conductor: 1 of a release before 0.2.0",
    ]
    assert list(status.releases([])) == []
