"""Limits a listener's connections, in all and for each address, and finds the caller's address behind trusted proxies."""

import ipaddress
import logging
import time
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from moorage.main.http_limits import HttpLimits
from moorage.model.retry import SeldomLog

IPV6_BITS = 64
"""A /64 counts as one caller: whoever has one IPv6 address usually has 2⁶⁴."""
NO_ROOM = 503
LOG_EVERY_S = 60.0
LOGGED_KINDS_MAX = 16

log = logging.getLogger(__name__)


@lru_cache(maxsize=4096)
def caller_of(address: str) -> str:
    """Return what counts as one caller: the address, for IPv6 its upper half; empty if it is not an address."""
    try:
        read = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(read, ipaddress.IPv4Address):
        return str(read)
    if read.ipv4_mapped is not None:
        return str(read.ipv4_mapped)
    if read.is_loopback:
        return str(read)
    return str(ipaddress.ip_network((int(read) >> IPV6_BITS << IPV6_BITS, IPV6_BITS)))


@lru_cache(maxsize=4096)
def is_loopback(caller: str) -> bool:
    """`caller` as `caller_of` gives it."""
    return caller == "::1" or caller.startswith("127.")


class Visit:
    """One connection that was accepted; `leave` may be called twice."""

    __slots__ = ("_inside", "_keeper", "caller", "trusted")

    def __init__(self, keeper: "Doorkeeper", caller: str, trusted: bool) -> None:
        self._keeper = keeper
        self._inside = True
        self.caller = caller
        self.trusted = trusted
        """Whether it comes through a proxy whose `X-Forwarded-For` is trusted."""

    def leave(self) -> None:
        if self._inside:
            self._inside = False
            self._keeper.left(self.caller)


class Doorkeeper:
    """Counts the connections of one listener."""

    def __init__(self, limits: HttpLimits, trusted_proxies: Iterable[str] = (), name: str = "") -> None:
        self._limits = limits
        self._name = name
        self._log = SeldomLog(log, time.monotonic, every_s=LOG_EVERY_S, kinds_max=LOGGED_KINDS_MAX)
        self.refused: Counter[int] = Counter()
        """How often it refused somebody by itself, by status; 503 also for connections that were not let in."""
        self._trusted = frozenset(caller_of(each) for each in trusted_proxies)
        self._of: Counter[str] = Counter()
        self.inside = 0

    def admit(self, address: str) -> Visit | None:
        """Accept a connection and count it; None: the listener, or this caller, has too many."""
        caller = caller_of(address)
        trusted = caller in self._trusted
        if self.inside >= self._limits.connections_max or (
            not trusted and self._of[caller] >= self._limits.connections_of_an_address_max
        ):
            self.refuses(NO_ROOM, caller)
            return None
        self.inside += 1
        self._of[caller] += 1
        return Visit(self, caller, trusted)

    def refuses(self, status: int, caller: str) -> None:
        """Count a refusal, and log it now and then: an operator may have to raise a limit or to block a caller."""
        self.refused[status] += 1
        self._log.warning(str(status), "%s: %d to %s, by a limit of [api]", self._name, status, caller or "somebody")

    def left(self, caller: str) -> None:
        self.inside -= 1
        self._of[caller] -= 1
        if not self._of[caller]:
            del self._of[caller]


def forwarded_address(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the last entry of `X-Forwarded-For`, which the proxy itself added; empty if it is not an address."""
    forwarded = b""
    for name, value in headers:
        if name == b"x-forwarded-for":
            forwarded = value
    address = forwarded.decode("latin-1").rpartition(",")[2].strip()
    return address if caller_of(address) else ""
