"""Every tree of tables: revisions lead to today's tables, from an empty database and from an earlier release."""

import ast
import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import sqlalchemy as sa

from moorage.main import db
from moorage.sql import Database
from moorage.sql.migrate import Tree, migrate, number_of, upgrade
from moorage_testing.draft_revision import TREES, missing

trees = pytest.mark.parametrize("tree", list(TREES.values()), ids=list(TREES))
CONTRACTING = re.compile(r"op\.(drop|rename|execute|alter)")


@trees
async def test_revisions_result_in_the_current_tables(database: Database, tree: Tree) -> None:
    await database.alter(lambda connection: upgrade(connection, tree))
    left = await database.alter(lambda connection: missing(connection, tree))
    assert left.strip() == "pass", f"write it with moorage_testing.draft_revision:\n{left}"
    assert await database.alter(lambda connection: number_of(connection, tree)) == tree.head


def _said(connection: sa.Connection) -> Mapping[str, frozenset[str]]:
    """What SQLite was told of each table: columns and constraints in any order, and the options after them."""
    rows = connection.execute(sa.text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")).all()
    return {
        name: frozenset(part.strip().rstrip(",").replace('"', "") for part in sql.replace("\t", "").splitlines())
        for name, sql in rows
        if not name.endswith("_version")
    }


@trees
async def test_revisions_and_tables_are_equal_on_sqlite(tree: Tree) -> None:
    one, other = sa.create_engine("sqlite://"), sa.create_engine("sqlite://")
    with one.begin() as connection:
        upgrade(connection, tree)
        revised = _said(connection)
    with other.begin() as connection:
        tree.metadata.create_all(connection)
        assert _said(connection).keys() == revised.keys()
        if tree.head == "0001":  # a column that came later stands at the end, in other words
            assert _said(connection) == revised
    one.dispose()
    other.dispose()


@trees
async def test_an_empty_database_is_stamped_with_the_newest(database: Database, tree: Tree) -> None:
    assert await migrate(database, tree) is None
    assert await migrate(database, tree) == tree.head


@trees
async def test_tables_of_the_release_before_revisions_are_migrated(database: Database, tree: Tree) -> None:
    await database.alter(lambda connection: upgrade(connection, tree, "0001"))
    await database.alter(lambda connection: connection.execute(sa.text(f"DROP TABLE {tree.version_table}")))
    assert await migrate(database, tree) is None
    assert await database.alter(lambda connection: number_of(connection, tree)) == tree.head
    assert (await database.alter(lambda connection: missing(connection, tree))).strip() == "pass"


@trees
def test_revisions_are_numbered_and_only_expand(tree: Tree) -> None:
    numbers = sorted(tree.revisions())
    assert numbers == [f"{n:04}" for n in range(1, len(numbers) + 1)]
    for before, number in zip([None, *numbers], numbers, strict=False):
        text = tree.revisions()[number].read_text()
        said = {
            target.id: ast.literal_eval(line.value)
            for line in ast.parse(text).body
            if isinstance(line, ast.Assign)
            for target in line.targets
            if isinstance(target, ast.Name)
        }
        assert (said["revision"], said["down_revision"]) == (number, before)
        assert not CONTRACTING.search(text)


async def test_a_database_of_a_newer_release_is_not_changed(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    tree = TREES["cell"]
    await migrate(database, tree)
    await database.alter(
        lambda connection: connection.execute(sa.text(f"UPDATE {tree.version_table} SET version_num = '9999'"))
    )
    assert await migrate(database, tree) == "9999"
    assert "newer release" in caplog.text


async def test_several_processes_may_start_at_once(database: Database) -> None:
    tree = TREES["region"]
    numbers = await asyncio.gather(*(migrate(database, tree) for _ in range(8)))
    assert sorted(numbers, key=str) == [*[tree.head] * 7, None]


def test_the_command_lists_and_migrates_every_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = ["--data-dir", str(tmp_path / "data")]
    assert db.main(["show", *here]) == 0
    assert capsys.readouterr().out.count("not made yet") == 4
    assert db.main(["upgrade", *here]) == 0
    assert capsys.readouterr().out.count("was without revision, is now at") == 4
    assert db.main(["show", *here]) == 0
    assert [line.split(";")[0].split()[-1] for line in capsys.readouterr().out.splitlines()] == [
        TREES[name].head for name in ("region", "placement", "cell", "cell")
    ]
    assert db.main(["show", "--config", str(tmp_path / "none.toml")]) == 2
