"""Connections to one service: several small pools, each replaced before it loses too many connections.

**Small**, because httpcore 1.0 looks at every connection of a pool for each request, and compares idle connections with one
another: with thirty connections this takes longer than the call.  A call uses the first pool that has a free connection, so only
as many pools are open as are needed.

**Replaced**, because a call that is given up (at its deadline, at the end of a lease, or because its server is deleted) is
cancelled, and httpcore does not always notice this: a request that is cancelled after it got a connection and before it used it
leaves that connection in the pool as new or busy for ever.  After enough such calls, a service that was slow for a while could "not be
reached" until the process was restarted.  So each pool counts the calls that were given up.  Before this becomes a problem, the pool
gets no more calls, and a new pool takes its place.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache

import httpx

from moorage.model.errors import Invalid

POOLS_MAX = 8
CONNECTIONS_PER_POOL = 8
CONNECTIONS_MAX = POOLS_MAX * CONNECTIONS_PER_POOL
CONNECT_DEADLINE_S = 5.0
GIVEN_UP_MAX = 3
"""Number of given-up calls after which a pool is replaced; each may have cost it a connection."""


@cache
def _trust(ca_file: str) -> ssl.SSLContext:
    """The trusted certificates, cached: reading them takes longer than the rest of making a client. Raises Invalid."""
    if not ca_file:
        return httpx.create_ssl_context()
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as unreadable:
        raise Invalid(f"{ca_file} is no PEM file of a CA's certificate: {unreadable}") from unreadable


class _Pool:
    """One pool of connections."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.under_way = 0
        self.given_up = 0


class PoolSet:
    """The connection pools of one service: `async with pools.client() as client:` around each call."""

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport | None,
        timeout_s: float,
        headers: Mapping[str, str],
        ca_file: str = "",
    ) -> None:
        """`ca_file`: PEM file of the trusted CA; empty: those that this machine trusts. Raises Invalid when it cannot be read."""
        self._ca_file = ca_file
        if ca_file:
            _trust(ca_file)
        self._transport = transport
        self._timeout = httpx.Timeout(timeout_s, connect=CONNECT_DEADLINE_S)
        self._headers = dict(headers)
        self._ways: list[_Pool] = []
        self._left: set[_Pool] = set()

    def _fresh(self) -> _Pool:
        limits = httpx.Limits(max_connections=CONNECTIONS_PER_POOL, max_keepalive_connections=CONNECTIONS_PER_POOL)
        return _Pool(
            httpx.AsyncClient(
                transport=self._transport,
                verify=_trust(self._ca_file),
                timeout=self._timeout,
                limits=limits,
                headers=self._headers,
                follow_redirects=False,
                trust_env=False,
            )
        )

    def _choose(self) -> _Pool:
        for way in self._ways:
            if way.under_way < CONNECTIONS_PER_POOL - way.given_up:
                return way
        if len(self._ways) < POOLS_MAX and not (self._ways and self._transport is not None):
            self._ways.append(self._fresh())
            return self._ways[-1]
        return min(self._ways, key=lambda each: each.under_way)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """Give a client for one call. If the call is cancelled, it is counted as given up, and CancelledError is raised on."""
        way = self._choose()
        way.under_way += 1
        try:
            yield way.client
        except asyncio.CancelledError:
            self._given_up(way)
            raise
        finally:
            way.under_way -= 1
            if way in self._left and not way.under_way:
                self._left.discard(way)
                await way.client.aclose()

    def _given_up(self, way: _Pool) -> None:
        if self._transport is not None:
            return
        way.given_up += 1
        if way.given_up >= GIVEN_UP_MAX and way in self._ways:
            self._ways.remove(way)
            self._left.add(way)

    async def close(self) -> None:
        for way in (*self._ways, *self._left):
            await way.client.aclose()
        self._ways.clear()
        self._left.clear()
