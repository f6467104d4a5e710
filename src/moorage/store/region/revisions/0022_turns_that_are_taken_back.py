"""Turns of hosts that an operator takes back."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    op.create_table(
        "turn_resets",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("server", sa.String(length=36), nullable=False),
        sa.Column("cell", sa.String(length=64), nullable=False),
        sa.Column("operation_seq", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.Integer(), nullable=False),
        sa.Column("requested_at", sa.BigInteger(), nullable=False),
        sa.Column("requested_by", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("host", "server"),
    )
    op.create_index("turn_resets_by_time", "turn_resets", ["requested_at"], unique=False)
