"""Servers that wait for a host."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    asleep, new, cancelled = sa.text("woken_at IS NULL"), sa.text("searched = 0"), sa.text("cancel IS NOT NULL")
    op.create_table(
        "waiting_servers",
        sa.Column("operation", sa.String(length=36), nullable=False),
        sa.Column("server", sa.String(length=36), nullable=False),
        sa.Column("project", sa.String(length=255), nullable=False),
        sa.Column("saga", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("causes", sa.Text(), nullable=False),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.Column("ask", sa.Text(), nullable=False),
        sa.Column("came_at", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("slept_at", sa.BigInteger(), nullable=False),
        sa.Column("rest_until", sa.BigInteger(), nullable=False),
        sa.Column("in_vain", sa.Integer(), nullable=False),
        sa.Column("searched", sa.Integer(), nullable=False),
        sa.Column("woken_at", sa.BigInteger(), nullable=True),
        sa.Column("claimed", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("operation"),
    )
    op.create_index(
        "waiting_servers_line",
        "waiting_servers",
        ["kind", "came_at"],
        sqlite_where=asleep,
        postgresql_where=asleep,
    )
    op.create_index("waiting_servers_until", "waiting_servers", ["until"], sqlite_where=asleep, postgresql_where=asleep)
    op.create_index("waiting_servers_new", "waiting_servers", ["searched"], sqlite_where=new, postgresql_where=new)
    op.create_index("waiting_servers_project", "waiting_servers", ["project", "came_at"])
    op.create_index("waiting_servers_server", "waiting_servers", ["server"])
    op.create_index("operations_cancelled", "operations", ["owner"], sqlite_where=cancelled, postgresql_where=cancelled)
