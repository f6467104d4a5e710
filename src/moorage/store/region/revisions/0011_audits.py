"""Audits, and the journal of repairs."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "audits",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("asked_by", sa.String(length=255), nullable=False),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("why", sa.Text(), server_default="", nullable=False),
        sa.Column("report", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("audits_by_time", "audits", ["asked_at"], unique=False)
    op.create_index(
        "audits_open",
        "audits",
        ["asked_at"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "audit_repairs",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("audit", sa.String(length=36), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("by", sa.String(length=255), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("what", sa.String(length=255), nullable=False),
        sa.Column("where", sa.String(length=255), nullable=False),
        sa.Column("server", sa.String(length=36), nullable=False),
        sa.Column("was", sa.Text(), nullable=False),
        sa.Column("done", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("audit_repairs_of_audit", "audit_repairs", ["audit"], unique=False)
