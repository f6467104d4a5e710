"""Trusts: roles that a user lends to another."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "trusts",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("trustor_user_id", sa.String(length=64), nullable=True),
        sa.Column("trustee_user_id", sa.String(length=64), nullable=True),
        sa.Column("project_id", sa.String(length=64), nullable=True),
        sa.Column("impersonation", sa.Boolean(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.Column("remaining_uses", sa.Integer(), nullable=True),
        sa.Column("redelegated_trust_id", sa.String(length=64), nullable=True),
        sa.Column("redelegation_count", sa.Integer(), nullable=False),
        sa.Column("roles", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    for column in ("project_id", "redelegated_trust_id", "trustee_user_id", "trustor_user_id"):
        op.create_index(op.f(f"ix_trusts_{column}"), "trusts", [column], unique=False)
