"""The tables of 0.1, taken over where a release before revisions made them."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "image_images",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=30), nullable=False),
        sa.Column("visibility", sa.String(length=20), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("container_format", sa.String(length=20), nullable=False),
        sa.Column("disk_format", sa.String(length=20), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("virtual_size", sa.BigInteger(), nullable=False),
        sa.Column("min_disk", sa.BigInteger(), nullable=False),
        sa.Column("min_ram", sa.BigInteger(), nullable=False),
        sa.Column("protected", sa.Boolean(), nullable=False),
        sa.Column("os_hidden", sa.Boolean(), nullable=False),
        sa.Column("checksum", sa.String(length=32), nullable=False),
        sa.Column("os_hash_algo", sa.String(length=64), nullable=False),
        sa.Column("os_hash_value", sa.String(length=128), nullable=False),
        sa.Column("created_at", sa.String(length=20), nullable=False),
        sa.Column("updated_at", sa.String(length=20), nullable=False),
        sa.Column("born", sa.String(length=32), nullable=False),
        sa.Column("touched", sa.String(length=32), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
    )
    op.create_index("image_images_by_birth", "image_images", ["born", "id"], unique=False, if_not_exists=True)
    op.create_index("image_images_by_name", "image_images", ["name"], unique=False, if_not_exists=True)
    op.create_index("image_images_by_owner", "image_images", ["owner"], unique=False, if_not_exists=True)
    op.create_table(
        "image_members",
        sa.Column("image", sa.String(length=36), nullable=False),
        sa.Column("member", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("created_at", sa.String(length=20), nullable=False),
        sa.Column("updated_at", sa.String(length=20), nullable=False),
        sa.PrimaryKeyConstraint("image", "member"),
        if_not_exists=True,
    )
    op.create_index("image_members_by_member", "image_members", ["member"], unique=False, if_not_exists=True)
    op.create_table(
        "image_properties",
        sa.Column("image", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("image", "name"),
        if_not_exists=True,
    )
    op.create_table(
        "image_spent_ids",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
    )
    op.create_table(
        "image_tags",
        sa.Column("image", sa.String(length=36), nullable=False),
        sa.Column("tag", sa.String(length=255), nullable=False),
        sa.PrimaryKeyConstraint("image", "tag"),
        if_not_exists=True,
    )
