"""Conductors tell whether the network service takes their credentials."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "conductor_network",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("why", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
