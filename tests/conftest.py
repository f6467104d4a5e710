"""What many tests share: a PostgreSQL server for the session, and fresh databases on it."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from moorage.sql import Database, open_database
from moorage.testing.postgres import Server, find_binaries, start_postgres

_numbers = itertools.count(1)


HERE = Path(__file__).parent
PROCESSES = ("chaos", "upgrade")
"""Folders whose tests start and kill processes: all of them are slow."""
LONGEST_FIRST = ("upgrade", "chaos", "simulation", "cloud", "sagas", "api", "contract", "store", "real", "pure")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no worker is left with one of them in the end."""
    ranks = {name: rank for rank, name in enumerate(LONGEST_FIRST)}

    def order(item: pytest.Item) -> tuple[int, bool]:
        folder = item.path.relative_to(HERE).parts[0]
        return ranks.get(folder, len(ranks)), item.get_closest_marker("slow") is None

    for item in items:
        if item.path.relative_to(HERE).parts[0] in PROCESSES:
            item.add_marker(pytest.mark.slow)
    items.sort(key=order)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One server for the whole session; started by the first test that asks."""
    if find_binaries() is None:
        pytest.skip("there is no PostgreSQL here")
    server = start_postgres()
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres_server: Server) -> Iterator[str]:
    """The URL of an empty database, dropped afterwards."""
    name = f"test_{next(_numbers)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        opened = await open_database(f"sqlite:///{tmp_path}/test.db", name="region", durability="process")
    else:
        opened = await open_database(request.getfixturevalue("postgres_url"), name="region")
    yield opened
    await opened.close()
