"""What hosts are: hypervisor, version and processor."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("placement_hosts", sa.Column("kind", sa.Text(), nullable=True))
