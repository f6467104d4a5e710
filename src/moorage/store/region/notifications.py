"""The region's outbox of notifications: written by the commits that accept and execute operations."""

import sqlalchemy as sa

from moorage.store.outbox import OutboxTable, outbox_columns
from moorage.store.region.tables import region_metadata

notifications = sa.Table("notifications", region_metadata, *outbox_columns())

OUTBOX = OutboxTable(notifications)
