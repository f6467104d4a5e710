"""Payloads of commands that move a guest to another host, off or while it runs."""

import msgspec

from moorage.model.guest import GuestSpec, MoveTarget
from moorage.model.live_migration import LiveSource


class SendGuest(msgspec.Struct, frozen=True):
    """Switch the guest off and send its disk to the host that is to have it; the guest stays here too, and off."""

    to: MoveTarget
    move: str
    """The move's UUID."""
    graceful_s: float = 60.0


class TakeGuest(msgspec.Struct, frozen=True):
    """Make a guest of what another host sent; it is off until it is started.  Where the guest is here already, the old one is kept
    beside it."""

    guest: GuestSpec
    move: str


class OfMove(msgspec.Struct, frozen=True):
    """Of a guest that was resized on its host: have the old one back, or forget it."""

    move: str


class LiveTarget(msgspec.Struct, frozen=True):
    """Can this guest, which runs on that host, go on here?  Answered with a `MoveTarget`."""

    guest: GuestSpec
    source: LiveSource
    block: bool | None = None
    """Whether local disks are sent too; None: if they must be."""


class SendLive(msgspec.Struct, frozen=True):
    """Begin to send a guest that runs to the host that waits for it."""

    to: MoveTarget
    move: str


class ForceLive(msgspec.Struct, frozen=True):
    """Switch now, though the guest writes faster than it is sent."""

    move: str
    post_copy: bool = False
    """It may go on there before all of its memory is; else it stands still until it is."""
