"""The context of a saga: the services, databases and settings that its steps may use."""

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
from moorage.model.quota import DEFAULT_LIMITS, Limits
from moorage.model.server import Server
from moorage.model.unified_limits import UnifiedLimits
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
    """What an operator may configure (`main/config.py` explains each setting)."""

    max_attempts: int = 3
    auto_refusal: int = 409
    """The status of a refused `auto` network (decision D1); Nova's is 400."""
    host_deadline_s: float = 60.0
    host_silence_s: float = 30.0
    """A host is silent after this time without a sign of life. A report that was sent before an operator marked the
    host down may arrive this late.
    """
    reclaim_instance_interval_s: float = 0.0
    """How long a deleted server can be restored; 0: it cannot."""
    rescue_image: str = ""
    """Image for rescues that name none; empty: the server's own image."""
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
    """Whether a move may give ports addresses of another segment of their routed network when their own segment has no
    host.
    """
    resize_confirm_window_s: float = 0.0
    """How long a resize or migration waits for its owner before it is confirmed; 0: without limit."""
    level_pin: int | None = None
    """`[upgrade_levels] compute`: hosts are treated as if they had no higher level."""
    max_concurrent_live_migrations: int = 1
    """How many guests one host sends at a time; 0: no limit."""
    live_migration_timeout_s: float = 24 * 3600.0
    """How long a live migration may take before it is aborted."""
    live_migration_permit_post_copy: bool = False
    """Whether a forced live migration may switch to the destination before all memory is there; otherwise the guest is
    paused until it is.
    """
    volume_zones: Mapping[CellId, tuple[str, ...]] = field(default_factory=dict)
    """Zones of the volume service that a cell's hosts reach; a cell that is not named reaches all."""
    cell_links: frozenset[frozenset[CellId]] = frozenset()
    """Pairs of cells whose hosts reach one another."""
    volume_wait_s: float = 180.0
    """How long a boot waits for the volumes that are created for it."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Multipliers of the scheduler's weighers, by their names."""
    waiting: WaitingLimits = field(default_factory=WaitingLimits)


class OperationDispatcher(Protocol):
    """Hands accepted operations to conductors."""

    async def choose(self, saga: str) -> ConductorId:
        """Return a living conductor that can execute this saga. Raises Unavailable when there is none."""
        ...

    async def begun(self, accepted: Accepted) -> None:
        """Called after the commit: hand the operation over, or send a hint. A lost hint delays the operation by a
        second; the operation is not lost.
        """
        ...

    async def cancelled(self, operation: OperationId, owner: ConductorId) -> None:
        """Called after `cancel` was written: notify the executor at once."""
        ...


class NotificationWriter(Protocol):
    """Writes notifications about operations: in the commit that makes them true; they are sent later (S0.19)."""

    def accepted(self, tx: Tx, begun: Sequence[Accepted]) -> None:
        """Write notifications of the operations of one request, in the commit that accepts them."""
        ...

    def seen(self, operation: OperationId, server: Server) -> None:
        """Remember the record as a step found it: an earlier executor's copy may be lost with that executor."""
        ...

    def on_commit(self, tx: Tx, saga: Saga[Any, Any], run: Run[Any, Any], lines: Sequence[Line]) -> None:
        """Write the notifications that belong to a commit of this saga."""
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
    """None: notifications are off."""
    draw_segments: Callable[[Mapping[str, NetworkFacts]], Awaitable[dict[str, NetworkFacts]]] | None = None
    """Read the networks of a request, and copy the address pools of new routed networks into placement."""
    redraw_segments: Callable[[NetworkId], Awaitable[None]] | None = None
    """Copy the address pools of a routed network into placement again, as the network service has them now."""
    volumes: VolumeClient | None = None
    """None: there is no volume service."""
    arrivals: EventWaiters = field(default_factory=EventWaiters)
    """Wakes operations that wait for an external event."""
    vendor_data: VendorData | None = None
    """Vendor data for guests; None: none is configured."""
    seals: Encryption | None = None
    """Encrypts secrets in journals; None: journals keep no secrets."""
    fence: FencePlugin | None = None
    """Knows whether machines have power; None: no fence is configured."""
    gates: Callable[[], Gates] = lambda: OPEN
    """Which behaviour an operation gets that begins now (RULES §13)."""
    aside: Callable[[OperationId], AbstractContextManager[None]] = lambda _: nullcontext()
    """While an operation waits for its turn among others of its kind, whoever has work may have its place."""
    slept: Callable[[], None] = lambda: None
    """An operation of this process has fallen asleep."""
    preview: bool = False
    """True: nothing is written, and `Previewed` is raised with the operations that would be accepted."""
    unified_limits: Callable[[str], Awaitable[UnifiedLimits]] | None = None
    """Project → its limits at the identity service; None: those of `os-quota-sets` hold."""
    count_classes: Callable[[UnifiedLimits], Awaitable[None]] | None = None
    """Sees to it that the classes of resources are counted that these limits limit."""

    async def limits_of(self, project: str) -> Limits:
        """What a project is held to, for who takes from its quota next.

        Raises Unavailable when the identity service's limits hold and are not known, or what they limit is not counted.
        """
        if self.unified_limits is None:
            return {**DEFAULT_LIMITS, **(self.settings.quota or {})}
        limits = await self.unified_limits(project)
        if self.count_classes is not None:
            await self.count_classes(limits)
        return limits
