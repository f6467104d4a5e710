"""What is wrong with a host, as its conductor saw it."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("hosts", sa.Column("troubles", sa.Text(), nullable=True))
