"""Cells that are disabled."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "placement_cells",
        sa.Column("cell", sa.String(length=64), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("said_by", sa.String(length=255), nullable=False),
        sa.Column("said_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cell"),
    )
    op.add_column(
        "placement_hosts", sa.Column("cell_disabled", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
