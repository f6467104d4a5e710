"""Processes tell their release."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "processes",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("release", sa.String(length=64), nullable=False),
        sa.Column("alive_until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
