"""Which subnet of a segment is asked for the next address: those that had none a moment ago come last.

Only a hint that saves a refused call per port on segments that have grown; what a subnet has left, its service decides.
"""

import time
from collections.abc import Callable, Sequence

REMEMBERED_S = 30.0
SUBNETS_MAX = 4096


class SubnetRotation:
    """`for subnet in subnets.in_turn(of_segment): …`, and `subnets.spent(subnet)` when it had no address."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._spent: dict[str, float] = {}

    def in_turn(self, named: Sequence[str]) -> tuple[str, ...]:
        """All of them, in the order given but for those that were spent."""
        if len(named) < 2 or not self._spent:
            return tuple(named)
        now = self._monotonic()
        return tuple(sorted(named, key=lambda subnet: self._spent.get(subnet, 0.0) > now))

    def spent(self, subnet: str) -> None:
        """It had no address left just now."""
        if len(self._spent) >= SUBNETS_MAX:
            self._spent.clear()
        self._spent[subnet] = self._monotonic() + REMEMBERED_S
