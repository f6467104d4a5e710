"""Hosts that are approved; those that are there already are."""

import time

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_table(
        "host_approvals",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("cell", sa.String(length=64), nullable=False),
        sa.Column("bus_key", sa.String(length=56), nullable=True),
        sa.Column("approved_at", sa.BigInteger(), nullable=True),
        sa.Column("approved_by", sa.String(length=255), nullable=False),
        sa.Column("heard_at", sa.BigInteger(), nullable=False),
        sa.Column("refused_at", sa.BigInteger(), nullable=True),
        sa.Column("refused_why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("host"),
        sa.UniqueConstraint("bus_key"),
    )
    op.create_index("host_approvals_by_time", "host_approvals", ["approved_at"], unique=False)
    connection = op.get_bind()
    if sa.inspect(connection).has_table("placement_hosts"):
        there = "SELECT host, MIN(cell), :now, 'upgrade', :now, '' FROM placement_hosts GROUP BY host"
        connection.execute(
            sa.text(
                f"INSERT INTO host_approvals (host, cell, approved_at, approved_by, heard_at, refused_why) {there}"
            ),
            {"now": int(time.time() * 1_000_000)},
        )
