"""What the front desk has within reach: databases to read, clients to ask, the door to operations, limits, the time."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from moorage.api.policy import Policy
from moorage.model.principal import Principal
from moorage.sql import Database

Authenticate: TypeAlias = Callable[[str, str | None], Awaitable[Principal]]
"""(token, service token or None) → who asks; raises Unauthenticated or Unavailable."""


@dataclass(frozen=True)
class ApiSettings:
    """The front desk's part of the configuration."""

    public_url: str = ""
    """`http://host:port` that links begin with; empty means what the request's Host header says."""
    identity_url: str = ""
    """Told to clients that come without a token (`WWW-Authenticate`)."""
    image_url: str = ""
    """Where the image service is, for links to images."""
    usage_audit_period: Literal["hour", "day", "month", "year"] = "month"
    """Of the audit that `/os-instance_usage_audit_log` tells of."""
    body_max_bytes: int = 114_688
    page_max_rows: int = 1_000
    cors_origins: tuple[str, ...] = ()
    """Origins a browser may call us from; none means CORS is off, `*` means any."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """Default limits, over `DEFAULT_LIMITS` of the quota room."""
    default_zone: str = "nova"
    """The availability zone of hosts that are in no aggregate with one."""
    service_down_s: float = 60.0
    """A service that has not been heard of for this long is down."""
    enable_instance_password: bool = True
    """Whether answers have `adminPass`."""
    enabled_filters: Mapping[str, Any] = field(default_factory=dict)


class CellsReader(Protocol):
    """The cells' databases, to read and for one-noun writes of operators (a service disabled, a host forced down)."""

    def all(self) -> Mapping[str, Database]:
        """Name of cell → its database."""
        ...


@dataclass(frozen=True)
class Clock:
    """The time, handed in so that tests can hold it."""

    now: Callable[[], float] = time.time
    """Seconds since the epoch."""


@dataclass
class AppContext:
    """Handed to every handler as `call.context` (and, where a noun declares its own Protocol, as `call.context`)."""

    region: Database
    policy: Policy
    config: ApiSettings = field(default_factory=ApiSettings)
    clock: Clock = field(default_factory=Clock)
    cells: CellsReader | None = None
    operations: Any = None
    """The door to `operations`: what begins boots, deletes and actions (its own Protocol is declared where it is used)."""
    network: Any = None
    image: Any = None
    identity: Any = None
    volume: Any = None
    user_data: Callable[[str | None], str | None] = lambda kept: kept
    """What a user gave a guest, as records keep it → as it was said."""
    nouns: dict[str, Any] = field(default_factory=dict)
    """Further rooms that one noun needs, by name."""
