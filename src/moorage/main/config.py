"""One TOML file → one frozen Config, read once and passed down; no other module reads files or the environment.

Every table and key below may stand in the file; `moorage up` needs none.  Unknown keys are refused, with their name.
Relative paths are taken from `data_dir`.
"""

import datetime
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from moorage.drivers.libvirt.settings import Libvirt
from moorage.drivers.redfish_fence import RedfishMachine
from moorage.main.config_api import LISTENERS, OPTIONAL_PORTS, ApiConfig, Listen, PlacementConfig
from moorage.main.config_audit_log import AuditLog
from moorage.main.config_bus import BusConfig, ImageUser
from moorage.main.config_guests import Console, MetadataConfig
from moorage.main.config_hosts import AgentConfig, Hosts, Upgrade, UpgradeLevels
from moorage.main.config_notifications import Notifications
from moorage.main.config_quota import Quota, check_quota
from moorage.main.config_scheduler import FenceConfig, Scheduler, WaitingConfig
from moorage.main.config_services import (
    FlatPoolConfig,
    ImageConfig,
    NetworkConfig,
    ServiceSettings,
    ServiceUser,
    VolumeConfig,
    check_ranges,
)
from moorage.main.config_watching import MetricsConfig, TracingConfig, check_watching
from moorage.main.http_limits import check_limits
from moorage.main.secret_settings import check_unread, resolved
from moorage.main.security import Secrets, SecurityCompliance, check_security
from moorage.model.errors import Invalid
from moorage.sql import DatabaseLimits
from moorage.webconsole.settings import WebConsole

VENDOR_TARGETS_MAX = 16
WHOLE_INTERFACES_MAX = 32
"""Of one physical network: devices of a PCI bus."""
HOSTS_MAX = 10_000
TOML_TYPES = (datetime.datetime, datetime.date, datetime.time)
CELLS_MAX = 100
PORT_MAX = 65_535


__all__ = [
    "LISTENERS",
    "OPTIONAL_PORTS",
    "AgentConfig",
    "ApiConfig",
    "AuditSettings",
    "Cell",
    "Compute",
    "Config",
    "DatabaseConfig",
    "FlatPoolConfig",
    "Hosts",
    "ImageConfig",
    "Listen",
    "NetworkConfig",
    "PlacementConfig",
    "Quota",
    "RegionSettings",
    "ServiceSettings",
    "ServiceUser",
    "Upgrade",
    "UpgradeLevels",
    "VolumeConfig",
    "checked",
    "read_config",
]


class RegionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str = "RegionOne"
    database: str = ""
    """`postgresql://user:password@host/region`; empty: SQLite in the data directory."""
    durability: Literal["power", "process"] = "power"
    """SQLite only. `process` survives kill -9, not a power cut."""
    record_copies_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """How often the cells' records of servers and hosts are copied into the region's database, in case a cell's database is lost for ever; 0: never."""


class Cell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    database: str = ""
    volume_zones: tuple[str, ...] = ()
    """Availability zones of the volume service whose volumes its hosts can reach; empty: all. A server with others is not moved into this cell."""


class DatabaseConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of each database of a process: how long a process waits for it, and how many connections it opens."""

    pool_size: int = 16
    """PostgreSQL: connections of one process to one database; further work waits until a connection is free."""
    pool_wait_s: float = 30.0
    """PostgreSQL: how long work waits for a free connection; then it is refused as if the database were out."""
    connect_s: float = 10.0
    """PostgreSQL: how long a new connection may take."""
    statement_s: float = 20.0
    """PostgreSQL: how long one statement may take. A server that is silent for 2 s more is out."""
    file_wait_s: float = 60.0
    """SQLite: how long a transaction waits for its turn and its answer. A disk that takes longer is out."""

    @property
    def limits(self) -> DatabaseLimits:
        """The limits in the form that `moorage.sql` takes."""
        return DatabaseLimits(**{name: getattr(self, name) for name in self.__struct_fields__})


class Compute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    max_attempts: int = 3
    """Hosts tried for one boot; lost claims do not count."""
    host_deadline_s: float = 60.0
    """How long a host may take for one command."""
    lease_s: float = 15.0
    """A conductor that sends no sign of life for this long is dead, and its operations are adopted (RULES §3)."""
    lease_beat_s: float = 5.0
    """How often a conductor renews its lease, and looks for dead ones."""
    host_silence_s: float = 30.0
    """A host that sends no sign of life for this long is down."""
    approve_hosts: Literal["", "automatic", "operator"] = ""
    """Whether a new host joins the region when it first reports, or when an operator approves it; empty: `operator`, but `automatic` where all runs in one process."""
    boots_at_once: int = 500
    """Boots that one conductor executes at once; those that wait for another service count too. The others wait in line."""
    deletes_at_once: int = 250
    live_migrations_at_once: int = 250
    """Live migrations that one conductor executes at once: each may send its guest's memory for hours."""
    actions_at_once: int = 250
    """All other operations together: power, attach, detach."""
    project_part_max: float = 0.5
    """The part of each of these limits that one project may use."""
    cell_part_max: float = 0.5
    """The part of each of these limits, except boots, that the servers of one cell may use."""
    auto_refusal: Literal[409, 400] = 409
    """Decision D1: the status when `auto` cannot be served; 400 is Nova's."""
    reclaim_instance_interval: float = 0.0
    """Seconds in which a deleted server can be restored; meanwhile it is off and uses no quota. 0: servers are deleted at once (Nova's default)."""
    rescue_image: str = ""
    """The id of the image that rescues servers when none is named; empty: the image each was made from."""
    default_availability_zone: str = "nova"
    vif_plugging_timeout: float = 300.0
    """Seconds that ACTIVE waits for `network-vif-plugged` when the bind reply was not already ACTIVE (Nova's default); 0: it does not."""
    vif_plugging_is_fatal: bool = True
    image_deadline_s: float = 14_400.0
    """How long a host may take to copy a guest's disk, and to send it to the image service."""
    shelved_offload_time: float = 0.0
    """Seconds after which a shelved server leaves its host; 0: at once; below 0: only when somebody asks for it (Nova's)."""
    allow_resize_to_same_host: bool = False
    """Whether a server may be resized on the host where it is (Nova's default: it may not)."""
    allow_move_across_segments: bool = False
    """Whether a resize or cold migration may give a server other addresses if no host of its segments can take it (Nova: never)."""
    sync_power_state_interval: float = 15.0
    """Seconds between looks for servers whose guests have ended by themselves, which are stopped then; 0 or below: never (Nova's default is 600)."""
    resize_confirm_window: int = 0
    """Seconds after which a resize or cold migration that nobody confirmed or reverted is confirmed; 0: never (Nova's default)."""
    max_concurrent_live_migrations: Annotated[int, msgspec.Meta(ge=0)] = 1
    """Guests that one host sends at a time; the others are queued, in the order in which they became ready to go (Nova's default). 0: no limit."""
    live_migration_timeout_s: float = 86_400.0
    """Seconds after which a live migration whose guest is still being sent is aborted."""
    live_migration_permit_post_copy: bool = False
    """Whether a forced live migration may let the guest go on before all of its memory is there (Nova's default: it may not)."""
    cell_links: tuple[tuple[str, str], ...] = ()
    """Pairs of cells whose hosts reach one another: whoever may move a server across cells may live migrate it between them."""
    fence_plugin: Literal["", "simulated", "redfish"] = ""
    """Who confirms that a silent host's machine is off, when a server is evacuated from it; empty: an operator
    (`openstack compute service set --down`). `simulated`: the dial `fenced` of hosts whose directories are on this machine; `redfish`: the machines' management controllers (`[fence]`)."""
    non_inheritable_image_properties: tuple[str, ...] = ("cache_in_nova", "bittorrent")
    """Image properties that are not copied to snapshots of the image's servers (Nova's)."""


class AuditSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Periodic audits: what each service holds for servers is compared with the servers' records (`moorage audit`)."""

    every_s: float = 3_600.0
    """How often an audit runs by itself; 0: never."""
    repair: bool = False
    """Whether these audits repair what they find; else they only report it."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    data_dir: str = "moorage-data"
    region: RegionSettings = RegionSettings()
    cells: tuple[Cell, ...] = (Cell("cell1"), Cell("cell2"))
    database: DatabaseConfig = DatabaseConfig()
    bus: BusConfig = BusConfig()
    api: ApiConfig = ApiConfig()
    identity: ServiceSettings = ServiceSettings()
    network: NetworkConfig = NetworkConfig()
    image: ImageConfig = ImageConfig()
    volume: VolumeConfig = VolumeConfig()
    service_user: ServiceUser = ServiceUser()
    image_user: ImageUser = ImageUser()
    secrets: Secrets = Secrets()
    security_compliance: SecurityCompliance = SecurityCompliance()
    admin_password: str = ""
    """Of the embedded identity's `admin`; empty: made once and kept in the data directory."""
    token_life_s: float = 3600.0
    """How long a token of the embedded identity is valid."""
    hosts: Hosts = Hosts()
    agent: AgentConfig = AgentConfig()
    libvirt: Libvirt = Libvirt()
    quota: Quota = Quota()
    upgrade_levels: UpgradeLevels = UpgradeLevels()
    upgrade: Upgrade = Upgrade()
    compute: Compute = Compute()
    fence: FenceConfig = FenceConfig()
    scheduler: Scheduler = Scheduler()
    waiting: WaitingConfig = WaitingConfig()
    placement: PlacementConfig = PlacementConfig()
    metadata: MetadataConfig = MetadataConfig()
    console: Console = Console()
    webconsole: WebConsole = WebConsole()
    notifications: Notifications = Notifications()
    audit: AuditSettings = AuditSettings()
    audit_log: AuditLog = AuditLog()
    metrics: MetricsConfig = MetricsConfig()
    tracing: TracingConfig = TracingConfig()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    """`json`: one object a line."""

    def __post_init__(self) -> None:
        """Give the console's listener the certificate that is configured under its older name."""
        console, listen = self.console, self.api.console
        if console.certificate and not listen.cert:
            listen = msgspec.structs.replace(listen, cert=console.certificate, key=console.key)
            msgspec.structs.force_setattr(self, "api", msgspec.structs.replace(self.api, console=listen))

    @property
    def approves_hosts_itself(self) -> bool:
        setting = self.compute.approve_hosts
        return setting == "automatic" or (not setting and self.bus.url in {"", "memory:"})

    @property
    def data(self) -> Path:
        return Path(self.data_dir).resolve()

    def ca_of(self, named: ServiceSettings | None = None) -> str:
        """The CA file of another service, or (None, or without a URL) of our own listeners; empty: what this machine trusts."""
        name = named.ca_file if named is not None and named.url else self.api.ca_file
        return str(self.data / name) if name else ""

    def region_url(self) -> str:
        return self.region.database or f"sqlite:///{self.data / 'region.db'}"

    @property
    def holds_region(self) -> bool:
        """Whether the region's database is a file in the data directory: then the process that holds the directory's lock is the only one."""
        return not self.region.database

    def cell_url(self, cell: Cell) -> str:
        return cell.database or f"sqlite:///{self.data / f'{cell.name}.db'}"

    def embedded_url(self, name: str) -> str:
        return f"sqlite:///{self.data / f'{name}.db'}"


def read_config(path: Path | None) -> Config:
    """Read one TOML file (None: all defaults). Raises Invalid with the file and the key that is wrong."""
    if path is None:
        return Config()
    try:
        settings = msgspec.toml.decode(path.read_bytes())
        check_unread(path, settings)
        return checked(
            msgspec.convert(resolved(settings, path.absolute().parent), Config, builtin_types=TOML_TYPES, str_keys=True)
        )
    except FileNotFoundError as missing:
        raise Invalid(f"there is no configuration file {path}") from missing
    except OSError as unreadable:
        raise Invalid(f"the configuration file {path} cannot be read: {unreadable.strerror}") from unreadable
    except (msgspec.DecodeError, msgspec.ValidationError) as wrong:
        raise Invalid(f"{path}: {wrong}") from wrong


def checked(config: Config) -> Config:
    """Check the values and return the same configuration. Raises Invalid for a value that makes no sense; the message names it."""
    check_quota(config.quota)
    if config.hosts.count is not None and not 0 <= config.hosts.count <= HOSTS_MAX:
        raise Invalid(f"{config.hosts.count} simulated hosts: from 0 to {HOSTS_MAX} are possible")
    if not 0 <= config.hosts.whole_interfaces <= WHOLE_INTERFACES_MAX:
        raise Invalid(
            f"{config.hosts.whole_interfaces} whole interfaces: from 0 to {WHOLE_INTERFACES_MAX} are possible"
        )
    if not 1 <= len(config.cells) <= CELLS_MAX:
        raise Invalid(f"{len(config.cells)} cells: from 1 to {CELLS_MAX} are possible")
    if len({cell.name for cell in config.cells}) < len(config.cells):
        raise Invalid("two cells have the same name")
    if strangers := {each for pair in config.compute.cell_links for each in pair} - {
        each.name for each in config.cells
    }:
        raise Invalid(
            f"[compute] cell_links names {', '.join(sorted(strangers))}, which is no cell of this configuration"
        )
    waits = config.database
    if min(waits.pool_size, waits.pool_wait_s, waits.connect_s, waits.statement_s, waits.file_wait_s) <= 0:
        raise Invalid("[database] limits are positive numbers")
    settings = config.notifications
    if (
        min(settings.outbox_rows_max, settings.outbox_age_max_s, settings.retry_first_s, settings.retry_most_s) <= 0
        or settings.tries_max < 0
    ):
        raise Invalid("[notifications] limits are positive numbers; tries_max may be 0")
    _check_listeners(config.api)
    if config.audit_log.enabled and config.audit_log.notify and not settings.wanted:
        raise Invalid("[audit_log] notify needs [notifications] with bus or transport_url: where events are to go")
    if config.audit.every_s < 0:
        raise Invalid("[audit] every_s is a positive number, or 0")
    check_watching(config.metrics, config.tracing)
    check_ranges(config.network)
    _check_fence(config.fence.machines)
    _check_guests(config)
    check_security(config.secrets, config.security_compliance)
    return config


def _check_listeners(api: ApiConfig) -> None:
    """Raises Invalid."""
    check_limits(api.limits)
    for name in (*LISTENERS, *OPTIONAL_PORTS):
        listen: Listen = getattr(api, name)
        if listen.key and not listen.cert:
            raise Invalid(f"[api.{name}] names a key without a certificate: set cert, here or under [api]")
        if name in LISTENERS and not 0 < listen.port <= PORT_MAX:
            raise Invalid(f"{listen.port} is no port for the {name} service: ports are from 1 to {PORT_MAX}")
        if not 0 <= listen.port <= PORT_MAX:
            raise Invalid(f"{listen.port} is no port for the {name} service: from 0 (none) to {PORT_MAX}")


def _check_fence(machines: tuple[RedfishMachine, ...]) -> None:
    """Check the machines' controllers: an answer about another host's machine would be a false proof. Raises Invalid."""
    if len({each.host for each in machines}) < len(machines):
        raise Invalid("[[fence.machines]] names a host twice")
    if len({(each.url.rstrip("/").lower(), each.system.rstrip("/")) for each in machines}) < len(machines):
        raise Invalid("[[fence.machines]] gives two hosts the same machine")
    controllers = Counter(each.url.rstrip("/").lower() for each in machines)
    if any(not each.system and controllers[each.url.rstrip("/").lower()] > 1 for each in machines):
        raise Invalid("[[fence.machines]] gives two hosts one controller: say with `system` which machine is whose")
    if any(not each.url.lower().startswith("https://") for each in machines):
        raise Invalid("[[fence.machines]] url begins with https://")


def _check_guests(config: Config) -> None:
    """Check the settings of metadata and consoles. Raises Invalid."""
    first, end = config.libvirt.serial_ports
    if not 0 < first < end <= PORT_MAX + 1:
        raise Invalid(f"[libvirt] serial_ports are from {first} to before {end}, which is no range of ports")
    consoles = config.console
    if min(consoles.token_life_s, consoles.connections_max, consoles.connections_of_a_server_max) <= 0:
        raise Invalid("[console] limits are positive numbers")
    if bool(consoles.certificate) != bool(consoles.key):
        raise Invalid("[console] certificate and key belong together")
    vendors = [target.name for target in config.metadata.vendor_data_targets]
    if len(vendors) > VENDOR_TARGETS_MAX or len(set(vendors) | {"static"}) <= len(vendors):
        raise Invalid(
            f"[[metadata.vendor_data_targets]]: at most {VENDOR_TARGETS_MAX}, with different names, none of them 'static'"
        )
    if config.metadata.vendor_data_timeout_s <= 0 or config.metadata.kept_s < 0:
        raise Invalid("[metadata] vendor_data_timeout_s is a positive number, kept_s is one or 0")
