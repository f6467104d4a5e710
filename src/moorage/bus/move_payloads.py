"""Payloads of commands that move a guest to another host, off or while it runs."""

import msgspec

from moorage.model.guest import GuestSpec, MoveTarget
from moorage.model.live_migration import LiveSource


class SendGuest(msgspec.Struct, frozen=True):
    """Switch the guest off and send its disk to the destination host; the guest also stays here, switched off."""

    to: MoveTarget
    move: str
    """The move's UUID."""
    graceful_s: float = 60.0


class TakeGuest(msgspec.Struct, frozen=True):
    """Make a guest from what another host sent; it is off until it is started.  If the guest is here already, the old one is kept too."""

    guest: GuestSpec
    move: str


class OfMove(msgspec.Struct, frozen=True):
    """For a guest that was resized on its host: restore the old one, or remove it."""

    move: str


class LiveTarget(msgspec.Struct, frozen=True):
    """Ask whether this guest, which runs on that host, can run here.  The answer is a `MoveTarget`."""

    guest: GuestSpec
    source: LiveSource
    block: bool | None = None
    """Whether local disks are sent too; None: only if necessary."""


class SendLive(msgspec.Struct, frozen=True):
    """Begin to send a running guest to the host that waits for it."""

    to: MoveTarget
    move: str


class ForceLive(msgspec.Struct, frozen=True):
    """Complete the move now, even if the guest writes memory faster than it is sent."""

    move: str
    post_copy: bool = False
    """Whether the guest may run there before all of its memory has arrived; else it is paused until then."""
