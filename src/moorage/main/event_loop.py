"""Runs the event loop of every process."""

import asyncio
import gc
from collections.abc import Coroutine

SWITCH_INTERVAL_S = 0.001
"""How long one thread may keep the interpreter while another waits: the loop waits for answers of database threads."""

GARBAGE_THRESHOLDS = (20_000, 20, 50)
"""Collect seldom: a boot makes thousands of objects, and hardly any cycles among them."""


def settle_memory() -> None:
    """Exclude the objects that were made during the start from garbage collection: they stay until the process ends."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def run_loop(coroutine: Coroutine[object, object, None]) -> None:
    """Run the coroutine, on uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(coroutine)
        return
    uvloop.run(coroutine)
