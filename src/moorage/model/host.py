"""A compute host as its cell records it: its own report, an operator's settings, and its last sign of life."""

from typing import Any

import msgspec

from moorage.model.guest import ResourceInventory
from moorage.model.ids import CellId, HostId, ServerId

NAMED_MAX = 100
"""Limit of guests of a host that are recorded by name; the others are counted."""


class HostTroubles(msgspec.Struct, frozen=True):
    """Problems of a host that its cell's conductor saw and that a person should examine."""

    left_alone: tuple[ServerId, ...] = ()
    """Guests without any record, at most `NAMED_MAX`; nothing is done to them."""
    left_alone_count: int = 0
    """The number of all guests without a record."""
    refused_agent: str = ""
    """The incarnation id of a second agent that reported for the host and was refused."""
    refused_at: int = 0
    """When it was last refused, µs."""
    not_wired: tuple[str, ...] = ()
    """What the host could not wire or filter of its ports, some of it."""


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
    """The last sign of life, µs; the record is at most half a minute late."""
    created_at: int = 0
    updated_at: int | None = None
    disabled: bool = False
    disabled_reason: str | None = None
    forced_down: bool = False
    forced_down_by: str | None = None
    """The user who forced the host down; None: an earlier release did not record it."""
    forced_down_at: int | None = None
    agent: str = ""
    """The incarnation id of the agent that reports for the host; empty: none."""
    set_aside: tuple[str, ...] = ()
    """Records of guests that the host could not read and has moved aside."""
    up_since: int = 0
    """Since when the machine runs, µs by its own clock; 0: it does not say."""
