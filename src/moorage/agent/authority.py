"""How long a host may act on what it was last told (RULES §23).

A host that nobody could hear for longer than `host_silence_s` is taken for dead: its servers are deleted without it, and boots go on
elsewhere.  So it counts its own silence, and long before the others give it up it starts nothing any more until its cell
has answered.  Guests that run go on running: an outage of the control plane stops none.
"""

import asyncio
from collections.abc import Callable

from moorage.model.clock import Clock

PART_OF_SILENCE = 0.5
"""Of `host_silence_s`: what was begun at the end of the authority has the rest of it to be given up."""


class AuthorityOver(Exception):
    """The authority ended in the middle of a command, before anything was done that another host may do too."""


class Authority:
    """Until when the host may act.  `ended` is called when that moment passes while the process runs.

    A machine that was suspended finds its authority over by `held`: the timer of the event loop stood still, and the clock,
    which counts suspended time, did not.
    """

    def __init__(self, clock: Clock, silence_s: float, ended: Callable[[], None]) -> None:
        self._clock = clock
        self._lasts_s = silence_s * PART_OF_SILENCE
        self._ended = ended
        self._until = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    @property
    def held(self) -> bool:
        return self._clock.monotonic() < self._until

    def covers(self, heard_at: float) -> bool:
        """Whether who was heard at that moment may still act."""
        return self._clock.monotonic() < heard_at + self._lasts_s

    def prove(self, heard_at: float) -> None:
        """We could be heard at that moment of the clock."""
        until = heard_at + self._lasts_s
        if until <= self._until:
            return
        self._until = until
        self.close()
        left_s = until - self._clock.monotonic()
        if left_s > 0:
            self._timer = asyncio.get_running_loop().call_later(left_s, self._ended)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
