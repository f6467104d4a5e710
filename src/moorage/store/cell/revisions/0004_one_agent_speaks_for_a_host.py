"""one agent speaks for a host."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("hosts", sa.Column("agent", sa.String(length=64), nullable=True))
