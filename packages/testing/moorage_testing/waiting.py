"""Waiting in tests: for a condition, with a deadline; never for a length of time."""

import asyncio
from collections.abc import Callable

PATIENCE_S = 180.0
"""Only what is broken takes as long; a machine that is busy with other things may take a great part of it."""


async def until(condition: Callable[[], object], patience_s: float = PATIENCE_S, look_every_s: float = 0.005) -> None:
    """Return as soon as `condition()` is true; `TimeoutError` after `patience_s`."""
    async with asyncio.timeout(patience_s):
        while not condition():  # noqa: ASYNC110 - the condition is anything a test can see, so there is no event
            await asyncio.sleep(look_every_s)
