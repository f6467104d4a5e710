"""Who forced a host down, and when: an evacuation takes it as their word that the host is fenced."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("hosts", sa.Column("forced_down_by", sa.String(length=255), nullable=True))
    op.add_column("hosts", sa.Column("forced_down_at", sa.BigInteger(), nullable=True))
