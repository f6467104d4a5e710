"""Token buckets, which limit how often each of many names does something, in a table of limited size."""

import time
from collections import OrderedDict
from collections.abc import Callable


class RateBuckets:
    """Token buckets, one for each name; a bucket holds at most `burst` tokens and gains `per_s` tokens each second."""

    def __init__(self, per_s: float, burst: int, kept_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._burst = burst
        self._kept_max = kept_max
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Name → the tokens it held, and when; the most recent is last."""

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, name: str, tokens: float = 1.0) -> float:
        """Take tokens, at most as many as a bucket holds. Returns 0 if they were taken; else the seconds until there are so many."""
        now = self._clock()
        held, since = self._buckets.pop(name, (float(self._burst), now))
        held = min(held + (now - since) * self._per_s, float(self._burst))
        wait_s = 0.0 if held >= tokens else (tokens - held) / self._per_s
        self._buckets[name] = (held if wait_s else held - tokens, now)
        if len(self._buckets) > self._kept_max:
            self._buckets.popitem(last=False)
        return wait_s
