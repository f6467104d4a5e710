"""A circuit breaker for each service: who keeps failing is left alone for a while, and callers hear so at once (N19).

    closed   calls are made; `after` failures in a row open it
    open     calls are refused with CircuitOpen, unsent; a rest later one is let through
    probing  that one is under way; its answer closes the circuit, its failure means another rest, twice as long

**Why.**  A service that hangs costs each caller its whole deadline, each of them a connection, and the service itself what it
cannot afford when it comes back.  Sagas wait in any case (CircuitOpen is Unavailable, and says when to come back); a
request to the API is told within a millisecond instead of half a minute.

**What counts.**  No answer, an answer that cannot be read, and 5xx.  Never 4xx, a 429 neither: whoever refuses is there.  Nor what was
given up for a reason of ours: cancelled, or at the end of a lease.

**Of what.**  One circuit for each kind of call (`POST ports`), so that one broken plug-in does not take the others with it, and one
for the whole service: it opens when it cannot be reached, or when several kinds fail and none is answered between.
A call that began before a circuit changed says nothing about it any more.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from moorage.model.errors import CircuitOpen
from moorage.model.service_health import CircuitSeen

FAILURES_MAX = 5
REST_FIRST_S = 1.0
REST_MOST_S = 10.0
ASKED_REST_MOST_S = 60.0
"""A service's own word of when to come back (Retry-After) is heeded up to this."""
PROBE_LOOK_S = 0.5
"""Who finds the probe under way may come back after this."""
WHOLE = ""

log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Circuit:
    """One of them."""

    calls: str
    failures: int = 0
    kinds: set[str] = field(default_factory=set[str])
    why: str = ""
    opened: int = 0
    """How often in a row; 0: it is closed."""
    until: float = 0.0
    turns: int = 0
    """Raised with every change, so that calls from before are known."""
    probe: "Permit | None" = None

    def settle(self) -> None:
        """It answered."""
        self.failures = 0
        self.kinds.clear()
        if self.opened:
            self.opened = 0
            self.turns += 1
            self.probe = None


class Permit:
    """One call that may be made; say how it went, once."""

    __slots__ = ("_breaker", "_kind", "_seen", "sent")

    def __init__(self, breaker: "Breaker", kind: str, seen: tuple[tuple[_Circuit, int], ...]) -> None:
        self._breaker = breaker
        self._kind = kind
        self._seen = seen
        self.sent = False
        """Whether the service was asked at all."""

    def answered(self) -> None:
        """It is there; whether it agreed does not matter."""
        for circuit in self._current():
            self._breaker.answered(circuit, self)

    def failed(self, why: str, *, reached: bool = True, rest_s: float = 0.0) -> None:
        """`reached`: there was a connection; `rest_s`: how long it asked to be left alone."""
        for circuit in self._current():
            self._breaker.failed(circuit, self, self._kind, why, reached, rest_s)

    def left(self) -> None:
        """It is over; if nothing was said, it was given up for a reason that is not the service's."""
        for circuit, _ in self._seen:
            if circuit.probe is self:
                circuit.probe = None

    def _current(self) -> list[_Circuit]:
        return [circuit for circuit, turns in self._seen if circuit.turns == turns]


class Breaker:
    """`passage = breaker.enter("POST ports")`; one per endpoint of one process."""

    def __init__(
        self,
        name: str,
        *,
        failures_max: int = FAILURES_MAX,
        rest_s: float = REST_FIRST_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._failures_max = failures_max
        self._rest_s = rest_s
        self._monotonic = monotonic
        self._whole = _Circuit(WHOLE)
        self._circuits: dict[str, _Circuit] = {}
        self.refused = 0
        """How many calls were not made."""

    @property
    def circuits_open(self) -> int:
        """How many of its circuits are open; 0: it is called."""
        return sum(1 for each in (self._whole, *self._circuits.values()) if each.opened)

    def aside(self, kind: str) -> Permit:
        """A call that is made whatever the circuits are, and that changes none."""
        return Permit(self, kind, ())

    def enter(self, kind: str) -> Permit:
        """Raises CircuitOpen when such calls are not made now."""
        circuit = self._circuits.get(kind)
        if circuit is None:
            circuit = self._circuits[kind] = _Circuit(kind)
        both = (self._whole, circuit)
        if self._whole.opened or circuit.opened:
            for each in both:
                self._refuse(each)
        passage = Permit(self, kind, tuple((each, each.turns) for each in both))
        for each in both:
            if each.opened:
                each.probe = passage
        return passage

    def open_circuits(self) -> tuple[CircuitSeen, ...]:
        """What is not called now, for people."""
        now = self._monotonic()
        return tuple(
            CircuitSeen(self.name, each.calls, each.why, each.failures, round(max(each.until - now, 0.0), 3))
            for each in (self._whole, *self._circuits.values())
            if each.opened
        )

    def _refuse(self, circuit: _Circuit) -> None:
        if not circuit.opened:
            return
        left_s = circuit.until - self._monotonic()
        if left_s <= 0 and circuit.probe is None:
            return
        self.refused += 1
        rest_s = max(left_s, PROBE_LOOK_S if circuit.probe else 0.0)
        raise CircuitOpen(
            f"{circuit.why}, {circuit.failures} times in a row; it is asked again in a moment",
            private=f"{self.name}: {circuit.calls or 'all calls'}, in {rest_s:.1f} s",
            retry_after_s=rest_s,
        )

    def answered(self, circuit: _Circuit, passage: Permit) -> None:
        if circuit.opened:
            if circuit.probe is not passage:
                return
            log.info("the %s service answers again (%s)", self.name, circuit.calls or "all calls")
        circuit.settle()

    def failed(self, circuit: _Circuit, passage: Permit, kind: str, why: str, reached: bool, rest_s: float) -> None:
        if circuit.opened and circuit.probe is not passage:
            return
        if circuit.calls and not reached:
            if circuit.probe is passage:
                self._open(circuit, why, rest_s)
            return  # says nothing about this kind of call; the whole service's circuit counts it
        circuit.failures += 1
        circuit.kinds.add(kind)
        spread = bool(circuit.calls) or not reached or len(circuit.kinds) > 1
        if circuit.opened or (0 < self._failures_max <= circuit.failures and spread):
            self._open(circuit, why, rest_s)

    def _open(self, circuit: _Circuit, why: str, asked_s: float) -> None:
        own_s = min(self._rest_s * 2.0 ** min(circuit.opened, 30), max(REST_MOST_S, self._rest_s))
        rest_s = max(own_s, min(asked_s, ASKED_REST_MOST_S))
        if not circuit.opened:
            log.warning(
                "the %s service keeps failing (%s, %d times in a row: %s): it is left alone for %.1f s",
                self.name, circuit.calls or "all calls", circuit.failures, why, rest_s,
            )  # fmt: skip
        circuit.opened += 1
        circuit.turns += 1
        circuit.why = why
        circuit.until = self._monotonic() + rest_s
        circuit.probe = None
