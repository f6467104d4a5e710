"""Waiting in tests: for a condition, with a deadline; never for a length of time."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], patience_s: float = 10.0, look_every_s: float = 0.005) -> None:
    """Return as soon as `condition()` is true; `TimeoutError` after `patience_s`."""
    async with asyncio.timeout(patience_s):
        while not condition():  # noqa: ASYNC110 - the condition is anything a test can see, so there is no event
            await asyncio.sleep(look_every_s)
