"""Limits how often projects and addresses send requests: one token bucket for each, in tables of limited size."""

import math
import time
from collections.abc import Callable

from moorage.main.connection_limits import is_loopback
from moorage.main.http_limits import Rates
from moorage.model.errors import TooManyRequests
from moorage.model.principal import Principal
from moorage.model.rate_buckets import RateBuckets

SERVICE = "service"


class RateLimits:
    """The rate limits of one listener."""

    def __init__(self, rates: Rates, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = rates
        self._projects = RateBuckets(rates.project_per_s, rates.project_burst, rates.kept_max, clock)
        self._addresses = RateBuckets(rates.address_per_s, rates.address_burst, rates.kept_max, clock)

    def charge_caller(self, caller: str) -> float:
        """Count a request of an address. Returns 0, or the seconds until the address may send another request."""
        if not self._rates.address_per_s or (is_loopback(caller) and not self._rates.count_loopback):
            return 0.0
        return self._addresses.take(caller)

    def charge_principal(self, principal: Principal) -> None:
        """Count a request of a project. Raises TooManyRequests when the project sends too many."""
        if principal.project is None or SERVICE in principal.roles or SERVICE in principal.service_roles:
            return
        if wait_s := self._projects.take(principal.project):
            raise TooManyRequests(
                f"This project asks more often than {self._rates.project_per_s:g} times in a second. "
                f"Ask again in {math.ceil(wait_s)} s.",
                retry_after_s=wait_s,
            )

    def charges_projects(self, caller: str) -> bool:
        """Tell whether the projects of requests from this address are counted."""
        return bool(self._rates.project_per_s) and (self._rates.count_loopback or not is_loopback(caller))
