"""The tables of 0.1, taken over where a release before revisions made them."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "network_addresses",
        sa.Column("subnet", sa.String(length=36), nullable=False),
        sa.Column("address", sa.String(length=39), nullable=False),
        sa.Column("port", sa.String(length=36), nullable=False),
        sa.PrimaryKeyConstraint("subnet", "address"),
        if_not_exists=True,
    )
    op.create_index("network_addresses_by_address", "network_addresses", ["address"], unique=False, if_not_exists=True)
    op.create_index("network_addresses_by_port", "network_addresses", ["port"], unique=False, if_not_exists=True)
    op.create_table(
        "network_free_ranges",
        sa.Column("subnet", sa.String(length=36), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("subnet", "first"),
        if_not_exists=True,
    )
    op.create_table(
        "network_holds",
        sa.Column("scope", sa.String(length=120), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=False),
        sa.Column("owner", sa.String(length=100), nullable=False),
        sa.PrimaryKeyConstraint("scope", "value"),
        if_not_exists=True,
    )
    op.create_index("network_holds_by_owner", "network_holds", ["owner"], unique=False, if_not_exists=True)
    op.create_table(
        "network_ports",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project", sa.String(length=255), nullable=False),
        sa.Column("network", sa.String(length=36), nullable=False),
        sa.Column("mac", sa.String(length=17), nullable=False),
        sa.Column("device", sa.String(length=255), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("network", "mac", name="network_ports_mac"),
        if_not_exists=True,
    )
    op.create_index("network_ports_by_device", "network_ports", ["device"], unique=False, if_not_exists=True)
    op.create_index("network_ports_by_host", "network_ports", ["host"], unique=False, if_not_exists=True)
    op.create_index("network_ports_by_project", "network_ports", ["project"], unique=False, if_not_exists=True)
    op.create_table(
        "network_records",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("noun", sa.String(length=40), nullable=False),
        sa.Column("project", sa.String(length=255), nullable=False),
        sa.Column("parent", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=300), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
    )
    op.create_index("network_records_by_key", "network_records", ["noun", "key"], unique=False, if_not_exists=True)
    op.create_index(
        "network_records_by_parent", "network_records", ["parent", "noun"], unique=False, if_not_exists=True
    )
    op.create_index(
        "network_records_by_project", "network_records", ["noun", "project"], unique=False, if_not_exists=True
    )
    op.create_table(
        "network_shares",
        sa.Column("object", sa.String(length=36), nullable=False),
        sa.Column("action", sa.String(length=40), nullable=False),
        sa.Column("target", sa.String(length=255), nullable=False),
        sa.Column("noun", sa.String(length=40), nullable=False),
        sa.PrimaryKeyConstraint("object", "action", "target"),
        if_not_exists=True,
    )
    op.create_index("network_shares_by_target", "network_shares", ["noun", "target"], unique=False, if_not_exists=True)
    op.create_table(
        "network_usage",
        sa.Column("project", sa.String(length=255), nullable=False),
        sa.Column("noun", sa.String(length=40), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.Column("cap", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("project", "noun"),
        if_not_exists=True,
    )
