"""The input of a live migration, and its request to the scheduler; kept in journals.

Fields are only ever added, with defaults (RULES §19).
"""

from collections.abc import Iterable

import msgspec

from moorage.model.ids import CellId, HostId
from moorage.model.migration import MigrationType
from moorage.model.resources import Needs
from moorage.model.server import Server
from moorage.model.world import Ask, GroupAsk
from moorage.operations.resize import resize_input
from moorage.operations.steps.guest_respawn import Cards


class LiveMigrate(msgspec.Struct, frozen=True):
    """Everything that the migration needs; nothing is looked up by name after this."""

    server: Server
    seq: int
    migration: str
    """The UUID of the move."""
    host: str | None = None
    """The only host where it may go."""
    block: bool | None = None
    """Whether local disks are sent; None: if that is needed."""
    needs: Needs = Needs({})
    group: GroupAsk | None = None
    near: tuple[HostId, ...] | None = None
    """Allowed hosts by the hint `same_host`."""
    far: tuple[HostId, ...] = ()
    """Forbidden hosts by the hint `different_host`."""
    post_copy: bool = False
    """Whether a forced migration may switch before all memory is there."""
    timeout_s: float = 24 * 3600.0
    """How long the guest may be sent before the migration is aborted."""
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""
    cross_cell: bool = False
    """Whether it may go to cells that are linked with its own."""


def ask_of(
    input: LiveMigrate, server: Server, cards: Cards, cell: CellId, not_on: Iterable[str], *, attempt: int = 1
) -> Ask:
    """The request to the scheduler; the same as for a migration of a guest that is off."""
    same = resize_input.Resize(
        server=server,
        seq=input.seq,
        flavor=server.flavor,
        migration=input.migration,
        kind=MigrationType.LIVE_MIGRATION,
        host=input.host,
        needs=input.needs,
        group=input.group,
        near=input.near,
        far=input.far,
    )
    return resize_input.ask_of(same, server, cards, cell, not_on, attempt=attempt)
