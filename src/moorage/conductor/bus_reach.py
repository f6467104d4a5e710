"""Whether a conductor reaches the message bus, and whom it leaves its work to while it does not.

A conductor without the bus can execute nothing: it sends no command and hears no result. If it kept its lease, its
operations would wait as long as it is cut off, although other conductors could go on with them. So it ends its lease,
as if it had lost its database, once another conductor has renewed its own lease and said that it reaches the bus. It
takes a new lease when the bus is back, or when no other conductor reaches the bus any more.

If no conductor reaches the bus, the broker is out and not a part of the network: then all keep what they own and wait.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence

from moorage.bus.host_silence import BUS_GRACE_S
from moorage.bus.silence import Listening
from moorage.bus.transport import Bus
from moorage.conductor.lease import ConductorLease, Peers
from moorage.model.clock import Clock
from moorage.store.region.conductors import Peer

logger = logging.getLogger(__name__)

OTHERS_NOTICE_S = 5.0
"""How much later than this conductor another one may notice the same outage: what it said earlier does not count."""


class BusReach:
    """The view of one conductor."""

    def __init__(self, bus: Bus, clock: Clock, lease: ConductorLease, peers: Peers) -> None:
        self._clock = clock
        self._lease = lease
        self._peers = peers
        self._listening = Listening(bus, clock)
        self._out_at: float | None = None

    def check(self) -> bool:
        """Check the bus; call this about every second. Returns whether the lease is to be renewed now: the bus was lost,
        is out, or is back.
        """
        before, out_s = self._out_at, self._listening.out_for_s()
        if out_s <= BUS_GRACE_S:
            self._out_at = None
        elif before is None:
            self._out_at = self._clock.monotonic()
        self._lease.reaches_bus = self._out_at is None
        return before is not None or self._out_at is not None

    @property
    def is_worse_placed(self) -> bool:
        """Whether another conductor reaches the bus, and this one does not."""
        return bool(self._better_placed())

    def _better_placed(self) -> Sequence[Peer]:
        return [] if self._out_at is None else self._peers.reaching_bus(self._lease.id, self._out_at + OTHERS_NOTICE_S)

    async def leave_work(self, executing: int, drop_all: Callable[[], Awaitable[None]]) -> None:
        """If another conductor is better placed, stop everything and end the lease, so that the other one adopts."""
        others = self._better_placed()
        if not others or self._lease.over:
            return
        logger.error(
            "conductor %s does not reach the message bus; its %d operations go on at %s",
            self._lease.id,
            executing,
            ", ".join(each.id for each in others),
        )
        await drop_all()
        await self._lease.give_back()
