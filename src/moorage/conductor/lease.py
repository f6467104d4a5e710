"""A conductor's lease (RULES §3, §23): taken, renewed, lost, and taken again under another id.

**Renewing and taking are different acts.** A renewal prolongs a lease that is valid, in the database and by our own
clock; the statement that renews a lease which has ended changes nothing. A conductor that lost its lease stops all its
operations and then takes a new lease under a new id. So an operation's owner, once dead, is dead for ever, and it is
always certain whether its operations may be adopted. A renewal or a take that commits although we gave it up keeps a
row valid for one lease at most, because it is never renewed.

**Which clock.** The database's clock decides for all processes (`alive_until`). We count our own lease on our own
clock, from before the request was sent, so we consider ourselves dead before others do. A database clock that steps
back would keep dead conductors alive: so each conductor also watches the rows of the others, and ends the lease of one
that was not renewed for a whole lease by its own clock (`Peers`).

**After a suspension, ask first.** `tick` measures our own silence with a clock that counts suspended time. After a gap
longer than half a lease nothing is begun or written until a renewal that began after the gap was answered.
"""

import asyncio
import platform
from collections.abc import Collection, Mapping, Sequence

from moorage.clients.deadline import LEASE_MARGIN_S
from moorage.model.clock import Clock
from moorage.model.ids import ConductorId
from moorage.sql import Database, label
from moorage.store.region import conductors
from moorage.store.region.conductors import Peer

FORMER_MAX = 8
TICK_MOST_S = 1.0


class LeaseLost(Exception):
    """The lease has ended: it cannot be renewed, a new one must be taken."""


class ConductorLease:
    """The leases of one process, one after the other under different ids."""

    def __init__(
        self,
        process: ConductorId,
        region: Database,
        clock: Clock,
        sagas: Collection[str],
        *,
        lease_s: float,
    ) -> None:
        self.id = process
        """The first lease has the process's own id, later ones have the id and a number."""
        self.lease_s = lease_s
        self.gap_s = lease_s / 2
        """After a longer time without a tick the process may have been suspended, and asks first."""
        self.tick_s = min(TICK_MOST_S, lease_s / 8)
        self._process = process
        self._region = region
        self._clock = clock
        self._sagas = sorted(sagas)
        self._taken = 0
        self._former: list[ConductorId] = []
        self._ends = float("-inf")
        self._lost = True
        self._ticked_at: float | None = None
        self._doubted_at: float | None = None
        self._sure = asyncio.Event()
        self.reaches_bus = True
        """Is told to the others with each renewal."""

    @property
    def alive(self) -> bool:
        """Whether it is valid for more than the margin, and the process was not suspended since the last renewal."""
        return not self.over and not self.doubted

    @property
    def lost(self) -> int:
        """How often a lease was lost and another one had to be taken."""
        return max(0, self._taken - 1)

    @property
    def over(self) -> bool:
        """Whether it was lost, or is about to be: work under it must be stopped."""
        return self._lost or self._clock.monotonic() >= self._ends - LEASE_MARGIN_S

    @property
    def doubted(self) -> bool:
        """Whether the process may have been suspended, and has not renewed since."""
        silent_s = 0.0 if self._ticked_at is None else self._clock.monotonic() - self._ticked_at
        return self._doubted_at is not None or silent_s > self.gap_s

    def left_s(self) -> float:
        """Seconds for which it is valid, counted from before it was requested; 0 while we must ask first."""
        return 0.0 if self._lost or self.doubted else self._ends - self._clock.monotonic()

    async def held(self) -> None:
        """Wait until it is certain that the lease is valid. If it is not, the waiting operation is cancelled."""
        while not self.alive:
            self._sure.clear()
            await self._sure.wait()

    def tick(self) -> bool:
        """Note that this process runs. Returns whether a gap was found, after which we must ask first."""
        now = self._clock.monotonic()
        gap = self._ticked_at is not None and now - self._ticked_at > self.gap_s
        if gap:
            self._doubted_at = now
        self._ticked_at = now
        return gap

    def lose(self) -> None:
        """It has ended: only `take` helps."""
        self._lost = True

    async def renew(self) -> None:
        """Prolong it. Raises LeaseLost when it has ended, for us or in the database."""
        if self.over:
            raise LeaseLost
        began, me, reaches_bus = self._clock.monotonic(), self.id, self.reaches_bus
        with label("lease"):
            held = await self._region.write(lambda tx: conductors.renew(tx, me, self.lease_s, reaches_bus=reaches_bus))
        if self._lost or not held:
            self._lost = True
            raise LeaseLost
        self._granted(began)

    async def take(self) -> None:
        """Begin a new lease under a new id, and end the earlier ones if they still exist. Nothing may be done under the
        earlier ids any more.

        The answer may come too late to be useful: then `alive` is still false, and a lease is taken again.
        """
        self._taken += 1
        me = self._process if self._taken == 1 else ConductorId(f"{self._process}-{self._taken}")
        former = tuple(self._former)
        self._former = [*self._former, me][-FORMER_MAX:]
        began = self._clock.monotonic()
        with label("lease"):
            await self._region.write(
                lambda tx: conductors.take(
                    tx, me, former, platform.node(), self._sagas, self.lease_s, reaches_bus=self.reaches_bus
                )
            )
        self._former = [me]
        self.id, self._lost, self._ends = me, False, float("-inf")
        self._granted(began)

    async def give_back(self) -> None:
        """End it now: another conductor may adopt at once."""
        me = self.id
        self._lost = True
        await self._region.write(lambda tx: conductors.retire(tx, me))

    def _granted(self, began: float) -> None:
        self._ends = max(self._ends, began + self.lease_s)
        if self._doubted_at is not None and began >= self._doubted_at:
            self._doubted_at = None
        self._sure.set()


class Peers:
    """The conductors of the region, as this process sees them with each renewal."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._known: dict[ConductorId, tuple[float, float]] = {}
        self.living: Sequence[Peer] = ()

    def note(self, peers: Sequence[Peer], me: ConductorId, now: float) -> Mapping[ConductorId, float]:
        """Note what was read at `now` (our clock). Returns the conductors whose leases must be ended although the
        database's clock still allows them.
        """
        before, self._known = self._known, {}
        silent: dict[ConductorId, float] = {}
        for peer in peers:
            value, since = before.get(peer.id, (peer.alive_until, now))
            self._known[peer.id] = (peer.alive_until, since if value == peer.alive_until else now)
            if peer.lives and peer.id != me and now - self._known[peer.id][1] >= self._lease_s:
                silent[peer.id] = peer.alive_until
        self.living = [peer for peer in peers if peer.lives and peer.id not in silent]
        return silent

    def leader(self) -> ConductorId | None:
        """The conductor that has lived longest, of those that reach the bus: it does the work of which one is enough."""
        able = conductors.reaching_bus(self.living)
        return able[0].id if able else None

    def reaching_bus(self, me: ConductorId, since: float) -> Sequence[Peer]:
        """The living others that renewed after `since` (our clock), and reached the bus then."""
        return [peer for peer in self.living if peer.id != me and peer.reaches_bus and self._known[peer.id][1] > since]

    def unknown_to(self, saga: str) -> Sequence[Peer]:
        """The living conductors that cannot execute this saga."""
        return [peer for peer in self.living if saga not in peer.sagas]
