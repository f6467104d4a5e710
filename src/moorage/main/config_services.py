"""Tables of the configuration: the identity, image, network and volume services, and our account with them."""

from ipaddress import ip_network
from typing import Annotated, Literal

import msgspec

from moorage.model.errors import Invalid


class ServiceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An outside service, or the embedded one."""

    url: str = ""
    """Empty: the embedded service."""
    timeout_s: float = 30.0
    """How long one call may take, all of it."""
    breaker_failures: int = 5
    """After this many failures in a row it is not called for a while; 0: it is always called (N19)."""
    breaker_rest_s: float = 1.0
    """Length of that pause at first; it doubles each time that the service still fails, up to ten seconds."""
    ca_file: str = ""
    """PEM file of the CA of its certificate; empty: those that this machine trusts. Of an embedded service it is `[api] ca_file`."""


class ImageConfig(ServiceSettings, frozen=True):
    metadefs: str = ""
    """Of the embedded service: a directory of metadata definitions, one JSON file for each namespace, as Glance's `etc/metadefs`."""
    import_hosts: tuple[str, ...] = ()
    """Of the embedded service: hosts from which tasks of administrators may import, `name` or `name:port`."""
    image_size_cap: Annotated[int, msgspec.Meta(gt=0)] = 2**40
    """Of the embedded service: bytes of one image."""
    user_storage_quota: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Of the embedded service: bytes of all images of one project; 0: no limit but the project's own (`image_size_total`)."""
    ticket_secret: str = ""
    """What conductors and API processes sign hosts' tickets for images with, and the embedded service checks them by; never in a
    host's file.  Empty: one that is made once and kept in the data directory, for processes that share it."""


class FlatPoolConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Addresses of one flat network in one cell."""

    network: str
    cell: str
    cidr: str
    gateway: str = ""
    """Empty: the first address."""
    first: str = ""
    """The first address that is assigned; empty: the one after the gateway."""
    last: str = ""
    dns: tuple[str, ...] = ()
    bridge: str = ""
    """Name of the hosts' bridge."""


class NetworkConfig(ServiceSettings, frozen=True, forbid_unknown_fields=True):
    """The network service, or none (`flat`)."""

    backend: Literal["ports", "flat"] = "ports"
    """`flat`: no network service and no ports; addresses come from `pools`, one of each network for each cell (S0.16)."""
    pools: tuple[FlatPoolConfig, ...] = ()
    forbidden_ranges: tuple[str, ...] = ()
    """Of the embedded service: ranges (`10.0.0.0/16`) of which no subnet but an administrator's has addresses."""

    reports: bool = False
    """Whether its plug-ins write into our Placement and our host aggregates themselves: `segments` writes the segments, and
    `placement` what its agents guarantee. Then Moorage writes neither."""


def check_ranges(network: NetworkConfig) -> None:
    """Check `[network] forbidden_ranges`. Raises Invalid for one that is no range: each subnet is compared with it."""
    for each in network.forbidden_ranges:
        try:
            ip_network(each)
        except ValueError as wrong:
            raise Invalid(f"[network] forbidden_ranges: {wrong}") from wrong


class VolumeConfig(ServiceSettings, frozen=True, forbid_unknown_fields=True):
    """The volume service (Cinder), up to but without `/v3`."""

    cross_az_attach: bool = True
    """Whether a server may have volumes of other availability zones than its own (Nova's `[cinder] cross_az_attach`)."""
    wait_s: float = 180.0
    """How long a boot waits for the volumes that are made for it (Nova's `block_device_allocate_retries` times its interval)."""


class ServiceUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The account of our own calls; it has the roles admin and service on `project`."""

    user: str = "moorage"
    password: str = ""
    project: str = "service"
    domain: str = "Default"
