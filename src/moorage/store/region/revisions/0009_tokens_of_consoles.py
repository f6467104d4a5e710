"""tokens of consoles."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "console_tokens",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("server", sa.String(length=36), nullable=False),
        sa.Column("type", sa.String(length=16), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("tls_port", sa.Integer(), nullable=True),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("used", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_index("console_tokens_by_expiry", "console_tokens", ["expires_at"], unique=False)
    op.create_index("console_tokens_by_server", "console_tokens", ["server", "created_at"], unique=False)
