"""What hosts owe."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.create_table(
        "debts",
        sa.Column("server", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("thing", sa.String(length=255), nullable=False),
        sa.Column("operation", sa.String(length=36), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.BigInteger(), nullable=False),
        sa.Column("answered_at", sa.BigInteger(), nullable=True),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("server", "kind", "thing"),
    )
    op.create_index("debts_due", "debts", ["next_at"], unique=False)
    op.create_index("debts_of_host", "debts", ["host"], unique=False)
    op.add_column("servers", sa.Column("debts", sa.Integer(), server_default="0", nullable=False))
