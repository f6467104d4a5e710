"""Addresses of flat networks: who holds which slot of a pool."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "flat_addresses",
        sa.Column("network", sa.String(length=36), nullable=False),
        sa.Column("cell", sa.String(length=64), nullable=False),
        sa.Column("slot", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("server", sa.String(length=36), nullable=False),
        sa.Column("nic", sa.Integer(), nullable=False),
        sa.Column("mac", sa.String(length=17), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("network", "cell", "slot"),
        sa.UniqueConstraint("server", "nic"),
    )
