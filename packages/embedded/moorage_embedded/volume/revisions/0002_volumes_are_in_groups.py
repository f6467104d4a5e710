"""Volumes are in groups, and snapshots in group snapshots: a column says which."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("volume_records", sa.Column("member_of", sa.String(length=64), server_default="", nullable=False))
    op.create_index("volume_records_by_group", "volume_records", ["member_of", "noun"], unique=False)
