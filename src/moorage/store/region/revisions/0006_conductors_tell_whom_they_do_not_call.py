"""Conductors tell which services they leave alone for now."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("conductor_network", sa.Column("circuits", sa.Text(), nullable=False, server_default="[]"))
