"""Tables of the configuration: the listeners of the APIs, and Placement."""

from typing import Annotated, Literal

import msgspec

from moorage.main.http_limits import HttpLimits, Rates

LISTENERS = ("compute", "placement", "identity", "image", "network", "volume")
OPTIONAL_PORTS = {"metadata": 8775, "console": 6080, "webconsole": 8785}
"""Services that not every process serves: the ports that their roles and `moorage up` use if none is configured."""


class Listen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where one HTTP service listens; `public_url` is the URL in the catalog and in links, if it differs."""

    host: str = "127.0.0.1"
    port: int = 0
    public_url: str = ""
    cert: str = ""
    """PEM file of a certificate and those between it and its CA; empty: that of `[api]`."""
    key: str = ""
    """PEM file of its key; empty: it is in the same file."""
    tls: bool = True
    """False: no TLS here though `[api]` has a certificate."""

    @property
    def has_tls(self) -> bool:
        return self.tls and bool(self.cert)

    @property
    def url(self) -> str:
        return self.public_url or self.own_url

    @property
    def own_url(self) -> str:
        """The URL at which it listens itself, even if a load balancer stands in front of it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.has_tls else 'http'}://{host}:{self.port}"


class ApiConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    body_max_bytes: int = 114_688
    """Of a request to the Compute API (Nova's limit)."""
    enable_instance_password: bool = True
    """Answers of create, rebuild and rescue have `adminPass` (Nova's setting and default)."""
    service_down_s: Annotated[float, msgspec.Meta(ge=1)] = 60.0
    """A service whose last sign of life is older than this is shown as down, and a server of such a host may be evacuated (Nova's `service_down_time`)."""
    dry_runs_per_minute: Annotated[int, msgspec.Meta(ge=1)] = 60
    """Of one project; administrators' are not counted."""
    max_limit: int = 1000
    cors_allowed_origins: tuple[str, ...] = ()
    policy_file: str = ""
    compute: Listen = Listen(port=8774)
    placement: Listen = Listen(port=8778)
    identity: Listen = Listen(port=5000)
    image: Listen = Listen(port=9292)
    network: Listen = Listen(port=9696)
    volume: Listen = Listen(port=8776)
    metadata: Listen = Listen()
    """Of `moorage metadata`, and of `moorage up`; port 0 is 8775 there."""
    console: Listen = Listen()
    """Of `moorage console`, and of `moorage up`; port 0 is 6080 there."""
    webconsole: Listen = Listen()
    """Of `moorage console-web`, and of `moorage up`; port 0 is 8785 there."""
    cert: str = ""
    """PEM file of the certificate of every listener that has none of its own."""
    key: str = ""
    ca_file: str = ""
    """PEM file of the CA of these certificates, for our own calls to our own listeners."""
    hsts_s: Annotated[int, msgspec.Meta(ge=0)] = 31_536_000
    """With TLS: for how long browsers use only HTTPS for this host name (`Strict-Transport-Security`); 0: the header is not sent."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses of load balancers: their `X-Forwarded-For` says who asks, and they may have any number of connections."""
    limits: HttpLimits = HttpLimits()
    rates: Rates = Rates()

    def __post_init__(self) -> None:
        """Each listener knows its certificate, and so its URL."""
        for name in (*LISTENERS, *OPTIONAL_PORTS):
            listen: Listen = getattr(self, name)
            if self.cert and not listen.cert:
                common = msgspec.structs.replace(listen, cert=self.cert, key=self.key)
                msgspec.structs.force_setattr(self, name, common)


class PlacementConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The Placement API; its address is `[api.placement]`."""

    database: str = ""
    """Of `moorage placement` alone; empty: SQLite in the data directory."""
    auth_strategy: Literal["keystone", "noauth2"] = "keystone"
    """Of `moorage placement` alone. `noauth2` checks no token and accepts every caller; for development."""
    policy_file: str = ""
    enforce_new_defaults: bool = True
    """False: what the older default rules allow an administrator is allowed too."""
    cors_allowed_origins: tuple[str, ...] = ()
    cors_allow_headers: tuple[str, ...] = ()
