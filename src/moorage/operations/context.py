"""Rooms: the few things a saga may touch."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from moorage.bus.agent_rpc import AgentClient
from moorage.clients.image import ImageClient
from moorage.clients.network import NetworkBackend
from moorage.clients.vendor_data import VendorData
from moorage.clients.volume import VolumeClient
from moorage.model.fence_proof import FencePlugin
from moorage.model.ids import CellId, ConductorId, NetworkId, OperationId
from moorage.model.network import NetworkFacts
from moorage.model.operation import Accepted
from moorage.model.server import Server
from moorage.model.waiting import WaitingLimits
from moorage.operations.cell_databases import Cells
from moorage.operations.encryption import Encryption
from moorage.operations.event_waiters import EventWaiters
from moorage.operations.gates import OPEN, Gates
from moorage.placement.engine import Engine
from moorage.saga import Line, Run, Saga
from moorage.sql import Database, Tx


@dataclass(frozen=True)
class SagaSettings:
    """What an operator may turn (`main/config.py` says what each is for)."""

    max_attempts: int = 3
    auto_refusal: int = 409
    """Decision D1: what a refused `auto` is answered with; 400 is Nova's."""
    host_deadline_s: float = 60.0
    host_silence_s: float = 30.0
    """After so long without a sign of life a host is silent; so late may one arrive that was sent before an operator said that it is down."""
    reclaim_instance_interval_s: float = 0.0
    """How long a deleted server can be restored; 0: not at all."""
    rescue_image: str = ""
    """Of servers that are rescued without naming one; empty: their own."""
    default_availability_zone: str = "nova"
    quota: Mapping[str, int] | None = None
    vif_plugging_timeout_s: float = 0.0
    vif_plugging_is_fatal: bool = True
    force_config_drive: bool = False
    dhcp_domain: str = ""
    static_vendor_data: Mapping[str, Any] = field(default_factory=dict)
    image_deadline_s: float = 4 * 3600.0
    """How long a host may take to copy or send a disk."""
    shelved_offload_time_s: float = 0.0
    """When a shelved server leaves its host: 0 at once, below 0 never."""
    non_inheritable_image_properties: tuple[str, ...] = ("cache_in_nova", "bittorrent")
    cross_az_attach: bool = True
    """Whether a server may have volumes of other availability zones than its own."""
    allow_resize_to_same_host: bool = False
    """Whether a server may be resized where it is."""
    allow_move_across_segments: bool = False
    """Whether a move may give ports addresses of another segment of their routed network, where their own has no host."""
    resize_confirm_window_s: float = 0.0
    """How long a resize or migration waits for its owner before it is confirmed; 0: for ever."""
    level_pin: int | None = None
    """`[upgrade_levels] compute`: hosts are spoken to as if they were of no higher level."""
    max_concurrent_live_migrations: int = 1
    """How many guests one host sends at a time; 0: as many as are asked for."""
    live_migration_timeout_s: float = 24 * 3600.0
    """How long a guest is sent before its live migration is aborted."""
    live_migration_permit_post_copy: bool = False
    """Whether a live migration that is forced may switch before all memory is there; else the guest stands still until it is."""
    volume_zones: Mapping[CellId, tuple[str, ...]] = field(default_factory=dict)
    """Zones of the volume service that a cell's hosts reach; a cell that is not named reaches all."""
    cell_links: frozenset[frozenset[CellId]] = frozenset()
    """Cells whose hosts reach one another."""
    volume_wait_s: float = 180.0
    """How long a boot waits for volumes that are made for it."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Multipliers of the scheduler's weighers, by their names."""
    waiting: WaitingLimits = field(default_factory=WaitingLimits)


class OperationDispatcher(Protocol):
    """Who tells what was accepted."""

    async def choose(self, saga: str) -> ConductorId:
        """A living conductor that can tell this saga. Raises Unavailable when there is none."""
        ...

    async def begun(self, accepted: Accepted) -> None:
        """Called after the commit: hand it over, or leave a hint.  Losing it costs a second, never the operation."""
        ...

    async def cancelled(self, operation: OperationId, owner: ConductorId) -> None:
        """Called after `cancel` was written: tell the executor at once."""
        ...


class NotificationWriter(Protocol):
    """Says to others what is done to servers: written with the commit that makes it true, and sent later (S0.19)."""

    def accepted(self, tx: Tx, begun: Sequence[Accepted]) -> None:
        """Operations of one request, in the commit that accepts them."""
        ...

    def seen(self, operation: OperationId, server: Server) -> None:
        """The record, as a step found it: what an earlier executor knew of it may have gone with that executor."""
        ...

    def on_commit(self, tx: Tx, saga: Saga[Any, Any], run: Run[Any, Any], lines: Sequence[Line]) -> None:
        """A commit of its saga."""
        ...


@dataclass(frozen=True)
class SagaContext:
    region: Database
    cells: Cells
    placement: Engine
    network: NetworkBackend
    images: ImageClient
    hosts: AgentClient
    dispatcher: OperationDispatcher
    settings: SagaSettings = SagaSettings()
    notification_writer: NotificationWriter | None = None
    """None: nobody wants to be told."""
    draw_segments: Callable[[Mapping[str, NetworkFacts]], Awaitable[dict[str, NetworkFacts]]] | None = None
    """The networks of a request as it may be judged by; the pools of those that are routed are drawn into placement where they are news."""
    redraw_segments: Callable[[NetworkId], Awaitable[None]] | None = None
    """The pools of a routed network are drawn into placement as the network service has them now, whatever was known of them."""
    volumes: VolumeClient | None = None
    """None: there is no volume service."""
    arrivals: EventWaiters = field(default_factory=EventWaiters)
    """Wakes who waits for an external event."""
    vendor_data: VendorData | None = None
    """What others have to say to guests; None: nobody is configured."""
    seals: Encryption | None = None
    """For secrets that wait in a journal; None: they are not kept."""
    fence: FencePlugin | None = None
    """What knows whether machines have power; None: nobody is asked."""
    gates: Callable[[], Gates] = lambda: OPEN
    """Which behaviour is on for what begins now (RULES §13)."""
    aside: Callable[[OperationId], AbstractContextManager[None]] = lambda _: nullcontext()
    """While an operation waits for its turn among others of its kind, whoever has work may have its place."""
    slept: Callable[[], None] = lambda: None
    """An operation of this process has fallen asleep."""
    preview: bool = False
    """Nothing is written: what would be accepted is raised as `Previewed`."""
