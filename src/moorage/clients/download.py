"""Downloads a file that an administrator names: in pieces, without credentials, and from the named address alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import httpx

TIMEOUT_S = 30.0
"""Of the connection, and of each piece."""
PIECE_BYTES = 1024 * 1024


@asynccontextmanager
async def download(url: str) -> AsyncIterator[AsyncIterator[bytes]]:
    """The pieces of what is there. Raises OSError when it cannot be had; redirects are not followed, as nobody allowed their targets."""
    try:
        async with (
            httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False) as client,
            client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as answer,
        ):
            if answer.status_code != HTTPStatus.OK:
                raise OSError(f"the status of the answer is {answer.status_code}")
            yield answer.aiter_bytes(PIECE_BYTES)
    except (httpx.HTTPError, httpx.InvalidURL) as failure:
        raise OSError(f"it cannot be read: {failure!r}") from failure
