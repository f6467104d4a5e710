"""The optional abilities to send a guest to another host, to take one, and to resize one in its place.

A move has a UUID, with which both hosts mark what they keep of it (`driver.py` has the rules for all verbs).
"""

from typing import Protocol, runtime_checkable

from moorage.model.guest import GuestSpec, MoveTarget, PowerState
from moorage.model.ids import ServerId
from moorage.model.live_migration import LiveNow, LiveSource


@runtime_checkable
class Arrivals(Protocol):
    """Lists what a host keeps of guests that do not run there; after a time without contact the cell tells it what to remove."""

    async def arrivals(self) -> frozenset[ServerId]:
        """Return servers of which data arrived here and was not taken yet, or whose guests were live migrated away and left their disks;
        `destroy_guest` removes this.
        """
        ...


@runtime_checkable
class Movable(Protocol):
    async def move_target(self) -> MoveTarget:
        """Return the place to which other hosts send guests."""
        ...

    async def send_guest(self, server: ServerId, to: MoveTarget, move: str, graceful_s: float) -> PowerState:
        """Switch the guest off and send its disk; it stays here, off.  A repeat sends it again.  A host sends nothing to itself."""
        ...

    async def take_guest(self, spec: GuestSpec, move: str) -> PowerState:
        """Make a guest, switched off, from what was sent for this move, or from the guest that is here, which is kept too.

        A repeat does not change the guest.  Raises HostFailed: `disk_shrinks`, `nothing_arrived`, `host_full`.
        """
        ...

    async def return_guest(self, server: ServerId, move: str) -> PowerState:
        """Restore the guest that was kept in this move, switched off; if none was kept, this is success.

        A guest that was live migrated away by this move is here again, switched off, with the disk that stayed.
        """
        ...

    async def forget_left(self, server: ServerId, move: str) -> PowerState:
        """Remove the guest that was kept in this move; if none was kept, this is success."""
        ...


async def arrivals_at(driver: object) -> frozenset[ServerId]:
    """Return the driver's arrivals; None: the driver cannot list them."""
    return await driver.arrivals() if isinstance(driver, Arrivals) else frozenset()


@runtime_checkable
class LiveMovable(Protocol):
    """Live migrates guests.

    The source sends by itself, and the two hypervisors switch between them: at each moment the guest belongs to exactly one of them, and no
    message of ours is involved.  To keep the guest, abort at the source, which reports whether the guest has left; or, if the source
    cannot be reached, remove the waiting place at the destination: then the guest cannot arrive.
    """

    async def live_source(self, server: ServerId) -> LiveSource:
        """Return the facts that the destination compares. Raises HostFailed when the guest is not here, or cannot be sent."""
        ...

    async def live_target(self, spec: GuestSpec, source: LiveSource, block: bool | None) -> MoveTarget:
        """Check whether the guest can run here. Raises HostFailed (`live_refused`) if not: CPU, hypervisor, room, disks."""
        ...

    async def prepare_live(self, spec: GuestSpec, move: str) -> PowerState:
        """Make the place that waits for the guest; nothing runs there. A repeat changes neither the place nor a guest that arrived."""
        ...

    async def send_live(self, server: ServerId, to: MoveTarget, move: str) -> PowerState:
        """Begin to send, and return at once; a repeat during the transfer, or after the guest has left, changes nothing."""
        ...

    async def live_status(self, server: ServerId, move: str) -> LiveNow:
        """Return the state at this host, source or destination, also without the guest. It is called often, so it must be cheap."""
        ...

    async def abort_live(self, server: ServerId, move: str) -> PowerState:
        """Stop the transfer; nothing is sent any more when this returns. `live_status` tells whether the guest had left already."""
        ...

    async def force_live(self, server: ServerId, move: str, *, post_copy: bool) -> PowerState:
        """Switch now: paused until everything has arrived, or, with `post_copy`, before that. Without a transfer this is success."""
        ...

    async def drop_live(self, server: ServerId, move: str) -> PowerState:
        """Remove the waiting place, so that nothing can arrive; a missing place is success. Raises HostFailed (`guest_has_arrived`)."""
        ...

    async def land_live(self, spec: GuestSpec, move: str) -> PowerState:
        """Record the arrived guest with its NICs and volumes of this host. Raises HostFailed (`nothing_arrived`)."""
        ...
