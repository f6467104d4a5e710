"""Options that a domain has of its own, groups of endpoints, and the endpoints of a project's catalog."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "domain_options",
        sa.Column("domain_id", sa.String(length=64), nullable=False),
        sa.Column("option_group", sa.String(length=64), nullable=False),
        sa.Column("option", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("domain_id", "option_group", "option"),
    )
    op.create_table(
        "endpoint_groups",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("filters", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "project_endpoints",
        sa.Column("endpoint_id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("endpoint_id", "project_id"),
    )
    op.create_index(op.f("ix_project_endpoints_project_id"), "project_endpoints", ["project_id"], unique=False)
    op.create_table(
        "project_endpoint_groups",
        sa.Column("endpoint_group_id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("endpoint_group_id", "project_id"),
    )
    op.create_index(
        op.f("ix_project_endpoint_groups_project_id"), "project_endpoint_groups", ["project_id"], unique=False
    )
