"""Interleaves two tasks in one region, call by call: what one does between two calls of the other.

    order = Order(("operation", 7), ("reconciler", 2), ("operation", None), ("reconciler", None))
    await together(order, operation=(lambda packages: …), reconciler=(lambda packages: …))

Every transaction and every call to a service or a host is a point where a task waits for its turn. An order says which
task continues, and for how many calls; None: to its end.
"""

import asyncio
import dataclasses
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

from moorage.operations.cell_databases import Cells
from moorage.operations.context import SagaContext

QUIET_TURNS = 30
"""So many turns of the event loop without a new call: a life waits for its turn, or has ended."""
WAIT_S_MAX = 10.0

Turns = tuple[tuple[str, int | None], ...]


@dataclass
class _Life:
    task: asyncio.Task[None] | None = None
    waiting: "deque[asyncio.Event]" = field(default_factory=deque)
    calls: int = 0


_me: ContextVar[_Life | None] = ContextVar("life", default=None)


class _Waits:
    """A wrapper whose coroutines wait for the turn of their task."""

    def __init__(self, under: Any) -> None:
        self._under = under

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._under, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def called(*args: Any, **kwargs: Any) -> Any:
            life = _me.get()
            if life is not None:
                gate = asyncio.Event()
                life.waiting.append(gate)
                await gate.wait()
                life.calls += 1
            return await found(*args, **kwargs)

        return called


def waiting(context: SagaContext) -> SagaContext:
    """The same packages, in which every call waits for its turn."""
    return dataclasses.replace(
        context,
        region=cast("Any", _Waits(context.region)),
        cells=Cells({cell: cast("Any", _Waits(context.cells[cell])) for cell in context.cells.ids}),
        network=cast("Any", _Waits(context.network)),
        hosts=cast("Any", _Waits(context.hosts)),
    )


async def together(turns: Turns, lives: Mapping[str, Callable[[], Awaitable[object]]]) -> dict[str, int]:
    """Let them go on as the order says, then all to their ends; how many calls each made. Raises what they raise."""
    living = {name: _Life() for name in lives}
    for name, life in living.items():
        life.task = asyncio.create_task(_live(life, lives[name]), name=name)
    try:
        for name, calls in (*turns, *((name, None) for name in lives)):
            await _go_on(living[name], calls)
        while any(not _over(life) for life in living.values()):  # one may have waited for the other
            for life in living.values():
                await _go_on(life, 1)
    finally:
        for life in living.values():
            if life.task is not None:
                life.task.cancel()
        await asyncio.gather(*(life.task for life in living.values() if life.task), return_exceptions=True)
    for life in living.values():
        assert life.task is not None
        if (failure := life.task.exception()) is not None:
            raise failure
    return {name: life.calls for name, life in living.items()}


async def _live(life: _Life, work: Callable[[], Awaitable[object]]) -> None:
    _me.set(life)
    await work()


def _over(life: _Life) -> bool:
    return life.task is not None and life.task.done()


async def _go_on(life: _Life, calls: int | None) -> None:
    """So many calls, or to its end; it stops earlier where it waits for something that is not a turn."""
    done = 0
    while (calls is None or done < calls) and await _quiet(life):
        life.waiting.popleft().set()
        done += 1
    if not _over(life):
        await _quiet(life)


async def _quiet(life: _Life) -> bool:
    """Whether it waits for its turn; given time to come to that."""
    quiet = 0
    while quiet < QUIET_TURNS and not _over(life):
        if life.waiting:
            return True
        quiet += 1
        await asyncio.sleep(0)
    return bool(life.waiting)
