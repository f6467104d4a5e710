"""Orders the subnets of a segment for the next address: subnets that had none left a moment ago come last.

This is only a hint that saves a refused call for each port on segments with several subnets; the service decides what is left.
"""

import time
from collections.abc import Callable, Sequence

REMEMBERED_S = 30.0
SUBNETS_MAX = 4096


class SubnetRotation:
    """Orders subnets: `for subnet in subnets.in_turn(of_segment): …`, and `subnets.spent(subnet)` when it had no address."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._spent: dict[str, float] = {}

    def in_turn(self, named: Sequence[str]) -> tuple[str, ...]:
        """Return all subnets in the given order; those that had no address left come last."""
        if len(named) < 2 or not self._spent:
            return tuple(named)
        now = self._monotonic()
        return tuple(sorted(named, key=lambda subnet: self._spent.get(subnet, 0.0) > now))

    def spent(self, subnet: str) -> None:
        """Remember that the subnet had no address left."""
        if len(self._spent) >= SUBNETS_MAX:
            self._spent.clear()
        self._spent[subnet] = self._monotonic() + REMEMBERED_S
