"""An index of the servers whose guests are in a power state that their own state forbids: it has few rows, or none."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    wrong = sa.text(
        "deleted_at IS NULL AND (vm_state IN ('active', 'paused') AND power_state IN (4, 6)"
        " OR vm_state = 'stopped' AND power_state IN (1, 3))"
    )
    op.create_index(
        "servers_in_wrong_power_state", "servers", ["id"], unique=False, sqlite_where=wrong, postgresql_where=wrong
    )
