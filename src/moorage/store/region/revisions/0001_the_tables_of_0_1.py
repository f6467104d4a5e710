"""The tables of 0.1, taken over where a release before revisions made them."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "aggregates",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("hosts", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
        sa.UniqueConstraint("name"),
        if_not_exists=True,
    )
    op.create_table(
        "conductors",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("alive_until", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("sagas", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
    )
    op.create_table(
        "flavors",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("ram_mib", sa.Integer(), nullable=False),
        sa.Column("disk_gib", sa.Integer(), nullable=False),
        sa.Column("ephemeral_gib", sa.Integer(), nullable=False),
        sa.Column("swap_mib", sa.Integer(), nullable=False),
        sa.Column("rxtx_factor", sa.Float(), nullable=False),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("extra_specs", sa.Text(), nullable=False),
        sa.Column("projects", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
        sa.UniqueConstraint("name"),
        if_not_exists=True,
    )
    op.create_table(
        "inbox",
        sa.Column("server", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("tag", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("server", "name", "tag"),
        if_not_exists=True,
    )
    op.create_index("inbox_seen", "inbox", ["seen_at"], unique=False, if_not_exists=True)
    op.create_table(
        "key_pairs",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("type", sa.String(length=8), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("user", "name"),
        if_not_exists=True,
    )
    op.create_table(
        "operation_lines",
        sa.Column("operation", sa.String(length=36), nullable=False),
        sa.Column("line", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("operation", "line"),
        if_not_exists=True,
    )
    op.create_table(
        "operations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("saga", sa.String(length=64), nullable=False),
        sa.Column("server", sa.String(length=36), nullable=False),
        sa.Column("project", sa.String(length=255), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("head", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("cancel", sa.String(length=32), nullable=True),
        sa.Column("after", sa.String(length=36), nullable=True),
        sa.Column("request_id", sa.String(length=64), server_default="", nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("waiting", sa.Text(), nullable=True),
        sa.Column("fault", sa.Text(), nullable=True),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("journal", sa.Text(), nullable=False),
        sa.Column("ledger", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
    )
    op.create_index("operations_ended", "operations", ["ended_at"], unique=False, if_not_exists=True)
    op.create_index("operations_of_server", "operations", ["server"], unique=False, if_not_exists=True)
    op.create_index(
        "operations_open",
        "operations",
        ["owner"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
        if_not_exists=True,
    )
    op.create_index(
        "operations_waiting",
        "operations",
        ["after"],
        unique=False,
        sqlite_where=sa.text("after IS NOT NULL"),
        postgresql_where=sa.text("after IS NOT NULL"),
        if_not_exists=True,
    )
    op.create_table(
        "quota_classes",
        sa.Column("class", sa.String(length=255), nullable=False),
        sa.Column("resource", sa.String(length=64), nullable=False),
        sa.Column("hard_limit", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("class", "resource"),
        if_not_exists=True,
    )
    op.create_table(
        "quota_limits",
        sa.Column("project", sa.String(length=255), nullable=False),
        sa.Column("resource", sa.String(length=64), nullable=False),
        sa.Column("hard_limit", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("project", "resource"),
        if_not_exists=True,
    )
    op.create_table(
        "quota_usage",
        sa.Column("project", sa.String(length=255), nullable=False),
        sa.Column("instances", sa.BigInteger(), nullable=False),
        sa.Column("cores", sa.BigInteger(), nullable=False),
        sa.Column("ram", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project"),
        if_not_exists=True,
    )
    op.create_table(
        "server_group_members",
        sa.Column("server", sa.String(length=36), nullable=False),
        sa.Column("group", sa.String(length=36), nullable=False),
        sa.PrimaryKeyConstraint("server"),
        if_not_exists=True,
    )
    op.create_index(
        op.f("ix_server_group_members_group"), "server_group_members", ["group"], unique=False, if_not_exists=True
    )
    op.create_table(
        "server_groups",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("project", sa.String(length=255), nullable=False),
        sa.Column("user", sa.String(length=255), nullable=False),
        sa.Column("policy", sa.String(length=32), nullable=False),
        sa.Column("max_per_host", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
        if_not_exists=True,
    )
    op.create_index(op.f("ix_server_groups_project"), "server_groups", ["project"], unique=False, if_not_exists=True)
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
        sa.Column("doc", sa.Text().with_variant(sa.TEXT(collation="C"), "postgresql"), nullable=True),
        sa.Column("cell", sa.String(length=64), nullable=True),
        sa.Column("op_seq", sa.BigInteger(), nullable=False),
        sa.Column("task", sa.String(length=32), nullable=True),
        sa.Column("heir", sa.String(length=36), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
    )
    op.create_index(
        "servers_busy",
        "servers",
        ["id"],
        unique=False,
        sqlite_where=sa.text("operation IS NOT NULL"),
        postgresql_where=sa.text("operation IS NOT NULL"),
        if_not_exists=True,
    )
    op.create_index("servers_by_host", "servers", ["host"], unique=False, if_not_exists=True)
    op.create_index("servers_by_project", "servers", ["project", "created_at", "id"], unique=False, if_not_exists=True)
    op.create_index("servers_by_time", "servers", ["created_at", "id"], unique=False, if_not_exists=True)
    op.create_index(
        "servers_with_order",
        "servers",
        ["id"],
        unique=False,
        sqlite_where=sa.text("doc IS NOT NULL"),
        postgresql_where=sa.text("doc IS NOT NULL"),
        if_not_exists=True,
    )
