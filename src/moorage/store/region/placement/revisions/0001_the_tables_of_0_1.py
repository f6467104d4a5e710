"""The tables of 0.1, taken over where a release before revisions made them."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "allocations",
        sa.Column("consumer", sa.String(length=36), nullable=False),
        sa.Column("provider", sa.String(length=36), nullable=False),
        sa.Column("class", sa.String(length=255), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("consumer", "provider", "class"),
        sqlite_with_rowid=False,
        if_not_exists=True,
    )
    op.create_index(op.f("ix_allocations_provider"), "allocations", ["provider"], unique=False, if_not_exists=True)
    op.create_table(
        "consumers",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("project", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("type", sa.String(length=255), server_default="unknown", nullable=False),
        sa.Column("host", sa.String(length=36), nullable=True),
        sa.Column("operation", sa.String(length=36), nullable=True),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("server_group", sa.String(length=36), nullable=True),
        sa.Column("group_policy", sa.String(length=20), nullable=True),
        sa.Column("updated_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("uuid"),
        if_not_exists=True,
    )
    op.create_index(op.f("ix_consumers_project"), "consumers", ["project"], unique=False, if_not_exists=True)
    op.create_table(
        "gone",
        sa.Column("provider", sa.String(length=36), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("provider"),
        if_not_exists=True,
    )
    op.create_index(op.f("ix_gone_changed"), "gone", ["changed"], unique=False, if_not_exists=True)
    op.create_table(
        "group_homes",
        sa.Column("server_group", sa.String(length=36), nullable=False),
        sa.Column("home", sa.String(length=36), nullable=False),
        sa.Column("members", sa.Integer(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("server_group"),
        if_not_exists=True,
    )
    op.create_index(op.f("ix_group_homes_changed"), "group_homes", ["changed"], unique=False, if_not_exists=True)
    op.create_table(
        "group_hosts",
        sa.Column("server_group", sa.String(length=36), nullable=False),
        sa.Column("host", sa.String(length=36), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("server_group", "host"),
        if_not_exists=True,
    )
    op.create_index(op.f("ix_group_hosts_changed"), "group_hosts", ["changed"], unique=False, if_not_exists=True)
    op.create_table(
        "placement_counter",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
    )
    op.create_table(
        "providers",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("parent", sa.String(length=36), nullable=True),
        sa.Column("root", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["parent"],
            ["providers.uuid"],
        ),
        sa.PrimaryKeyConstraint("uuid"),
        sa.UniqueConstraint("name"),
        if_not_exists=True,
    )
    op.create_index(op.f("ix_providers_changed"), "providers", ["changed"], unique=False, if_not_exists=True)
    op.create_index(op.f("ix_providers_parent"), "providers", ["parent"], unique=False, if_not_exists=True)
    op.create_index(op.f("ix_providers_root"), "providers", ["root"], unique=False, if_not_exists=True)
    op.create_table(
        "resource_classes",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        if_not_exists=True,
    )
    op.create_table(
        "traits",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        if_not_exists=True,
    )
    op.create_table(
        "inventories",
        sa.Column("provider", sa.String(length=36), nullable=False),
        sa.Column("class", sa.String(length=255), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("reserved", sa.Integer(), nullable=False),
        sa.Column("ratio", sa.Float(precision=53), nullable=False),
        sa.Column("min_unit", sa.Integer(), nullable=False),
        sa.Column("max_unit", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("cap", sa.BigInteger(), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["provider"],
            ["providers.uuid"],
        ),
        sa.PrimaryKeyConstraint("provider", "class"),
        sqlite_with_rowid=False,
        if_not_exists=True,
    )
    op.create_index(op.f("ix_inventories_changed"), "inventories", ["changed"], unique=False, if_not_exists=True)
    op.create_table(
        "placement_hosts",
        sa.Column("provider", sa.String(length=36), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("cell", sa.String(length=64), nullable=False),
        sa.Column("zone", sa.String(length=255), nullable=False),
        sa.Column("physnets", sa.Text(), nullable=True),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["provider"],
            ["providers.uuid"],
        ),
        sa.PrimaryKeyConstraint("provider"),
        if_not_exists=True,
    )
    op.create_index("placement_hosts_by_host", "placement_hosts", ["host"], unique=False, if_not_exists=True)
    op.create_table(
        "provider_aggregates",
        sa.Column("provider", sa.String(length=36), nullable=False),
        sa.Column("aggregate", sa.String(length=36), nullable=False),
        sa.ForeignKeyConstraint(
            ["provider"],
            ["providers.uuid"],
        ),
        sa.PrimaryKeyConstraint("provider", "aggregate"),
        if_not_exists=True,
    )
    op.create_index(
        op.f("ix_provider_aggregates_aggregate"), "provider_aggregates", ["aggregate"], unique=False, if_not_exists=True
    )
    op.create_table(
        "provider_traits",
        sa.Column("provider", sa.String(length=36), nullable=False),
        sa.Column("trait", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["provider"],
            ["providers.uuid"],
        ),
        sa.PrimaryKeyConstraint("provider", "trait"),
        if_not_exists=True,
    )
    op.create_index(op.f("ix_provider_traits_trait"), "provider_traits", ["trait"], unique=False, if_not_exists=True)
