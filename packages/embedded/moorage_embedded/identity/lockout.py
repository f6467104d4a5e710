"""Protection against guessed passwords: an account is locked after failures in a row, and an address that fails too
often waits.

The first is Keystone's `security_compliance`, kept in the database: it is off unless `lockout_failure_attempts` is set,
as in Keystone, because anyone who knows a user's name can then lock that user out. The second is ours and counts in
memory: an address has a number of failed attempts for each account, and gets as many more in a minute. Only the
guessing address is delayed; the user can log in from elsewhere.
"""

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from moorage.model.errors import TooManyRequests
from moorage.sql import Database, Tx, upsert
from moorage_embedded.identity.store import failed_logins

KEPT_MAX = 10_000
"""Addresses, and addresses at an account: the one that failed longest ago goes."""
ACCOUNTS = 10
"""How many times more failures an address may have at all accounts together, so that one user does not delay others at
the same address.
"""
IPV6_HOME_BITS = 64
"""A customer has as many IPv6 addresses as these leave."""
IGNORE = "ignore_lockout_failure_attempts"
"""Keystone's option for a user who is never locked."""


@dataclass(frozen=True)
class LockoutLimits:
    """The limits for wrong passwords. 0: no limit."""

    lockout_failure_attempts: int = 0
    lockout_duration_s: float = 1800.0
    failures_per_minute: int = 60
    """Of one address at one account."""


DEFAULTS = LockoutLimits()


class Lockout:
    """Failures of users, over restarts. They are no part of what the desk remembers, so counting them makes it forget nothing."""

    def __init__(self, database: Database, limits: LockoutLimits, clock: Callable[[], float]) -> None:
        self._database = database
        self._limits = limits
        self._clock = clock

    async def locked(self, user: str, options: dict[str, object] | None) -> bool:
        """Whether no password opens the account for now."""
        most = self._limits.lockout_failure_attempts
        if not most or (options or {}).get(IGNORE) is True:
            return False
        since = self._clock() - self._limits.lockout_duration_s
        return await self._database.read(lambda tx: _failures(tx, user, since)) >= most

    async def failed(self, user: str) -> None:
        if not self._limits.lockout_failure_attempts:
            return
        now = self._clock()
        since = now - self._limits.lockout_duration_s

        def count(tx: Tx) -> None:
            row = {"user_id": user, "count": _failures(tx, user, since) + 1, "at": now}
            tx.run(upsert(tx.dialect, failed_logins, row, key=("user_id",)))

        await self._database.write(count)

    async def succeeded(self, user: str) -> None:
        """Reset the count."""
        if not self._limits.lockout_failure_attempts:
            return
        if await self._database.read(lambda tx: _failures(tx, user, 0.0)):
            await self._database.write(lambda tx: forget(tx, user))


def _failures(tx: Tx, user: str, since: float) -> int:
    """In a row; those whose last one is longer ago count no more."""
    found = sa.select(failed_logins.c["count"]).where(failed_logins.c.user_id == user, failed_logins.c["at"] > since)
    return int(tx.scalar(found) or 0)


def forget(tx: Tx, user: str) -> None:
    tx.run(sa.delete(failed_logins).where(failed_logins.c.user_id == user))


class Throttle:
    """Failures of addresses at accounts, in this process."""

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._at_one = AttemptBuckets(per_minute, clock)
        self._at_all = AttemptBuckets(per_minute * ACCOUNTS, clock)

    def check(self, address: str | None, account: str) -> None:
        """Raises TooManyRequests when the address has to wait, before any work is done for it."""
        if address is None:
            return
        home = home_of(address)
        wait_s = max(self._at_one.wait_s(f"{home} {account}"), self._at_all.wait_s(home))
        if wait_s:
            raise TooManyRequests(
                f"Too many failed logins from this address: try again in {math.ceil(wait_s)} seconds.",
                retry_after_s=wait_s,
            )

    def failed(self, address: str | None, account: str) -> None:
        if address is not None:
            home = home_of(address)
            self._at_one.take(f"{home} {account}")
            self._at_all.take(home)


class AttemptBuckets:
    """What each may have, of which it gets as much again in a minute."""

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._per_minute = float(per_minute)
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """How much there was, and when."""

    def wait_s(self, whose: str) -> float:
        left = self._now(whose)
        return 0.0 if left >= 1.0 or not self._per_minute else (1.0 - left) * 60.0 / self._per_minute

    def take(self, whose: str) -> None:
        self._left[whose] = (max(0.0, self._now(whose) - 1.0), self._clock())
        self._left.move_to_end(whose)
        while len(self._left) > KEPT_MAX:
            self._left.popitem(last=False)

    def _now(self, whose: str) -> float:
        left, at = self._left.get(whose, (self._per_minute, 0.0))
        gained = max(0.0, self._clock() - at) * self._per_minute / 60.0
        return min(self._per_minute, left + gained)


def home_of(address: str) -> str:
    """Those that one customer changes as they like count as one."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, IPV6_HOME_BITS), strict=False))
    return str(found)
