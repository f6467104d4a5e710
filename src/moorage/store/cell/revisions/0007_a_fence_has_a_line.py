"""Within one rank the line says which of two writes came later."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("fences", sa.Column("line", sa.BigInteger(), server_default="0", nullable=False))
