"""The newest operation that each server's record is known to show."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.add_column("servers", sa.Column("recorded_seq", sa.BigInteger(), nullable=False, server_default="0"))
