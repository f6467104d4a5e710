"""Which cells have a record of a server that is not shown."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "hidden_records",
        sa.Column("server", sa.String(length=36), nullable=False),
        sa.Column("cell", sa.String(length=64), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("server", "cell"),
    )
    op.create_index("hidden_records_by_end", "hidden_records", ["ended_at"], unique=False)
    op.create_index("hidden_records_of_cell", "hidden_records", ["cell", "server"], unique=False)
