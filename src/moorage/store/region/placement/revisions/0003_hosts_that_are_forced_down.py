"""hosts that are forced down."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column(
        "placement_hosts", sa.Column("forced_down", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
