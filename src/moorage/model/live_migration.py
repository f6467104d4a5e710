"""Live migration of a guest, as its two hosts report it."""

from enum import StrEnum
from typing import Any

import msgspec

from moorage.model.migration import TransferProgress


class LiveState(StrEnum):
    """The state of a live migration, as one of its two hosts reports it."""

    NONE = "none"
    """The host does not know this move: its transfer ended with its agent, or the guest left and was cleared. It proves nothing."""
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
    """The state at one host."""

    state: LiveState = LiveState.NONE
    progress: TransferProgress | None = None
    why: str = ""


class LiveSource(msgspec.Struct, frozen=True):
    """The facts about the source host from which a destination decides whether it can take the guest."""

    cpu_info: dict[str, Any] = {}
    hypervisor_type: str = ""
    hypervisor_version: int = 0
    storage: str = ""
    """Name of the place of its local disks: hosts that share this place have the same name."""
