"""Bounds what one host may send to one receiver, before anything is decoded: a host whose key was stolen costs others no time.

A message beyond its sender's share is ignored, as if it were lost: hosts send again what matters.  NATS has no rate for one key, so
the broker carries all of it; here it costs a look into two tables.
"""

from collections.abc import Callable
from dataclasses import dataclass

from moorage.bus import subjects
from moorage.model.rate_buckets import RateBuckets

SENDERS_KEPT_MAX = 65_536
"""Limit of senders that are counted; of those that were silent for longest the count begins anew."""
MIB = 1024 * 1024


@dataclass(frozen=True)
class HostShare:
    """What one host may send to one receiver: in the long run, and at once."""

    messages_per_s: float
    messages_at_once: int
    bytes_per_s: float
    bytes_at_once: int


OF_REPORTS = HostShare(100.0, 1_000, 2.0 * MIB, 16 * MIB)
"""Heartbeats and reports; the largest report has a megabyte."""
OF_RESULTS = HostShare(2_000.0, 20_000, 32.0 * MIB, 128 * MIB)
"""Answers to commands, which this process has sent."""


class SenderShares:
    """Counts what each host sends to one receiver."""

    def __init__(self, share: HostShare, monotonic: Callable[[], float]) -> None:
        self._messages = RateBuckets(share.messages_per_s, share.messages_at_once, SENDERS_KEPT_MAX, monotonic)
        self._bytes = RateBuckets(share.bytes_per_s, share.bytes_at_once, SENDERS_KEPT_MAX, monotonic)
        self.excess = 0
        """Number of messages beyond their senders' shares."""

    def admits(self, subject: str, size: int) -> bool:
        """Count a message; tell whether it is within its sender's share."""
        sender = subjects.sender(subject)
        name = subject if sender is None else f"{sender[0]}.{sender[1]}"
        if self._messages.take(name) or self._bytes.take(name, size):
            self.excess += 1
            return False
        return True
