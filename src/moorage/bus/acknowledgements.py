"""What a conductor has to acknowledge to hosts: a host keeps each result until it knows that somebody has taken it (RULES §10).

Acknowledgements ride on commands; a message of their own is spent on them only while the host's heartbeat still lists them.
"""

from itertools import islice, takewhile

from moorage.bus.command_messages import Result, ResultKey
from moorage.bus.host_messages import Heartbeat
from moorage.model.clock import Clock
from moorage.model.ids import ServerId

MAX_TAKEN_WAITING = 1_000
"""Acknowledgements kept per host until it is next heard; the host forgets old results by itself when a higher turn comes."""
MAX_TAKEN_PER_MESSAGE = 50
MAX_STARTS_WAITING = 10_000
"""Starts that were answered and have not been said to count: boots under way, and some that failed since."""


class Acknowledgements:
    """Of all hosts, in memory: what is lost with the process is asked again by whoever adopts its operations."""

    def __init__(self, clock: Clock, after_s: float) -> None:
        """`after_s`: how long after it came a result counts as taken."""
        self._clock = clock
        self._after_s = after_s
        self._taken: dict[str, dict[ResultKey, float]] = {}
        self._started: dict[ServerId, tuple[str, ResultKey]] = {}
        self._counting: dict[str, dict[ResultKey, float]] = {}
        """Starts that count, by host, and until when their hosts are told so."""

    def start_counts(self, host: str, server: ServerId, operation_seq: int) -> None:
        """This operation has recorded the server as built on this host: its start is acknowledged from now on."""
        on, key = self._started.pop(server, ("", None))
        if key is None or on != host or key.turn.operation_seq != operation_seq:
            return
        counting = self._counting.setdefault(host, {})
        if len(counting) < MAX_TAKEN_WAITING:
            counting[key] = self._clock.monotonic() + self._after_s

    def note(self, result: Result, *, starts: bool) -> None:
        """A result has come. `starts`: of a start, which is acknowledged when it counts, and not before."""
        if starts and result.ok:
            self._started[result.server] = result.host, result.key
            while len(self._started) > MAX_STARTS_WAITING:
                del self._started[next(iter(self._started))]
            return
        taken = self._taken.setdefault(result.host, {})
        if len(taken) < MAX_TAKEN_WAITING:
            taken[result.key] = self._clock.monotonic()

    def wanted_by(self, beat: Heartbeat) -> tuple[ResultKey, ...]:
        """What is to be acknowledged in a message of its own: what the host still keeps and we have taken."""
        taken = self._taken.get(beat.host)
        counting = self._counted(beat.host)
        if not taken and not counting:
            return ()
        mine = tuple(key for key in (*counting, *self._settled(beat.host)) if key in beat.untaken)
        if not mine and not beat.untaken and taken:
            taken.clear()
        return mine[:MAX_TAKEN_PER_MESSAGE]

    def riders(self, host: str) -> tuple[ResultKey, ...]:
        """Acknowledgements that ride on a command, once; if it is lost, the host forgets when its server's turn is next raised."""
        riders = [*self._counted(host), *self._settled(host)][:MAX_TAKEN_PER_MESSAGE]
        for key in riders:
            for waiting in (self._counting, self._taken):
                waiting.get(host, {}).pop(key, None)
        return tuple(riders)

    def _counted(self, host: str) -> list[ResultKey]:
        """Starts of this host that count; those that it was told of for long enough are forgotten."""
        counting = self._counting.get(host)
        if not counting:
            return []
        now = self._clock.monotonic()
        for key in [key for key, until in counting.items() if until < now]:
            del counting[key]
        return list(counting)

    def _settled(self, host: str) -> list[ResultKey]:
        """Results that came long enough ago: whoever waited wrote them down, or died and its adopter has asked again."""
        before = self._clock.monotonic() - self._after_s
        oldest_first = self._taken.get(host, {}).items()
        return [
            key for key, _ in islice(takewhile(lambda each: each[1] <= before, oldest_first), MAX_TAKEN_PER_MESSAGE)
        ]
