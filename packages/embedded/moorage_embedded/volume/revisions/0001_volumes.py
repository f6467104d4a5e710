"""The first tables: documents and quotas."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "volume_records",
        sa.Column("noun", sa.String(length=20), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=255), nullable=False),
        sa.Column("parent", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=40), nullable=False),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("born", sa.String(length=32), nullable=False),
        sa.Column("busy", sa.Boolean(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("noun", "id"),
        if_not_exists=True,
    )
    op.create_index("volume_records_by_birth", "volume_records", ["noun", "born", "id"], if_not_exists=True)
    op.create_index(
        "volume_records_by_project", "volume_records", ["noun", "project", "born", "id"], if_not_exists=True
    )
    op.create_index("volume_records_by_parent", "volume_records", ["parent", "noun"], if_not_exists=True)
    op.create_index("volume_records_by_key", "volume_records", ["noun", "key"], if_not_exists=True)
    op.create_table(
        "volume_quotas",
        sa.Column("project", sa.String(length=255), nullable=False),
        sa.Column("resource", sa.String(length=300), nullable=False),
        sa.Column("cap", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project", "resource"),
        if_not_exists=True,
    )
