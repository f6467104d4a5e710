"""Conductors that reach the message bus."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.add_column("conductors", sa.Column("reaches_bus", sa.Integer(), nullable=False, server_default="1"))
