"""Tables of the configuration: simulated hosts, one agent, and settings that delay new behaviour during an upgrade."""

from typing import Annotated, Literal, TypeAlias

import msgspec

Functions: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=248)]
"""Of one interface: on one bus, eight in each of its slots but the first."""


class Hosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The simulated hosts of `moorage up`."""

    count: int | None = None
    """None: eight. With two cells and two physical networks each network has two hosts in each cell then, so that every move has
    somewhere to go.
    """
    vcpus: int = 16
    ram_mib: int = 32768
    disk_gib: int = 500
    physical_networks: tuple[tuple[str, ...], ...] = (("physnet1",), ("physnet2",))
    """Host number n has the (n mod length)-th set: by default odd and even hosts are on different segments."""
    bandwidth_kbps: int = 10_000_000
    """What each bridge of a host can guarantee to ports, each way (embedded network service); 0: nothing."""
    packet_rate_kpps: int = 1_000
    """What each host can guarantee to ports in packets; 0: nothing."""
    levels: tuple[Literal[1, 2, 3], ...] = (3,)
    """Host number n has the (n mod length)-th protocol level: 1 and 2 see to their guests' ports themselves."""
    whole_interfaces: int = 0
    """SR-IOV interfaces on each physical network that guests may have whole, at most 32."""
    virtual_functions: Functions = 8
    """Number of virtual functions of the SR-IOV interface that each host has on each of its physical networks; 0: no such interface."""
    beat_s: float = 5.0
    """How often each host sends a heartbeat."""


class AgentConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One host, for `moorage agent`."""

    host: str = ""
    cell: str = "cell1"
    driver: Literal["simulated", "libvirt"] = "simulated"
    """`libvirt`: real guests (`[libvirt]`); `moorage up` then has this machine as its one host."""
    level: Literal[1, 2, 3] = 3
    """Protocol level. 1 and 2 see to their guests' ports themselves, and need `[service_user]`; 3 has no network client."""
    vcpus: int = 16
    ram_mib: int = 32768
    disk_gib: int = 500
    physical_networks: tuple[str, ...] = ("physnet1",)
    virtual_functions: Functions = 8
    """Of the SR-IOV interface that a simulated host has on each of its physical networks; 0: no such interface."""


class UpgradeLevels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds behaviour back while a fleet is upgraded (Nova's name for it)."""

    compute: Literal["auto", 1, 2, 3] = "auto"
    """`auto`: as the agents' own levels allow. A number: as if no agent were above that level."""


class Upgrade(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requirements of this release that earlier releases did not have."""

    conductor_credentials: Literal["wanted", "required"] = "wanted"
    """A conductor's credentials for the network service. `wanted`: without them it logs a warning, and hosts of level 1 and 2 make and bind ports.
    `required` (the next release): without them it does not start."""
