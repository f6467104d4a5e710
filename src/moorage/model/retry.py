"""Pauses between tries, which grow and are random so that two callers do not retry together; and a log that seldom repeats a line."""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field

_DICE = random.Random()


@dataclass
class Backoff:
    """The pauses of one thing that is retried.  Call `next_s()` after a failure, and `reset()` after a success."""

    first_s: float
    most_s: float
    dice: random.Random = field(default_factory=lambda: _DICE)
    """Source of randomness; an operation has its own, so that its saga can be executed again in the same way."""
    tries: int = 0
    """Failures in a row."""

    def next_s(self) -> float:
        """Return the seconds to wait: half to all of `first_s`, which doubles with every failure up to `most_s`."""
        self.tries += 1
        return pause_s(self.tries, self.first_s, self.most_s, self.dice)

    def reset(self) -> None:
        self.tries = 0


def pause_s(tries: int, first_s: float, most_s: float, dice: random.Random) -> float:
    """Return the pause in seconds after `tries` failures in a row (1 or more)."""
    longest = min(first_s * 2.0 ** min(tries - 1, 30), most_s)
    return longest * (0.5 + 0.5 * dice.random())


def jittered(seconds: float, part: float = 0.1, dice: random.Random = _DICE) -> float:
    """Return `seconds`, randomly changed by a part of it, so that processes do not run periodic work at the same moment."""
    return seconds * (1.0 + part * (2.0 * dice.random() - 1.0))


class SeldomLog:
    """Logs one line of each kind in `every_s` seconds; the next line says how many were left out.  It remembers at most `kinds_max` kinds."""

    def __init__(
        self, logger: logging.Logger, monotonic: Callable[[], float], *, every_s: float = 10.0, kinds_max: int = 1_000
    ) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._every_s = every_s
        self._kinds_max = kinds_max
        self._logged: dict[str, tuple[float, int]] = {}

    def warning(self, kind: str, text: str, *facts: object) -> None:
        """Log a warning, unless one of this kind was logged a moment ago."""
        now = self._monotonic()
        at, left_out = self._logged.get(kind, (float("-inf"), 0))
        if now - at < self._every_s:
            self._logged[kind] = (at, left_out + 1)
            return
        if len(self._logged) >= self._kinds_max:
            self._logged.clear()
        self._logged[kind] = (now, 0)
        if left_out:
            text, facts = f"{text} (and %d more of this kind since the last line)", (*facts, left_out)
        self._logger.warning(text, *facts)
