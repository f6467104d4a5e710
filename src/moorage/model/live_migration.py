"""What two hosts say of a guest that goes from one to the other while it runs."""

from enum import StrEnum
from typing import Any

import msgspec

from moorage.model.migration import TransferProgress


class LiveState(StrEnum):
    """How a live migration stands, by the word of one of its two hosts."""

    NONE = "none"
    """The host knows of no such move, or has forgotten a transfer that ended with its agent: the guest did not leave."""
    RUNNING = "running"
    """The source is sending."""
    SWITCHED = "switched"
    """The guest has left the source, and goes on at the destination."""
    FAILED = "failed"
    ABORTED = "aborted"
    """The guest goes on at the source."""
    WAITING = "waiting"
    """The destination has made room, and nothing runs there."""
    ARRIVED = "arrived"
    """The guest goes on at the destination."""


OVER_AT_SOURCE = frozenset({LiveState.NONE, LiveState.FAILED, LiveState.ABORTED})


class LiveNow(msgspec.Struct, frozen=True):
    """How it stands at one host."""

    state: LiveState = LiveState.NONE
    progress: TransferProgress | None = None
    why: str = ""


class LiveSource(msgspec.Struct, frozen=True):
    """What a destination must know of the host that the guest is on, to say whether it can go on there."""

    cpu_info: dict[str, Any] = {}
    hypervisor_type: str = ""
    hypervisor_version: int = 0
    storage: str = ""
    """Names the place of its local disks: two hosts that share it say the same."""
