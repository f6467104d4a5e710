"""A migration: the record of one move of a server from host to host, in Nova's words, for as long as the server is known."""

from enum import StrEnum

import msgspec

from moorage.model.ids import CellId, HostId, ServerId
from moorage.model.server import FlavorCopy


class MigrationType(StrEnum):
    """Why a server moves."""

    MIGRATION = "migration"
    RESIZE = "resize"
    LIVE_MIGRATION = "live-migration"
    EVACUATION = "evacuation"


class MigrationStatus(StrEnum):
    """How far it is; which of them occur depends on the type."""

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
"""After these nothing of the move is left on either host.  An evacuation that is done has left a guest on a host that was
dead: it is over (`completed`) when that host is back without the guest, or is given up for good."""

LIVE_IN_PROGRESS = frozenset(
    {
        MigrationStatus.QUEUED,
        MigrationStatus.PREPARING,
        MigrationStatus.RUNNING,
        MigrationStatus.POST_MIGRATING,
    }
)
"""Of a live migration: it shows among the migrations of its server."""

SENDING = frozenset({MigrationStatus.QUEUED, MigrationStatus.PREPARING, MigrationStatus.RUNNING})
"""Of a live migration: it has one of the places of its source, or waits for one."""


class TransferProgress(msgspec.Struct, frozen=True):
    """How much of a live migration was sent, in bytes."""

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
    """None: nothing was sent yet, or nothing is sent while the guest runs."""
    sending_at: int = 0
    """When a guest that moves while it runs was first told to go, as `created_at`; 0: it was not."""
    stays: bool = False
    """Of a live migration: its guest stays where it is, and has no place there any more, while what was made elsewhere is cleared."""
    request_id: str = ""
    """Of the request that began it: who confirms only what it began itself knows it by that. Empty: an earlier release did not keep it."""
    source_cell: CellId | None = None
    """Of the host that is left; None, as in `dest_cell`: the cell of the server's record."""
    dest_cell: CellId | None = None
    number: int = 0
    """What the API calls its id: counted in the cell; 0 until it is recorded."""

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def live_in_progress(self) -> bool:
        return self.type is MigrationType.LIVE_MIGRATION and self.status in LIVE_IN_PROGRESS
