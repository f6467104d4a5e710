"""Which hosts a caller takes for silent, and what a call to one of them fails with; so too when the bus is out."""

import time

from moorage.bus.silence import Listening
from moorage.bus.transport import Bus
from moorage.model.clock import Clock
from moorage.model.errors import BusOut, HostFailed, HostUnanswered

BUS_GRACE_S = 3.0
"""After this time without the bus, calls under way end with BusOut, and none is begun."""


class HostSilence:
    """The last sign of life of each host, as one caller received it; kept in memory."""

    def __init__(self, bus: Bus, clock: Clock, silent_s: float) -> None:
        """`silent_s`: seconds without a sign of life after which a host is silent."""
        self.silent_s = silent_s
        self._bus = bus
        self._clock = clock
        self._last_at: dict[str, float] = {}
        self._listening = Listening(bus, clock)

    def begin(self) -> None:
        """Count silence from now at the earliest."""
        self._listening = Listening(self._bus, self._clock)

    def check(self) -> None:
        """Notice that the bus is out, or back; call this about every `silence.LOOK_EVERY_S`."""
        self._listening.check()

    def note_alive(self, host: str) -> None:
        """Record a sign of life of the host."""
        self._last_at[host] = self._clock.monotonic()

    def is_silent(self, host: str) -> bool:
        """Tell whether the host is silent: no sign of life for too long, counted from when we could receive one; never while the bus is out."""
        return self._listening.unheard_for_s(self._last_at.get(host, 0.0)) > self.silent_s

    def failure_of(self, host: str) -> HostFailed:
        """Return the error of a call to a silent host to which nothing was sent."""
        return HostFailed("the host has been silent for a while", private=self._why(host), code="host_silent")

    def unanswered_by(self, host: str) -> HostUnanswered:
        """Return the error of a command that was sent to a host which is silent since."""
        problem = HostUnanswered(
            "the host has been silent since it was told to do it, and may have done it", private=self._why(host)
        )
        return problem.naming(f"host {host} has been silent since it was told to do it, and may have done it")

    def _why(self, host: str) -> str:
        return f"{host}: no heartbeat for {self.silent_s:.0f} s"

    @property
    def is_bus_out(self) -> bool:
        """Tell whether the bus is out now."""
        return self._listening.out_for_s() > 0

    @property
    def is_bus_long_out(self) -> bool:
        """Tell whether the bus has been out for longer than `BUS_GRACE_S`."""
        return self._listening.out_for_s() > BUS_GRACE_S

    def bus_failure(self) -> BusOut:
        """Return the error of calls while the bus is out."""
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._listening.out_since or self._clock.now()))
        return BusOut(f"waiting for the message bus since {since}")
