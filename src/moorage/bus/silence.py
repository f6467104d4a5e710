"""Since when a host could have been heard: silence counts from then.

A bus that is out says nothing about hosts, nor does a process that stood still itself.  When either is over, every host has a full
window to be heard again before anybody calls it silent.
"""

from moorage.bus.transport import Bus
from moorage.model.clock import Clock

LOOK_EVERY_S = 1.0
GAP_MAX_S = 5.0
"""Whoever has not looked for longer stood still meanwhile, or was too busy to hear."""


class Listening:
    """Made by whoever judges hosts, who calls `look` every `LOOK_EVERY_S` or so."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._outages = bus.outages
        self._since = self._looked = clock.monotonic()
        self._out_at: float | None = None
        self.out_since: float | None = None
        """When the bus was found out, in seconds since 1970; None: it is not."""

    def check(self, gap_max_s: float = GAP_MAX_S) -> bool:
        """Whether the bus has been out, or we have stood still, since the last look; `gap_max_s`: when that is taken for a standstill."""
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

    def unheard_for_s(self, heard: float) -> float:
        """How long somebody who was last heard at `heard` (monotonic) could have been heard and was not; 0 while the bus is out."""
        self.check()
        return 0.0 if self._out_at is not None else self._clock.monotonic() - max(heard, self._since)

    def out_for_s(self) -> float:
        """How long the bus has been out; 0: it is not."""
        self.check()
        return 0.0 if self._out_at is None else self._clock.monotonic() - self._out_at
