"""What a live migration is asked, and what the scheduler is asked for it; kept in journals.

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
    """Everything is decided; nothing is looked up by name after this."""

    server: Server
    seq: int
    migration: str
    """The UUID of the move."""
    host: str | None = None
    """Only there."""
    block: bool | None = None
    """Whether local disks are sent; None: if they must be."""
    needs: Needs = Needs({})
    group: GroupAsk | None = None
    near: tuple[HostId, ...] | None = None
    """By the hint `same_host`."""
    far: tuple[HostId, ...] = ()
    """By the hint `different_host`."""
    post_copy: bool = False
    """Who forces it may have it go on before all of its memory is there."""
    timeout_s: float = 24 * 3600.0
    """It is aborted when it was sent for so long."""
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""
    cross_cell: bool = False
    """It may go to cells that are linked with its own."""


def ask_of(
    input: LiveMigrate, server: Server, cards: Cards, cell: CellId, not_on: Iterable[str], *, attempt: int = 1
) -> Ask:
    """As a migration asks that is done while the guest is off."""
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
