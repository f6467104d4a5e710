"""Which processes run, and of which release."""

import sqlalchemy as sa

from moorage.cli import status
from moorage.sql import Database
from moorage.store.region import processes
from moorage.store.region.processes import Process
from moorage.store.region.processes import processes as table
from moorage.store.region.tables import region_metadata

API = Process("p-1", "api", "rack1", "0.2.0")
CONDUCTOR = Process("p-2", "conductor", "rack2", "0.1.9")


async def test_they_are_listed_while_they_say_so(database: Database) -> None:
    await database.create(region_metadata)
    await database.write(lambda tx: processes.tell(tx, CONDUCTOR, 60.0))
    await database.write(lambda tx: processes.tell(tx, API, -1.0))
    assert await database.read(processes.living) == [CONDUCTOR]
    await database.write(lambda tx: processes.tell(tx, API, 60.0))
    assert await database.read(processes.living) == [API, CONDUCTOR]
    await database.write(lambda tx: processes.leave(tx, API.id))
    assert await database.read(processes.living) == [CONDUCTOR]


async def test_who_was_killed_is_forgotten_in_the_end(database: Database) -> None:
    await database.create(region_metadata)
    await database.write(lambda tx: processes.tell(tx, API, -processes.FORGET_AFTER_S - 60.0))
    await database.write(lambda tx: processes.tell(tx, CONDUCTOR, -60.0))
    await database.write(processes.forget)
    assert [row.id for row in await database.read(lambda tx: tx.rows(sa.select(table)))] == [CONDUCTOR.id]


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
