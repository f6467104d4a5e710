"""A compute host as its cell keeps it: what it said of itself, what an operator said of it, and when it was last heard."""

from typing import Any

import msgspec

from moorage.model.guest import ResourceInventory
from moorage.model.ids import CellId, HostId, ServerId

NAMED_MAX = 100
"""Guests of a host that are kept by name.  What is wrong there seldom has so many."""


class HostTroubles(msgspec.Struct, frozen=True):
    """What its cell's conductor saw of a host that a person should look at."""

    left_alone: tuple[ServerId, ...] = ()
    """Guests of which no record says anything, at most `NAMED_MAX`; nothing is done to them."""
    left_alone_count: int = 0
    """All of them."""
    refused_agent: str = ""
    """A second agent that spoke for the host, and was refused; by the name it has for one life."""
    refused_at: int = 0
    """When that was last so, µs."""


NO_TROUBLES = HostTroubles()


class Host(msgspec.Struct, frozen=True):
    """One host: the hypervisor of `os-hypervisors` and the `nova-compute` of `os-services`."""

    number: int
    """Below 2.53 clients know hypervisors and services by a number."""
    id: HostId
    """The root resource provider, which is also the hypervisor's UUID."""
    service: str
    """The UUID of its `nova-compute` service."""
    host: str
    node: str
    cell: CellId
    zone: str = "nova"
    level: int = 3
    version: str = ""
    hypervisor_type: str = ""
    hypervisor_version: int = 0
    cpu_info: dict[str, Any] = {}
    address: str = ""
    inventory: dict[str, ResourceInventory] = {}
    traits: tuple[str, ...] = ()
    physical_networks: tuple[str, ...] = ()
    seen_at: int = 0
    """When it was last heard, µs, at most half a minute late."""
    created_at: int = 0
    updated_at: int | None = None
    disabled: bool = False
    disabled_reason: str | None = None
    forced_down: bool = False
    forced_down_by: str | None = None
    """The user who said so; None: an earlier release did not note it."""
    forced_down_at: int | None = None
    agent: str = ""
    """The agent that speaks for it, by the name it has for one life; empty: none."""
    set_aside: tuple[str, ...] = ()
    """Records of guests that the host could not read, and has put away."""
    up_since: int = 0
    """Since when the machine runs, µs by its own clock; 0: it does not say."""
