"""How every process of ours runs its loop."""

import asyncio
import gc
from collections.abc import Coroutine

SWITCH_INTERVAL_S = 0.001
"""How long one thread may keep the interpreter while another waits: database threads answer the loop's questions."""

GARBAGE_THRESHOLDS = (20_000, 20, 50)
"""A boot makes thousands of objects and hardly a cycle among them."""


def settle_memory() -> None:
    """What was made while starting stays; looking through it again and again for garbage would be for nothing."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def run_loop(coroutine: Coroutine[object, object, None]) -> None:
    """On uvloop where it is there."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(coroutine)
        return
    uvloop.run(coroutine)
