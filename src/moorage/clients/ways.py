"""Connections to one service, renewed before they run out.

A call that is given up (at its deadline, at the end of a lease, because its server is deleted) is cancelled, and httpcore 1.0
does not always notice: cancelled between being given a connection and using it, a request leaves the connection in the pool as
new or busy for good.  Sixty-four such calls, and a service that was slow for a while could "not be reached" until the process
was started again.  So each pool counts what was given up on it; before that could matter it is left to the calls that it still
carries, and a fresh one takes over.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache

import httpx

CONNECTIONS_MAX = 64
CONNECTIONS_KEPT_MAX = 32
CONNECT_DEADLINE_S = 5.0
GIVEN_UP_MAX = 16
"""Calls given up on one pool, each of which may have cost it a connection, before another takes over."""


@cache
def _trust() -> ssl.SSLContext:
    """Made once: reading the certificates costs more than everything else of a client."""
    return httpx.create_ssl_context()


class _Way:
    """One pool of connections."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.under_way = 0
        self.given_up = 0


class Ways:
    """`async with ways.client() as client:` around each call."""

    def __init__(
        self, transport: httpx.AsyncBaseTransport | None, timeout_s: float, headers: Mapping[str, str]
    ) -> None:
        self._transport = transport
        self._timeout = httpx.Timeout(timeout_s, connect=CONNECT_DEADLINE_S)
        self._headers = dict(headers)
        self._way = self._fresh()
        self._left: set[_Way] = set()

    def _fresh(self) -> _Way:
        limits = httpx.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_KEPT_MAX)
        return _Way(
            httpx.AsyncClient(
                transport=self._transport,
                verify=_trust(),
                timeout=self._timeout,
                limits=limits,
                headers=self._headers,
                follow_redirects=False,
                trust_env=False,
            )
        )

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """The pool for one call; a call that is cancelled within is counted."""
        way = self._way
        way.under_way += 1
        try:
            yield way.client
        except asyncio.CancelledError:
            way.given_up += 1
            if way is self._way and way.given_up >= GIVEN_UP_MAX and self._transport is None:
                self._way = self._fresh()
                self._left.add(way)
            raise
        finally:
            way.under_way -= 1
            if way in self._left and not way.under_way:
                self._left.discard(way)
                await way.client.aclose()

    async def close(self) -> None:
        for way in (self._way, *self._left):
            await way.client.aclose()
        self._left.clear()
