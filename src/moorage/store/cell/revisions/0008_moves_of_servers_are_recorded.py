"""moves of servers are recorded."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "migrations",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("server", sa.String(length=36), nullable=False),
        sa.Column("project", sa.String(length=255), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("source_host", sa.String(length=255), nullable=False),
        sa.Column("dest_host", sa.String(length=255), nullable=True),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("uuid"),
    )
    op.create_index("migrations_by_time", "migrations", ["created_at", "number"], unique=False)
    op.create_index("migrations_of_server", "migrations", ["server", "created_at"], unique=False)
    op.create_index(
        "migrations_open",
        "migrations",
        ["source_host"],
        unique=False,
        sqlite_where=sa.text("is_open"),
        postgresql_where=sa.text("is_open"),
    )
