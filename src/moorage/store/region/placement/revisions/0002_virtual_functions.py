"""virtual functions."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "virtual_functions",
        sa.Column(
            "provider",
            sa.String(length=36).with_variant(sa.VARCHAR(length=36, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("address", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("vendor_id", sa.String(length=8), nullable=False),
        sa.Column("product_id", sa.String(length=8), nullable=False),
        sa.Column(
            "physical_network",
            sa.String(length=255).with_variant(sa.VARCHAR(length=255, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("pf_mac", sa.String(length=32), nullable=False),
        sa.Column(
            "card_serial_number",
            sa.String(length=255).with_variant(sa.VARCHAR(length=255, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column(
            "consumer",
            sa.String(length=36).with_variant(sa.VARCHAR(length=36, collation="C"), "postgresql"),
            nullable=True,
        ),
        sa.Column(
            "port", sa.String(length=36).with_variant(sa.VARCHAR(length=36, collation="C"), "postgresql"), nullable=True
        ),
        sa.ForeignKeyConstraint(
            ["provider"],
            ["providers.uuid"],
        ),
        sa.PrimaryKeyConstraint("provider", "address"),
    )
    op.create_index(op.f("ix_virtual_functions_consumer"), "virtual_functions", ["consumer"], unique=False)
