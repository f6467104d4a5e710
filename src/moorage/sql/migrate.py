"""Makes the tables of a release, and upgrades those of an earlier release.

A *tree* is the revisions of one kind of database, numbered files beside its tables.  An empty database gets the present tables at
once and is stamped with the newest number; one of an earlier release is upgraded by Alembic, revision by revision, in one
transaction.  Revisions only add something (a table, a column, an index), so processes of the earlier release continue to work with
the new tables, and a downgrade needs no step (S0.10, docs/operating/upgrade.md).
"""

import logging
import re
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from moorage.sql.engine import Database

logger = logging.getLogger(__name__)

REVISION_FILE = re.compile(r"^(\d{4})_[a-z0-9_]+\.py$")
LOCK_KEY = 0x4D4F4F52
"""Advisory lock of PostgreSQL: processes that start at the same time upgrade tables one after another."""


@dataclass(frozen=True)
class Tree:
    """One kind of database: its tables, and the directory of its revisions."""

    name: str
    metadata: sa.MetaData
    directory: Path

    @property
    def version_table(self) -> str:
        """The table with the number; each tree has its own, so several trees may share a database."""
        return f"{self.name}_version"

    @property
    def head(self) -> str:
        """The newest revision's number."""
        return max(self.revisions())

    def revisions(self) -> dict[str, Path]:
        """Return the number of each revision → its file. Raises LookupError when there are none."""
        revisions = {match[1]: path for path in self.directory.iterdir() if (match := REVISION_FILE.match(path.name))}
        if not revisions:
            raise LookupError(f"the tree {self.name} has no revisions in {self.directory}")
        return revisions


async def migrate(database: Database, tree: Tree) -> str | None:
    """Make or upgrade the tree's tables. Returns the number that they had before, or None for an empty database.

    Several processes may call this at once, and it is cheap if there is nothing to do.  A database of a newer release is not changed
    and only causes a warning, because revisions only add something.
    """
    return await database.alter(lambda connection: _migrate(connection, tree))


def has_table(connection: Connection, name: str) -> bool:
    """Tell whether a table exists. SQLite is asked directly: SQLAlchemy's inspector takes ten times as long, and every start does this."""
    if connection.dialect.name == "sqlite":
        question = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return connection.exec_driver_sql(question, (name,)).first() is not None
    return sa.inspect(connection).has_table(name)


def number_of(connection: Connection, tree: Tree) -> str | None:
    """Return the stamped number; None: nothing is stamped."""
    if not has_table(connection, tree.version_table):
        return None
    return connection.execute(sa.text(f"SELECT version_num FROM {tree.version_table}")).scalar()


def _migrate(connection: Connection, tree: Tree) -> str | None:
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
    number, head = number_of(connection, tree), tree.head
    if number == head:
        return number
    if number is not None and number > head:
        logger.warning(
            "the %s tables are of a newer release (%s, this one knows %s); going on", tree.name, number, head
        )
        return number
    tables = set(sa.inspect(connection).get_table_names())
    if number is None and not tables & tree.metadata.tables.keys():
        tree.metadata.create_all(connection)
        _stamp(connection, tree, head)
        return None
    upgrade(connection, tree)
    logger.info("the %s tables were brought from %s to %s", tree.name, number or "no revision", head)
    return number


def _stamp(connection: Connection, tree: Tree, number: str) -> None:
    connection.execute(
        sa.text(
            f"CREATE TABLE {tree.version_table} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {tree.version_table}_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(sa.text(f"INSERT INTO {tree.version_table} (version_num) VALUES (:number)"), {"number": number})


def upgrade(connection: Connection, tree: Tree, to: str = "head") -> None:
    """Run the missing revisions, up to `to`, within the connection's transaction."""
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    script = ScriptDirectory(str(tree.directory), version_locations=[str(tree.directory)])

    def missing(revision: object, _context: object) -> object:
        return script._upgrade_revs(to, revision)  # type: ignore[arg-type]

    with EnvironmentContext(Config(), script, fn=missing) as environment:
        environment.configure(connection=connection, version_table=tree.version_table)
        environment.run_migrations()
