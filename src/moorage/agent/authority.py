"""A host's authority: how long it may act on its cell's last answer (RULES §23).

A host without a sign of life for longer than `host_silence_s` counts as down: its servers are deleted without it, and boots continue
elsewhere.  So the host measures its own silence, and long before others treat it as down it starts nothing more until its cell
has answered.  Running guests keep running: an outage of the control plane stops none.
"""

import asyncio
from collections.abc import Callable

from moorage.model.clock import Clock

PART_OF_SILENCE = 0.5
"""Part of `host_silence_s` for which the authority lasts; in the rest of it, commands under way are given up."""


class AuthorityOver(Exception):
    """Raised when the authority ends in the middle of a command, before it did anything that another host may do too."""


class Authority:
    """Knows until when the host may act.  `ended` is called when that moment passes while the process runs.

    After a suspension of the machine, `held` shows that the authority is over: the timer of the event loop stood still, but the clock
    counts suspended time.
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

    def covers(self, sent_at: float) -> bool:
        """Tell whether a host whose sign of life arrived at that moment may still act."""
        return self._clock.monotonic() < sent_at + self._lasts_s

    def prove(self, sent_at: float) -> None:
        """Extend the authority: other processes could receive our messages at that moment of the clock."""
        until = sent_at + self._lasts_s
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
