"""How many connections a listener has, in all and of each address; and who a caller is, behind proxies that are trusted."""

import ipaddress
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from moorage.main.http_limits import HttpLimits

IPV6_BITS = 64
"""Whoever has one address of IPv6 has 2⁶⁴."""


@lru_cache(maxsize=4096)
def caller_of(address: str) -> str:
    """What is counted as one caller: the address, IPv6's without its lower half; empty for what is no address."""
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
    """One connection that was let in; `leave` may be said twice."""

    __slots__ = ("_inside", "_keeper", "caller", "trusted")

    def __init__(self, keeper: "Doorkeeper", caller: str, trusted: bool) -> None:
        self._keeper = keeper
        self._inside = True
        self.caller = caller
        self.trusted = trusted
        """Through a proxy whose `X-Forwarded-For` is believed."""

    def leave(self) -> None:
        if self._inside:
            self._inside = False
            self._keeper.left(self.caller)


class Doorkeeper:
    """Counts the connections of one listener."""

    def __init__(self, limits: HttpLimits, trusted_proxies: Iterable[str] = ()) -> None:
        self._limits = limits
        self._trusted = frozenset(caller_of(each) for each in trusted_proxies)
        self._of: Counter[str] = Counter()
        self.inside = 0
        self.refused: Counter[str] = Counter()
        """What was turned away without asking the service: `connection`, or requests by status."""

    def admit(self, address: str) -> Visit | None:
        """None: there is no room for (another of) this caller."""
        caller = caller_of(address)
        trusted = caller in self._trusted
        of_caller_max = self._limits.connections_max if trusted else self._limits.connections_of_an_address_max
        if self.inside >= self._limits.connections_max or self._of[caller] >= of_caller_max:
            self.refused["connection"] += 1
            return None
        self.inside += 1
        self._of[caller] += 1
        return Visit(self, caller, trusted)

    def left(self, caller: str) -> None:
        self.inside -= 1
        self._of[caller] -= 1
        if not self._of[caller]:
            del self._of[caller]


def forwarded_caller(visit: Visit, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Who asks: the connection's other end, or whom a trusted proxy names last."""
    if not visit.trusted:
        return visit.caller
    said = b""
    for name, value in headers:
        if name == b"x-forwarded-for":
            said = value
    return caller_of(said.decode("latin-1").rpartition(",")[2].strip()) or visit.caller
