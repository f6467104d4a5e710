"""The input of a resize or migration, and its request to the scheduler; kept in journals.

Fields are only ever added, with defaults (RULES §19).
"""

from collections.abc import Collection, Iterable
from typing import Protocol

import msgspec

from moorage.model import guest_requests, local_disks
from moorage.model.ids import CellId, HostId, ImageId
from moorage.model.migration import MigrationType
from moorage.model.resources import Needs
from moorage.model.server import FlavorCopy, Server
from moorage.model.world import Ask, GroupAsk
from moorage.operations.gates import PORTS_ARRIVE_BOUND
from moorage.operations.steps import groups
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.steps.segment_change import Tries, tries
from moorage.operations.unshelve_input import segments_of


class Resize(msgspec.Struct, frozen=True):
    """Everything that the move needs; nothing is looked up by name after this."""

    server: Server
    seq: int
    flavor: FlavorCopy
    """The new flavor; the server's own flavor for a migration."""
    migration: str
    """The UUID of the move."""
    kind: MigrationType = MigrationType.RESIZE
    host: str | None = None
    """The only host where it may go."""
    same_host: bool = False
    """Whether its own host may be chosen."""
    across: bool = False
    """Whether it may get addresses of other segments."""
    disk_config: str | None = None
    needs: Needs = Needs({})
    group: GroupAsk | None = None
    near: tuple[HostId, ...] | None = None
    """Allowed hosts by the hint `same_host`."""
    far: tuple[HostId, ...] = ()
    """Forbidden hosts by the hint `different_host`."""
    charged: dict[str, int] = {}
    """The additional quota until the move is over."""
    image: ImageId | None = None
    """The image that carries its disk to another cell; None: its root is a volume, or it stays in its cell."""
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""
    cross_cell: bool = False
    """Whether it may go to other cells."""


class MoveInput(Protocol):
    """The input of a move to any host of its cell."""

    @property
    def flavor(self) -> FlavorCopy: ...
    @property
    def host(self) -> str | None: ...
    @property
    def same_host(self) -> bool: ...
    @property
    def needs(self) -> Needs: ...
    @property
    def group(self) -> GroupAsk | None: ...
    @property
    def near(self) -> tuple[HostId, ...] | None: ...
    @property
    def far(self) -> tuple[HostId, ...]: ...


class MayCross(MoveInput, Protocol):
    """A move that may give addresses of other segments."""

    @property
    def across(self) -> bool: ...


def tries_of(
    input: MayCross,
    server: Server,
    cards: Cards,
    cell: CellId,
    not_on: Iterable[str],
    *,
    attempt: int = 1,
    exhausted: Collection[str] = frozenset(),
) -> Tries:
    """The requests in order: first the segments of its addresses, then other segments where that is allowed."""
    ask = ask_of(input, server, cards, cell, not_on, attempt=attempt)
    return tries(ask, server, cards, allowed=input.across, exhausted=exhausted)


def ask_of(
    input: MoveInput, server: Server, cards: Cards, cell: CellId, not_on: Iterable[str], *, attempt: int = 1
) -> Ask:
    """The request as a boot makes it, limited to its own cell: another cell would need its record moved. In its group
    the server counts where it is, and where an earlier attempt claimed a host.
    """
    group = None if input.group is None else msgspec.structs.replace(input.group, own=min(attempt, 2))
    wanted = groups.wanted(cards.ports, cards.networks, input.needs)
    settle = guest_requests.settled if input.flavor == server.flavor else dict  # its guest never had more
    return Ask(
        resources=input.needs.resources,
        required=(*input.needs.required, *local_disks.traits_of(server.block_devices)),
        forbidden=input.needs.forbidden,
        nics=tuple(segments_of(port, cards.networks) for port in cards.ports),
        availability_zone=server.pinned_az,
        host=input.host,
        leaves=None if input.same_host else server.provider,
        not_on=tuple(HostId(host) for host in not_on),
        same_host=input.near,
        different_host=input.far,
        group=group,
        groups=wanted.groups,
        same_subtree=wanted.same_subtree,
        same_device=wanted.same_device,
        group_policy=wanted.group_policy,
        project=server.project,
        extra_specs=settle(input.flavor.extra_specs),
        image_properties=settle(server.image_properties),
        min_level=PORTS_ARRIVE_BOUND,
        cells=(cell,),
        seed=int(server.id.replace("-", ""), 16) & 0xFFFFFFFF,
    )
