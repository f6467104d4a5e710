"""Metadata definitions that are written over HTTP."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "image_metadef_namespaces",
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("header", sa.Text(), nullable=False),
        sa.Column("contents", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "image_metadef_resource_types",
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("created_at", sa.String(length=20), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
