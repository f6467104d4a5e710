"""The optional powers to send a guest to another host and to take one, or to make one another size in its place.

A move has a UUID, under which both hosts keep what they have of it (see `driver.py` for what all verbs promise).
"""

from typing import Protocol, runtime_checkable

from moorage.model.guest import GuestSpec, MoveTarget, PowerState
from moorage.model.ids import ServerId
from moorage.model.live_migration import LiveNow, LiveSource


@runtime_checkable
class Arrivals(Protocol):
    """What of guests that do not run there lies on a host, of which it is told, when it returns, what does not belong there any more."""

    async def arrivals(self) -> frozenset[ServerId]:
        """Servers of which something was sent here that was not taken in yet, or that were sent elsewhere while they ran and left their
        disks; `destroy_guest` drops it.
        """
        ...


@runtime_checkable
class Movable(Protocol):
    async def move_target(self) -> MoveTarget:
        """Where other hosts are to send guests."""
        ...

    async def send_guest(self, server: ServerId, to: MoveTarget, move: str, graceful_s: float) -> PowerState:
        """Switch it off and send its disk; it stays here, off.  A repeat sends it again.  To itself a host sends nothing."""
        ...

    async def take_guest(self, spec: GuestSpec, move: str) -> PowerState:
        """Make a guest, off, of what was sent for this move, or of the guest that is here, which is kept beside it.

        A repeat leaves the guest as it is.  Raises HostFailed: `disk_shrinks`, `nothing_arrived`, `host_full`.
        """
        ...

    async def return_guest(self, server: ServerId, move: str) -> PowerState:
        """The guest that was kept beside the one of this move takes its place again, off; none kept is success.

        Of a guest that left by this move while it ran: it is here again, off, with the disk that stayed.
        """
        ...

    async def forget_left(self, server: ServerId, move: str) -> PowerState:
        """What was kept beside the guest of this move goes; none kept is success."""
        ...


async def arrivals_at(driver: object) -> frozenset[ServerId]:
    """None where the driver cannot say."""
    return await driver.arrivals() if isinstance(driver, Arrivals) else frozenset()


@runtime_checkable
class LiveMovable(Protocol):
    """Send a guest while it runs.

    The source sends by itself, and the switch is between the two hypervisors: at one instant the guest is the source's, at the next
    the destination's, never both's, and no word of ours lies in between.  Who wants it to stay aborts at the source, which says whether
    it had left; or, when the source cannot be asked, takes the place away that waits at the destination: then it cannot arrive.
    """

    async def live_source(self, server: ServerId) -> LiveSource:
        """What the destination compares. Raises HostFailed: the guest is not here, or cannot be sent."""
        ...

    async def live_target(self, spec: GuestSpec, source: LiveSource, block: bool | None) -> MoveTarget:
        """Raises HostFailed (`live_refused`) when the guest could not go on here: CPU, hypervisor, room, disks."""
        ...

    async def prepare_live(self, spec: GuestSpec, move: str) -> PowerState:
        """Make the place that waits for the guest; nothing runs there. A repeat leaves it as it is, or the guest that arrived."""
        ...

    async def send_live(self, server: ServerId, to: MoveTarget, move: str) -> PowerState:
        """Begin to send, and answer at once; a repeat while it is sent, or when it has left, changes nothing."""
        ...

    async def live_status(self, server: ServerId, move: str) -> LiveNow:
        """Asked often, so it must be cheap; at either host, also when the guest is not there."""
        ...

    async def abort_live(self, server: ServerId, move: str) -> PowerState:
        """Nothing is sent any more when this returns; that it had left already, `live_status` says."""
        ...

    async def force_live(self, server: ServerId, move: str, *, post_copy: bool) -> PowerState:
        """Switch now: paused until all is there, or, with `post_copy`, before all is there. Nothing is sent: success."""
        ...

    async def drop_live(self, server: ServerId, move: str) -> PowerState:
        """The place that waits goes, so nothing can arrive. Raises HostFailed (`guest_has_arrived`); no place is success."""
        ...

    async def land_live(self, spec: GuestSpec, move: str) -> PowerState:
        """The guest that arrived, with what is its own here: cards, volumes. Raises HostFailed (`nothing_arrived`)."""
        ...
