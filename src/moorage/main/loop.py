"""How every process of ours runs its loop."""

import asyncio
from collections.abc import Coroutine

SWITCH_INTERVAL_S = 0.001
"""How long one thread may keep the interpreter while another waits: database threads answer the loop's questions."""


def run_loop(coroutine: Coroutine[object, object, None]) -> None:
    """On uvloop where it is there."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(coroutine)
        return
    uvloop.run(coroutine)
