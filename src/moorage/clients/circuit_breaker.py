"""A circuit breaker for each service: a service that keeps failing is not called for a while, and callers learn this at once (N19).

    closed   calls are made; `after` failures in a row open it
    open     calls are refused with CircuitOpen and not sent; after a pause one call is let through
    probing  that call is under way; an answer closes the circuit, a failure means another pause, twice as long

**Why.**  A service that hangs makes each caller wait for its whole deadline and occupies a connection for each call, and it gets more
calls than it can serve when it recovers.  Sagas wait in any case (CircuitOpen is Unavailable, and says when to try again); a
request to the API fails within a millisecond instead of half a minute.

**What counts as a failure.**  No answer, an answer that cannot be read, and 5xx.  Not 4xx, and not 429: a service that refuses
is running.  Not calls that we gave up ourselves: they were cancelled, or their lease ended.

**Circuits.**  One for each kind of call (`POST ports`), so that one broken plug-in does not stop other calls, and one for the whole
service: it opens when the service cannot be reached, or when several kinds of calls fail and none is answered in between.
A call that began before a circuit changed does not affect it any more.
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
"""The longest pause that a service can ask for (Retry-After)."""
PROBE_LOOK_S = 0.5
"""A caller that finds a probe under way may try again after this time."""
WHOLE = ""

log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Circuit:
    """One circuit."""

    calls: str
    failures: int = 0
    kinds: set[str] = field(default_factory=set[str])
    why: str = ""
    opened: int = 0
    """How often it opened in a row; 0: it is closed."""
    until: float = 0.0
    turns: int = 0
    """Increased with every change, so that calls that began earlier are recognised."""
    probe: "Permit | None" = None

    def settle(self) -> None:
        """Close the circuit: the service answered."""
        self.failures = 0
        self.kinds.clear()
        if self.opened:
            self.opened = 0
            self.turns += 1
            self.probe = None


class Permit:
    """Permission for one call; report its outcome once."""

    __slots__ = ("_breaker", "_circuits", "_kind", "sent")

    def __init__(self, breaker: "Breaker", kind: str, circuits: tuple[tuple[_Circuit, int], ...]) -> None:
        self._breaker = breaker
        self._kind = kind
        self._circuits = circuits
        self.sent = False
        """Whether the call was sent to the service."""

    def answered(self) -> None:
        """Report that the service answered, also if it refused."""
        for circuit in self._current():
            self._breaker.answered(circuit, self)

    def failed(self, why: str, *, reached: bool = True, rest_s: float = 0.0) -> None:
        """Report a failure. `reached`: there was a connection; `rest_s`: the pause that the service asked for."""
        for circuit in self._current():
            self._breaker.failed(circuit, self, self._kind, why, reached, rest_s)

    def left(self) -> None:
        """Report the end of the call; without an earlier report it was given up for a reason that is not the service's."""
        for circuit, _ in self._circuits:
            if circuit.probe is self:
                circuit.probe = None

    def _current(self) -> list[_Circuit]:
        return [circuit for circuit, turns in self._circuits if circuit.turns == turns]


class Breaker:
    """The circuits of one endpoint in one process: `passage = breaker.enter("POST ports")`."""

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
        """How many calls were refused and not sent."""

    @property
    def circuits_open(self) -> int:
        """How many circuits are open; 0: all calls are made."""
        return sum(1 for each in (self._whole, *self._circuits.values()) if each.opened)

    def aside(self, kind: str) -> Permit:
        """Permit a call even if circuits are open; its outcome changes no circuit."""
        return Permit(self, kind, ())

    def enter(self, kind: str) -> Permit:
        """Ask for permission to make a call of this kind. Raises CircuitOpen when such calls are not made at present."""
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
        """Return a sentence for each kind of call that is not made at present."""
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
            return  # not this kind of call failed, but the service as a whole
        circuit.failures += 1
        circuit.kinds.add(kind)
        spread = bool(circuit.calls) or not reached or len(circuit.kinds) > 1
        if circuit.opened or (0 < self._failures_max <= circuit.failures and spread):
            self._open(circuit, why, rest_s)

    def _open(self, circuit: _Circuit, why: str, retry_after_s: float) -> None:
        own_s = min(self._rest_s * 2.0 ** min(circuit.opened, 30), max(REST_MOST_S, self._rest_s))
        rest_s = max(own_s, min(retry_after_s, ASKED_REST_MOST_S))
        if not circuit.opened:
            log.warning(
                "the %s service keeps failing (%s, %d times in a row: %s): it is not called for %.1f s",
                self.name, circuit.calls or "all calls", circuit.failures, why, rest_s,
            )  # fmt: skip
        circuit.opened += 1
        circuit.turns += 1
        circuit.why = why
        circuit.until = self._monotonic() + rest_s
        circuit.probe = None
