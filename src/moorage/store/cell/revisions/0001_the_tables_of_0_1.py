"""The tables of 0.1, taken over where a release before revisions made them."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "actions",
        sa.Column("server", sa.String(length=36), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("project", sa.String(length=255), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("events", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("server", "request_id"),
        if_not_exists=True,
    )
    op.create_index("actions_updated", "actions", ["server", "updated_at"], unique=False, if_not_exists=True)
    op.create_table(
        "fences",
        sa.Column("server", sa.String(length=36), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("server"),
        if_not_exists=True,
    )
    op.create_table(
        "hosts",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("service", sa.String(length=36), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=True),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", sa.String(length=255), nullable=True),
        sa.Column("forced_down", sa.Boolean(), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("host"),
        sa.UniqueConstraint("id"),
        sa.UniqueConstraint("service"),
        if_not_exists=True,
    )
    op.create_table(
        "servers",
        sa.Column("id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("project", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("user", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("name", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("vm_state", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("task_state", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("host", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("node", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("availability_zone", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("image", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("flavor", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("key_name", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("hostname", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("reservation_id", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("config_drive", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("power_state", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=True),
        sa.Column("deleted_at", sa.BigInteger(), nullable=True),
        sa.Column("launched_at", sa.BigInteger(), nullable=True),
        sa.Column("terminated_at", sa.BigInteger(), nullable=True),
        sa.Column("locked", sa.Boolean(), nullable=False),
        sa.Column("tags", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("ips", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("ip6s", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("operation", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("op_epoch", sa.BigInteger(), nullable=False),
        sa.Column("op_line", sa.BigInteger(), nullable=False),
        sa.Column("doc", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
    )
    op.create_index("servers_by_host", "servers", ["host"], unique=False, if_not_exists=True)
    op.create_index("servers_by_project", "servers", ["project", "created_at", "id"], unique=False, if_not_exists=True)
    op.create_index("servers_by_time", "servers", ["created_at", "id"], unique=False, if_not_exists=True)
