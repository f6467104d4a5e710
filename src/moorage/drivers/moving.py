"""The optional power to send a guest to another host and to take one, or to make one another size in its place.

A move has a UUID, under which both hosts keep what they have of it (see `driver.py` for what all verbs promise).
"""

from typing import Protocol, runtime_checkable

from moorage.model.guest import GuestSpec, MoveTarget, PowerState
from moorage.model.ids import ServerId


@runtime_checkable
class Arrivals(Protocol):
    """What of other hosts' guests lies on a host, of which it is told, when it returns, what does not belong there any more."""

    async def arrivals(self) -> frozenset[ServerId]:
        """Servers of which something was sent here that was not taken in yet; `destroy_guest` drops it."""
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
        """The guest that was kept beside the one of this move takes its place again, off; none kept is success."""
        ...

    async def forget_left(self, server: ServerId, move: str) -> PowerState:
        """What was kept beside the guest of this move goes; none kept is success."""
        ...


async def arrivals_at(driver: object) -> frozenset[ServerId]:
    """None where the driver cannot say."""
    return await driver.arrivals() if isinstance(driver, Arrivals) else frozenset()
