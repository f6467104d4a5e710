"""Acknowledgements from a conductor to hosts: a host keeps each result until it knows that a conductor has taken it (RULES §10).

Acknowledgements are sent with commands; only if the host's heartbeat still lists a result, they get a message of their own.
"""

from itertools import islice, takewhile

from moorage.bus.command_messages import Result, ResultKey
from moorage.bus.host_messages import Heartbeat
from moorage.model.clock import Clock
from moorage.model.ids import ServerId

MAX_TAKEN_WAITING = 1_000
"""Limit of acknowledgements that wait for one host; the host drops old results by itself when a higher turn comes."""
MAX_TAKEN_PER_MESSAGE = 50
MAX_STARTS_WAITING = 10_000
"""Limit of starts that were answered and are not acknowledged yet: boots under way, and some that failed since."""


class Acknowledgements:
    """The acknowledgements for all hosts, in memory. If the process dies, the conductor that adopts its operations asks the hosts again."""

    def __init__(self, clock: Clock, after_s: float) -> None:
        """`after_s`: seconds after its arrival from which a result counts as taken."""
        self._clock = clock
        self._after_s = after_s
        self._taken: dict[str, dict[ResultKey, float]] = {}
        self._started: dict[ServerId, tuple[str, ResultKey]] = {}
        self._counting: dict[str, dict[ResultKey, float]] = {}
        """Starts that count, by host, and until when they are sent to their hosts."""

    def start_counts(self, host: str, server: ServerId, operation_seq: int) -> None:
        """Acknowledge a start from now on: the operation has recorded the server as built on this host."""
        on, key = self._started.pop(server, ("", None))
        if key is None or on != host or key.turn.operation_seq != operation_seq:
            return
        counting = self._counting.setdefault(host, {})
        if len(counting) < MAX_TAKEN_WAITING:
            counting[key] = self._clock.monotonic() + self._after_s

    def note(self, result: Result, *, starts: bool) -> None:
        """Note a result that has come. `starts`: it is that of a start, which is acknowledged only when it counts."""
        if starts and result.ok:
            self._started[result.server] = result.host, result.key
            while len(self._started) > MAX_STARTS_WAITING:
                del self._started[next(iter(self._started))]
            return
        taken = self._taken.setdefault(result.host, {})
        if len(taken) < MAX_TAKEN_WAITING:
            taken[result.key] = self._clock.monotonic()

    def wanted_by(self, beat: Heartbeat) -> tuple[ResultKey, ...]:
        """Return what needs a message of its own: results that the host still keeps and that we have taken."""
        taken = self._taken.get(beat.host)
        counting = self._counted(beat.host)
        if not taken and not counting:
            return ()
        mine = tuple(key for key in (*counting, *self._settled(beat.host)) if key in beat.untaken)
        if not mine and not beat.untaken and taken:
            taken.clear()
        return mine[:MAX_TAKEN_PER_MESSAGE]

    def riders(self, host: str) -> tuple[ResultKey, ...]:
        """Return acknowledgements to send with a command, once. If it is lost, the host drops the result at the server's next turn."""
        riders = [*self._counted(host), *self._settled(host)][:MAX_TAKEN_PER_MESSAGE]
        for key in riders:
            for waiting in (self._counting, self._taken):
                waiting.get(host, {}).pop(key, None)
        return tuple(riders)

    def _counted(self, host: str) -> list[ResultKey]:
        """Starts of this host that count; those that were sent for long enough are dropped."""
        counting = self._counting.get(host)
        if not counting:
            return []
        now = self._clock.monotonic()
        for key in [key for key, until in counting.items() if until < now]:
            del counting[key]
        return list(counting)

    def _settled(self, host: str) -> list[ResultKey]:
        """Results that came long enough ago: by now the waiting operation has recorded them, or its adopter has asked again."""
        before = self._clock.monotonic() - self._after_s
        oldest_first = self._taken.get(host, {}).items()
        return [
            key for key, _ in islice(takewhile(lambda each: each[1] <= before, oldest_first), MAX_TAKEN_PER_MESSAGE)
        ]
