"""The application context: what every handler of the Compute API may use, each part with its type."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from moorage.api.policy import Policy
from moorage.api.rendered_rows import RenderedRowCache
from moorage.clients.image import ImageClient
from moorage.clients.network import NetworkBackend
from moorage.clients.volume import VolumeClient
from moorage.model.principal import Principal
from moorage.model.quota import Limits
from moorage.model.rate_buckets import RateBuckets
from moorage.model.service_health import LeftAlone
from moorage.model.unified_limits import UnifiedLimits
from moorage.operations.gates import GateFacts
from moorage.operations.guest.consoles import Consoles
from moorage.operations.notifications.outbox_writer import OutboxWriter
from moorage.operations.server_service import ServerService
from moorage.placement.engine import Engine
from moorage.sql import Database

Authenticate: TypeAlias = Callable[[str, str | None], Awaitable[Principal]]
"""(token, service token or None) → the principal; raises Unauthenticated or Unavailable."""


DRY_RUNS_KEPT_MAX = 10_000
"""Limit of projects whose dry runs are counted."""


@dataclass(frozen=True)
class ApiSettings:
    """The Compute API's part of the configuration."""

    public_url: str = ""
    """`http://host:port` that links begin with; empty means what the request's Host header says."""
    identity_url: str = ""
    """Named in `WWW-Authenticate` to clients that come without a token."""
    image_url: str = ""
    """URL of the image service, for links to images."""
    usage_audit_period: Literal["hour", "day", "month", "year"] = "month"
    """Of the audit that `/os-instance_usage_audit_log` lists."""
    body_max_bytes: int = 114_688
    page_max_rows: int = 1_000
    cors_origins: tuple[str, ...] = ()
    """Origins from which a browser may call this API; none means CORS is off, `*` means any."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """Default limits, over `DEFAULT_LIMITS` of `model.quota`."""
    default_zone: str = "nova"
    """The availability zone of hosts that are in no aggregate with one."""
    service_down_s: float = 60.0
    """A service that has sent no report for this long is down."""
    enable_instance_password: bool = True
    """Whether answers have `adminPass`."""


@dataclass(frozen=True)
class ApiClock:
    """The time, handed in so that tests can hold it."""

    now: Callable[[], float] = time.time
    """Seconds since the epoch."""


@dataclass
class AppContext:
    """Handed to every handler as `call.context`. `main.api_app` builds it; a part that is None is not there in this process."""

    region: Database
    policy: Policy
    config: ApiSettings = field(default_factory=ApiSettings)
    clock: ApiClock = field(default_factory=ApiClock)
    cells: Mapping[str, Database] = field(default_factory=dict)
    """The cells' databases by name: to read, and for writes of operators (a service disabled, a host forced down)."""
    operations: ServerService | None = None
    """Begins boots, deletes and actions."""
    placement: Engine | None = None
    """The provider cache, for explanations."""
    network: NetworkBackend | None = None
    image: ImageClient | None = None
    volume: VolumeClient | None = None
    consoles: Consoles | None = None
    notification_writer: OutboxWriter | None = None
    """None: notifications are off."""
    user_data: Callable[[str | None], str | None] = lambda stored: stored
    """The user data of a guest as records store it → as the user gave it."""
    project_exists: Callable[[str, str], Awaitable[bool]] | None = None
    """(project, the caller's token) → whether the identity service knows it. None: every project is accepted."""
    reload_aggregates: Callable[[], Awaitable[object]] | None = None
    """Reads aggregates again for this process's scheduler."""
    gate_facts: Callable[[], GateFacts] | None = None
    """What decides which behaviour is on."""
    limit_warnings: Callable[[], Awaitable[tuple[str, ...]]] | None = None
    """What to tell operators about limits that the identity service holds and nothing here follows."""
    open_circuits: Callable[[], tuple[LeftAlone, ...]] | None = None
    """Services that a process does not call for now, because they kept failing."""
    dry_runs: RateBuckets = field(default_factory=lambda: RateBuckets(1.0, 60, DRY_RUNS_KEPT_MAX))
    """How often each project may ask for dry runs."""
    unified_limits: Callable[[str], Awaitable[UnifiedLimits]] | None = None
    """Project → its limits at the identity service; None: those of `os-quota-sets` hold."""
    rendered_rows: RenderedRowCache = field(default_factory=RenderedRowCache)
    """Rows of `GET /servers/detail` that were rendered before."""

    async def limits_of(self, project: str) -> Limits:
        """What a project is held to. Raises Unavailable when the identity service's limits hold and are not known."""
        return self.config.quotas if self.unified_limits is None else await self.unified_limits(project)
