"""How often somebody may ask: a token bucket for each project and each address, in tables that are bounded."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from moorage.main.connection_limits import is_loopback
from moorage.main.http_limits import Rates
from moorage.model.errors import TooManyRequests
from moorage.model.principal import Principal

SERVICE = "service"


class Buckets:
    """One bucket for each name; a bucket holds `burst` and gains `per_s` in a second."""

    def __init__(self, per_s: float, burst: int, kept_max: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._burst = burst
        self._kept_max = kept_max
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Name → what it held, and when; who asked last is at the end."""

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, name: str) -> float:
        """0: one was taken. Else nothing was, and there will be one in so many seconds."""
        now = self._clock()
        held, since = self._buckets.pop(name, (float(self._burst), now))
        held = min(held + (now - since) * self._per_s, float(self._burst))
        wait_s = 0.0 if held >= 1 else (1 - held) / self._per_s
        self._buckets[name] = (held if wait_s else held - 1, now)
        if len(self._buckets) > self._kept_max:
            self._buckets.popitem(last=False)
        return wait_s


class RateLimits:
    """Of one listener."""

    def __init__(self, rates: Rates, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = rates
        self._projects = Buckets(rates.project_per_s, rates.project_burst, rates.kept_max, clock)
        self._addresses = Buckets(rates.address_per_s, rates.address_burst, rates.kept_max, clock)

    def charge_caller(self, caller: str) -> float:
        """0, or in how many seconds this address may ask again."""
        if not self._rates.address_per_s or (is_loopback(caller) and not self._rates.count_loopback):
            return 0.0
        return self._addresses.take(caller)

    def charge_principal(self, principal: Principal) -> None:
        """Raises TooManyRequests for a project that asks too often."""
        if principal.project is None or SERVICE in principal.roles or SERVICE in principal.service_roles:
            return
        if wait_s := self._projects.take(principal.project):
            raise TooManyRequests(
                f"This project asks more often than {self._rates.project_per_s:g} times in a second. "
                f"Ask again in {math.ceil(wait_s)} s.",
                retry_after_s=wait_s,
            )

    def charges_projects(self, caller: str) -> bool:
        """Whether the projects of who asks from there are counted."""
        return bool(self._rates.project_per_s) and (self._rates.count_loopback or not is_loopback(caller))
