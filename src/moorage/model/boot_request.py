"""A boot request before its names are resolved; `operations/boot` turns it into servers."""

from typing import Literal, TypeAlias

import msgspec

from moorage.model.guest import InjectedFile
from moorage.model.server import BlockDevice


class NicWish(msgspec.Struct, frozen=True):
    """One entry of `networks`."""

    network: str | None = None
    port: str | None = None
    address: str | None = None
    tag: str | None = None


NicWishes: TypeAlias = tuple[NicWish, ...] | Literal["auto", "none", "unspecified"]
"""`unspecified` is below 2.37 only: all networks the project may use, when there is exactly one, else a refusal."""


class BootRequest(msgspec.Struct, frozen=True):
    """`POST /servers`, in the same form for every microversion."""

    name: str
    flavor_ref: str
    image_ref: str | None = None
    """None or empty when booted from a volume."""
    nics: NicWishes = "unspecified"
    min_count: int = 1
    max_count: int = 1
    availability_zone: str | None = None
    """As sent: a zone, or `zone:host[:node]` if the user may choose a host (Nova's forced host)."""
    host: str | None = None
    """2.74: the host asked for; the scheduler still judges it."""
    hypervisor_hostname: str | None = None
    key_name: str | None = None
    user_data: str | None = None
    metadata: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    description: str | None = None
    hostname: str | None = None
    config_drive: bool = False
    security_groups: tuple[str, ...] = ()
    hints: dict[str, str | list[str]] = {}
    block_devices: tuple[BlockDevice, ...] = ()
    no_devices: tuple[str, ...] = ()
    """Names of devices that the image defines and the server shall not have."""
    access_ip_v4: str | None = None
    access_ip_v6: str | None = None
    disk_config: str | None = None
    trusted_certs: tuple[str, ...] = ()
    qos_ports_allowed: bool = True
    """False below 2.72: a pre-made port with a resource request is refused."""
    multiattach_allowed: bool = True
    """False below 2.60: a volume of several writers is refused."""
    reservation_id: str = ""
    admin_password: str = ""
    """Given to the guest on its config drive, if it has one; never stored unencrypted."""
    files: tuple[InjectedFile, ...] = ()
