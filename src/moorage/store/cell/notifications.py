"""A cell's outbox of notifications: about records that changed without an operation."""

import sqlalchemy as sa

from moorage.store.cell.tables import cell_metadata
from moorage.store.outbox import OutboxTable, outbox_columns

notifications = sa.Table("notifications", cell_metadata, *outbox_columns())

OUTBOX = OutboxTable(notifications)
