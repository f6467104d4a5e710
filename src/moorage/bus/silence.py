"""Tells since when messages of hosts could arrive: silence is counted from then.

An outage of the bus says nothing about hosts, and neither does a time in which this process stood still.  After either, every host
has the full time again to send a sign of life before it counts as silent.
"""

from moorage.bus.transport import Bus
from moorage.model.clock import Clock

LOOK_EVERY_S = 1.0
GAP_MAX_S = 5.0
"""If the time between two checks is longer, the process stood still, or was too busy to receive messages."""


class Listening:
    """Used by code that judges hosts; it calls `check` about every `LOOK_EVERY_S`."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._outages = bus.outages
        self._since = self._looked = clock.monotonic()
        self._out_at: float | None = None
        self.out_since: float | None = None
        """Since when the bus is out, in seconds since 1970; None: it is not out."""

    def check(self, gap_max_s: float = GAP_MAX_S) -> bool:
        """Tell whether the bus was out, or this process stood still, since the last check; `gap_max_s`: a longer gap is a standstill."""
        now, healthy = self._clock.monotonic(), self._bus.healthy
        missed = not healthy or self._bus.outages != self._outages or now - self._looked > gap_max_s
        if missed:
            self._since = now
        if healthy:
            self._out_at = self.out_since = None
        elif self._out_at is None:
            self._out_at, self.out_since = now, self._clock.now()
        self._looked, self._outages = now, self._bus.outages
        return missed

    def unheard_for_s(self, last_at: float) -> float:
        """Return the seconds in which messages could arrive and none came since `last_at` (monotonic); 0 while the bus is out."""
        self.check()
        return 0.0 if self._out_at is not None else self._clock.monotonic() - max(last_at, self._since)

    def out_for_s(self) -> float:
        """Return how long the bus has been out, in seconds; 0: it is not out."""
        self.check()
        return 0.0 if self._out_at is None else self._clock.monotonic() - self._out_at
