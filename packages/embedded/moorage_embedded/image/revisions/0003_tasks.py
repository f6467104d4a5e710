"""Tasks, which say how an import ended."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "image_tasks",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("image", sa.String(length=255), nullable=False),
        sa.Column("born", sa.String(length=32), nullable=False),
        sa.Column("expires_at", sa.String(length=20), nullable=False),
        sa.Column("doc", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("image_tasks_by_birth", "image_tasks", ["born"], unique=False)
    op.create_index("image_tasks_by_image", "image_tasks", ["image"], unique=False)
