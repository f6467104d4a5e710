"""What many tests share: a PostgreSQL server for the session, and new databases on it."""

import gc
import itertools
import os
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from moorage.main.local_cluster.cluster import TrialSet
from moorage.main.local_cluster.postgres import PostgresServer, find_binaries, start_postgres
from moorage.sql import Database, open_database

_numbers = itertools.count(1)


HERE = Path(__file__).parent
PROCESSES = ("chaos", "upgrade")
"""Folders whose tests start and kill processes: all of them are slow."""
CLOUDS = frozenset({"start", "shared", "behind", "alone", "clouds_yaml"})
"""Fixtures of `tests/cloud` that start whole clouds."""
LOG_LINES, LOG_LINE_MAX = 25, 300
"""Of each process of a failed test, as much is shown."""
HEADS = {
    2: (("upgrade", "chaos", "sagas"), ("simulation", "cloud", "contract")),
    3: (("upgrade", "chaos"), ("simulation", "cloud", "contract"), ("sagas",)),
}
"""What each of so many workers begins with; all that is in none of these is short."""
NICER_BY = 5


hypothesis.settings.register_profile("the same each time", derandomize=True)
hypothesis.settings.load_profile("the same each time")  # who looks for what nobody foresaw says so: the soak tests


def folder(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).parts[0]


_walked: set[Path] = set()
"""Modules of `tests/cloud` whose main path was collected."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """A module of `tests/cloud` begins with its main path: that is for every day; what else needs a cloud in it is slow."""
    if folder(item) in PROCESSES:
        item.add_marker(pytest.mark.slow)
    elif folder(item) == "cloud" and CLOUDS & set(getattr(item, "fixturenames", ())):
        if item.path in _walked:
            item.add_marker(pytest.mark.slow)
        elif item.get_closest_marker("slow") is None:
            _walked.add(item.path)


@pytest.hookimpl(trylast=True)  # when those that are not asked for are out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no worker is left with one of them in the end.

    `--dist worksteal` gives each worker a share of the list, and lets who is done take from the end of another's.  So each
    share begins with long tests and ends with short ones.  Those that start processes are in one share: two of them beside
    one another would only wait for processors.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    heads = HEADS[min(max(workers, 2), 3)]
    long = {name for head in heads for name in head}
    short = [item for item in items if folder(item) not in long]
    shares: list[list[pytest.Item]] = []
    left = len(items)
    for number in range(max(workers, len(heads))):
        names = heads[number] if number < len(heads) else ()
        share = sorted((each for each in items if folder(each) in names), key=lambda each: names.index(folder(each)))
        room = max(0, left // max(1, workers - number) - len(share))
        shares.append(share + short[:room])
        short = short[room:]
        left -= len(shares[-1])
    items[:] = [each for share in shares for each in share] + short


def pytest_collection_finish() -> None:
    """What was collected stays until the end: garbage is looked for among what the tests make."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Processes that are killed are watched by the clock: all other tests of the suite make way for them."""
    if "PYTEST_XDIST_WORKER" in os.environ and folder(item) not in PROCESSES and os.nice(0) < NICER_BY:
        os.nice(NICER_BY)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test of several processes that failed shows what each of them said last."""
    report = yield
    if report.failed:
        for each in getattr(item, "funcargs", {}).values():
            if isinstance(each, TrialSet):
                for log in sorted(each.directory.glob("*.log")):
                    report.sections.append((f"the end of {log.name}", _end_of(log)))
    return report


def _end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    return "\n".join(line[:LOG_LINE_MAX] for line in lines)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for the whole session; started by the first test that asks."""
    if find_binaries() is None:
        pytest.skip("there is no PostgreSQL here")
    server = start_postgres()
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
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
