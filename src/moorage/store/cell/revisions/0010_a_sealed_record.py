"""A row that requests write to no more, because another cell has, or is about to have, the record that is shown."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("servers", sa.Column("hidden", sa.Boolean(), server_default=sa.false(), nullable=False))
