"""Access rules of application credentials, and credentials of other kinds (EC2 keys, certificates …)."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("application_credentials", sa.Column("access_rules", sa.JSON(), nullable=True))
    op.create_table(
        "access_rules",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=64), nullable=False),
        sa.Column("service", sa.String(length=64), nullable=False),
        sa.Column("method", sa.String(length=16), nullable=False),
        sa.Column("path", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("user_id", "service", "method", "path"),
    )
    op.create_table(
        "credentials",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=True),
        sa.Column("type", sa.String(length=255), nullable=False),
        sa.Column("blob", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_credentials_project_id"), "credentials", ["project_id"], unique=False)
    op.create_index(op.f("ix_credentials_user_id"), "credentials", ["user_id"], unique=False)
