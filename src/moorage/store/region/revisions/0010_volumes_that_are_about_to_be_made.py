"""Volumes that are about to be made."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "volume_intents",
        sa.Column("server", sa.String(length=36), nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("server"),
    )
