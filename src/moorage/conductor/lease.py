"""A conductor's lease (RULES §3, §23): taken, renewed, lost, and taken again under another id.

**Renewing and taking are different acts.**  A renewal prolongs a lease that holds, in the database and in our own belief; the
statement that renews a lease which is over changes nothing.  Whoever lost its lease stops all its operations and then takes a new
lease under a new id.  So an operation's owner, once dead, is dead for ever, and nobody has to guess whether its work may be
adopted.  A renewal or a take that commits although we gave it up keeps a row alive for one lease at the most, because nobody
renews it.

**Whose clock.**  The database's clock decides for everybody (`alive_until`).  We count our own lease on our own clock, from before
the request was sent, so we believe ourselves dead before others do.  A clock of the database that steps back would keep the dead
alive: so each conductor also watches the rows of the others, and ends the lease of one that was not renewed for a whole lease by
its own clock (`Peers`).

**Who may have been frozen asks first.**  `tick` measures our own silence with a clock that counts suspended time.  After a gap
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
    """The lease is over: it cannot be renewed, a new one must be taken."""


class ConductorLease:
    """The lease of one process, under one id after the other."""

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
        """The first lease is under the process's own id, the next ones under it and a number."""
        self.lease_s = lease_s
        self.gap_s = lease_s / 2
        """Longer than this without a tick: we may have been frozen, and ask first."""
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

    @property
    def alive(self) -> bool:
        """It holds for more than the margin, and we were not frozen since we last asked."""
        return not self.over and not self.doubted

    @property
    def lost(self) -> int:
        """How often one was lost and another had to be taken."""
        return max(0, self._taken - 1)

    @property
    def over(self) -> bool:
        """It was lost, or is about to be: what is done under it must be stopped."""
        return self._lost or self._clock.monotonic() >= self._ends - LEASE_MARGIN_S

    @property
    def doubted(self) -> bool:
        """We may have been frozen, and have not asked since."""
        silent_s = 0.0 if self._ticked_at is None else self._clock.monotonic() - self._ticked_at
        return self._doubted_at is not None or silent_s > self.gap_s

    def left_s(self) -> float:
        """Seconds that it holds, counted from before it was asked for; 0 while we must ask first."""
        return 0.0 if self._lost or self.doubted else self._ends - self._clock.monotonic()

    async def held(self) -> None:
        """Wait until it is certain that the lease holds.  Who waits in an operation is cancelled if it does not."""
        while not self.alive:
            self._sure.clear()
            await self._sure.wait()

    def tick(self) -> bool:
        """Say that this process runs; whether a gap was found, after which we must ask first."""
        now = self._clock.monotonic()
        gap = self._ticked_at is not None and now - self._ticked_at > self.gap_s
        if gap:
            self._doubted_at = now
        self._ticked_at = now
        return gap

    def lose(self) -> None:
        """It is over: only `take` helps."""
        self._lost = True

    async def renew(self) -> None:
        """Prolong it. Raises LeaseLost when it is over, for us or in the database."""
        if self.over:
            raise LeaseLost
        began, me = self._clock.monotonic(), self.id
        with label("lease"):
            held = await self._region.write(lambda tx: conductors.renew(tx, me, self.lease_s))
        if self._lost or not held:
            self._lost = True
            raise LeaseLost
        self._granted(began)

    async def take(self) -> None:
        """Begin a new lease under a new id, and end what may be left of the former ones.  Nothing may be done under those any more.

        It may come too late to be of use: then `alive` is still false, and it is taken again.
        """
        self._taken += 1
        me = self._process if self._taken == 1 else ConductorId(f"{self._process}-{self._taken}")
        former = tuple(self._former)
        self._former = [*self._former, me][-FORMER_MAX:]
        began = self._clock.monotonic()
        with label("lease"):
            await self._region.write(
                lambda tx: conductors.take(tx, me, former, platform.node(), self._sagas, self.lease_s)
            )
        self._former = [me]
        self.id, self._lost, self._ends = me, False, float("-inf")
        self._granted(began)

    async def give_back(self) -> None:
        """End it now: another may adopt at once."""
        me = self.id
        self._lost = True
        await self._region.write(lambda tx: conductors.retire(tx, me))

    def _granted(self, began: float) -> None:
        self._ends = max(self._ends, began + self.lease_s)
        if self._doubted_at is not None and began >= self._doubted_at:
            self._doubted_at = None
        self._sure.set()


class Peers:
    """The conductors of the region, as this process sees them with each beat."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._seen: dict[ConductorId, tuple[float, float]] = {}
        self.living: Sequence[Peer] = ()

    def note(self, peers: Sequence[Peer], me: ConductorId, now: float) -> Mapping[ConductorId, float]:
        """Take in what was read at `now` (our clock); whose lease is to be ended although the database's clock lets it hold."""
        was, self._seen = self._seen, {}
        silent: dict[ConductorId, float] = {}
        for peer in peers:
            value, since = was.get(peer.id, (peer.alive_until, now))
            self._seen[peer.id] = (peer.alive_until, since if value == peer.alive_until else now)
            if peer.lives and peer.id != me and now - self._seen[peer.id][1] >= self._lease_s:
                silent[peer.id] = peer.alive_until
        self.living = [peer for peer in peers if peer.lives and peer.id not in silent]
        return silent

    def leader(self) -> ConductorId | None:
        """The one that has been living longest: it does what one is enough for."""
        return self.living[0].id if self.living else None

    def unknown_to(self, saga: str) -> Sequence[Peer]:
        """The living that cannot tell this saga."""
        return [peer for peer in self.living if saga not in peer.sagas]
