"""`moorage db`: shows the revision of each database's tables, upgrades them, and adopts databases that were restored.

Processes upgrade tables themselves when they start; with this command an operator does it before, or only looks.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

import moorage.store
from moorage.main.adopt import adopt
from moorage.main.config import Config, read_config
from moorage.main.private_data_dir import keep_private
from moorage.main.schemas import CELL, PLACEMENT, REGION
from moorage.model.errors import Problem
from moorage.sql import Database, open_database
from moorage.sql.migrate import Tree, migrate, number_of

ROLES = Path(moorage.store.__file__).with_name("roles.sql")
"""What each process may do in the databases, for PostgreSQL."""


def trees(config: Config) -> list[tuple[str, str, Tree]]:
    """(name for people, URL, tree) of every database the configuration names."""
    region = config.region_url()
    cells = [(f"cell {cell.name}", config.cell_url(cell), CELL) for cell in config.cells]
    return [("region", region, REGION), ("placement", region, PLACEMENT), *cells]


@asynccontextmanager
async def _opened(url: str, name: str) -> AsyncIterator[Database]:
    database = await open_database(url, name=name)
    try:
        yield database
    finally:
        await database.close()


def _is_there(url: str) -> bool:
    """Whether the database exists; a SQLite file is not opened, for that would create it."""
    return not url.startswith("sqlite:///") or Path(url.removeprefix("sqlite:///")).exists()


async def show(config: Config) -> list[str]:
    """Return a line for each database: its revision, and the newest one that this release knows."""
    lines = []
    for name, url, tree in trees(config):
        if not _is_there(url):
            lines.append(f"{name:20} not made yet; this release makes {tree.head}")
            continue
        async with _opened(url, name) as database:
            number = await database.alter(partial(number_of, tree=tree))
        lines.append(f"{name:20} at {number or 'no revision'}; this release knows {tree.head}")
    return lines


async def upgrade(config: Config) -> list[str]:
    """Upgrade every database to this release's revision. Returns a line for each."""
    keep_private(config.data)
    lines = []
    for name, url, tree in trees(config):
        async with _opened(url, name) as database:
            before = await migrate(database, tree)
        done = "is" if before == tree.head else f"was {before or 'without revision'}, is now"
        lines.append(f"{name:20} {done} at {tree.head}")
    return lines


def main(argv: Sequence[str]) -> int:
    """Run `moorage db`. Returns 2 for an error that the caller can correct."""
    options = argparse.ArgumentParser(
        prog="moorage db", description="Revisions and identities of the region's and the cells' databases."
    )
    options.add_argument("verb", choices=("show", "upgrade", "adopt", "roles"))
    options.add_argument("--config", type=Path, help="the TOML file of the region")
    options.add_argument(
        "--empty",
        action="append",
        default=[],
        metavar="CELL",
        help="adopt: this cell's database is lost, an empty one is adopted",
    )
    options.add_argument(
        "--as-recorded",
        action="append",
        default=[],
        metavar="SERVER",
        help="adopt: the older record of this doubtful server is right as it stands; what it does not name counts as left over",
    )
    options.add_argument("--data-dir", help="the data directory of `moorage up` (default: moorage-data)")
    arguments = options.parse_args(argv)
    if arguments.verb == "roles":
        print(ROLES.read_text(), end="")
        return 0
    try:
        config = read_config(arguments.config)
        if arguments.data_dir:
            config = msgspec.structs.replace(config, data_dir=arguments.data_dir)
        verbs: dict[str, Callable[[Config], Coroutine[None, None, list[str]]]]
        adopted = partial(adopt, empty=arguments.empty, as_recorded=arguments.as_recorded)
        verbs = {"show": show, "upgrade": upgrade, "adopt": adopted}
        print("\n".join(asyncio.run(verbs[arguments.verb](config))))
    except Problem as problem:
        print(f"moorage db: {problem.public}")
        return 2
    return 0
