"""A migration: the record of one move of a server from host to host, with Nova's names; kept as long as the server's record."""

from enum import StrEnum

import msgspec

from moorage.model.ids import CellId, HostId, ServerId
from moorage.model.server import FlavorCopy


class MigrationType(StrEnum):
    """The kind of the move."""

    MIGRATION = "migration"
    RESIZE = "resize"
    LIVE_MIGRATION = "live-migration"
    EVACUATION = "evacuation"


class MigrationStatus(StrEnum):
    """The state of a move; which states occur depends on the type."""

    ACCEPTED = "accepted"
    QUEUED = "queued"
    PREPARING = "preparing"
    PRE_MIGRATING = "pre-migrating"
    MIGRATING = "migrating"
    RUNNING = "running"
    POST_MIGRATING = "post-migrating"
    FINISHED = "finished"
    CONFIRMING = "confirming"
    CONFIRMED = "confirmed"
    REVERTING = "reverting"
    REVERTED = "reverted"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"
    ERROR = "error"
    DONE = "done"


ENDED = frozenset(
    {
        MigrationStatus.CONFIRMED,
        MigrationStatus.REVERTED,
        MigrationStatus.COMPLETED,
        MigrationStatus.CANCELLED,
        MigrationStatus.FAILED,
        MigrationStatus.ERROR,
    }
)
"""States after which nothing of the move is left on either host.  A finished evacuation has left a guest on the host that was
down: it becomes `completed` when that host is back without the guest, or is removed for ever."""

LIVE_IN_PROGRESS = frozenset(
    {
        MigrationStatus.QUEUED,
        MigrationStatus.PREPARING,
        MigrationStatus.RUNNING,
        MigrationStatus.POST_MIGRATING,
    }
)
"""States in which a live migration is shown among its server's migrations."""

SENDING = frozenset({MigrationStatus.QUEUED, MigrationStatus.PREPARING, MigrationStatus.RUNNING})
"""States in which a live migration uses one of its source's places, or waits for one."""


class TransferProgress(msgspec.Struct, frozen=True):
    """How much of a live migration has been sent, in bytes."""

    memory_total: int = 0
    memory_processed: int = 0
    memory_remaining: int = 0
    disk_total: int = 0
    disk_processed: int = 0
    disk_remaining: int = 0


class Migration(msgspec.Struct, frozen=True):
    """One move. `uuid` is also the consumer of the claim that the move holds on the host that the server leaves."""

    uuid: str
    server: ServerId
    type: MigrationType
    status: MigrationStatus
    user: str
    project: str
    created_at: int
    """Microseconds since 1970, UTC; so is `updated_at`."""
    updated_at: int
    source_host: str
    source_node: str = ""
    source_provider: HostId | None = None
    dest_host: str | None = None
    """None until one is chosen."""
    dest_node: str | None = None
    dest_address: str | None = None
    dest_provider: HostId | None = None
    old_flavor: FlavorCopy | None = None
    new_flavor: FlavorCopy | None = None
    progress: TransferProgress | None = None
    """None: nothing has been sent, or the guest is not moved while it runs."""
    sending_at: int = 0
    """When the live transfer was first started, as `created_at`; 0: it was not."""
    stays: bool = False
    """Whether a live migration has failed: its guest stays, and what was made on the destination is being removed."""
    request_id: str = ""
    """Id of the request that began it: a drain confirms only moves that it began itself. Empty: an earlier release did not record it."""
    source_cell: CellId | None = None
    """Cell of the source host; None (as in `dest_cell`): the cell of the server's record."""
    dest_cell: CellId | None = None
    number: int = 0
    """Its id in the API, which the cell counts; 0 until it is recorded."""

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def live_in_progress(self) -> bool:
        return self.type is MigrationType.LIVE_MIGRATION and self.status in LIVE_IN_PROGRESS
