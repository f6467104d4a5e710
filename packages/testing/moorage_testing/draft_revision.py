"""Write the next revision of a tree: what differs between its newest revision and today's tables.

    python -m moorage_testing.draft_revision region "hosts have a rack"

The file is a draft by Alembic: read it, and keep only what expands.  `tests/store/test_revisions.py` says when one is missing.
"""

import re
import sys
import tempfile
import textwrap
from pathlib import Path

import sqlalchemy as sa
from alembic.autogenerate import produce_migrations, render_python_code
from alembic.runtime.migration import MigrationContext

from moorage.main.schemas import CELL, PLACEMENT, REGION
from moorage.sql.migrate import Tree, upgrade
from moorage_embedded.identity.store import TABLES as IDENTITY
from moorage_embedded.image.store import TABLES as IMAGE
from moorage_embedded.network.store import TABLES as NETWORK

TREES = {tree.name: tree for tree in (REGION, PLACEMENT, CELL, IDENTITY, IMAGE, NETWORK)}
TEMPLATE = '''"""{says}."""

import sqlalchemy as sa
from alembic import op

revision = "{number}"
down_revision = {before!r}


def upgrade() -> None:
{body}
'''


def missing(connection: sa.Connection, tree: Tree) -> str:
    """Python that would bring the connection's tables to today's; `pass` if nothing is missing."""
    context = MigrationContext.configure(
        connection,
        opts={
            "version_table": tree.version_table,
            "compare_type": True,
            "include_name": lambda name, kind, _: kind != "table" or not str(name).endswith("_version"),
        },
    )
    found = produce_migrations(context, tree.metadata).upgrade_ops
    code = "pass" if found is None else render_python_code(found)
    return "\n".join(line for line in code.splitlines() if not line.lstrip().startswith("#"))


def draft(tree: Tree, summary: str) -> Path | None:
    """Write the next revision; None if nothing differs."""
    with tempfile.TemporaryDirectory() as directory:
        engine = sa.create_engine(f"sqlite:///{directory}/draft.db")
        with engine.begin() as connection:
            tree.directory.mkdir(exist_ok=True)
            before = max(tree.revisions()) if any(tree.directory.iterdir()) else None
            if before is not None:
                upgrade(connection, tree)
            body = missing(connection, tree)
        engine.dispose()
    if body.strip() == "pass":
        return None
    number = f"{int(before or '0') + 1:04}"
    name = re.sub(r"[^a-z0-9]+", "_", summary.lower()).strip("_")
    path = tree.directory / f"{number}_{name}.py"
    path.write_text(
        TEMPLATE.format(says=summary, number=number, before=before, body=textwrap.indent(textwrap.dedent(body), "    "))
    )
    return path


def main(words: list[str]) -> int:
    """`TREE "what changed"`; prints the file."""
    if len(words) != 2 or words[0] not in TREES:
        sys.stderr.write(f'usage: python -m moorage_testing.draft_revision {{{"|".join(TREES)}}} "what changed"\n')
        return 2
    path = draft(TREES[words[0]], words[1])
    sys.stdout.write(f"{path or 'nothing differs'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
