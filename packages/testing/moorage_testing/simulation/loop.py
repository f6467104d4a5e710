"""An event loop with virtual time and simulated processes: nothing waits, nothing is read from the machine, one order of events.

When nothing is ready the clock jumps to the next timer.  Every handle belongs to the process in whose context it was made
(`PROCESS`): those of a dead process are dropped, those of a frozen one are held until it thaws.  Executors run inline.
"""

import asyncio
import contextvars
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, cast

from typing_extensions import override

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START_S = 1_000.0
"""What the loop's clock says at first."""
HANDLES_AT_ONCE_MAX = 200_000
"""Callbacks without the clock moving on: more is a livelock."""

logger = logging.getLogger(__name__)


class Livelock(Exception):
    """Virtual time stands still while callbacks run for ever."""


class Starved(Exception):
    """What is waited for can never come: nothing is ready, and no timer is set."""


class SimulatedProcess:
    """One simulated process: what it runs can be killed, frozen and thawed as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.frozen = False
        self.held: list[tuple[float | None, asyncio.Handle]] = []
        """Callbacks that came due while it was frozen, and when, if they are timers."""
        self.suspended_s = 0.0
        """How long its machine's monotonic clock stood still in all."""
        self.tasks: list[asyncio.Task[Any]] = []
        """Kept so that nothing of a dead process is finalised before the simulation ends."""

    @override
    def __repr__(self) -> str:
        return self.name


PROCESS: contextvars.ContextVar[SimulatedProcess | None] = contextvars.ContextVar("simulated_process", default=None)
_BLANK = contextvars.Context()


def context_of(process: SimulatedProcess) -> contextvars.Context:
    """A context with nothing in it but the process."""
    context = _BLANK.copy()
    context.run(PROCESS.set, process)
    return context


class VirtualFuture(asyncio.Future[T]):
    """Hashed by number: sets of futures are walked in the same order in every run."""

    def __init__(self, *, loop: "VirtualLoop") -> None:
        self._number = next(loop.numbers)
        super().__init__(loop=loop)

    @override
    def __hash__(self) -> int:
        return self._number

    @override
    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualTask(asyncio.Task[T]):
    """The same for tasks."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], *, loop: "VirtualLoop", **more: Any) -> None:
        self._number = next(loop.numbers)
        super().__init__(coroutine, loop=loop, **more)
        self._log_destroy_pending = False

    @override
    def __hash__(self) -> int:
        return self._number

    @override
    def __eq__(self, other: object) -> bool:
        return self is other


def _nothing() -> None:
    """In place of a callback that was cancelled: its references are dropped."""


class _Handle(asyncio.Handle):
    """asyncio's own, which asks its loop each time whether it is to be debugged: a simulation makes millions."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    @override
    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = _nothing, ()


class _Timer(asyncio.TimerHandle):
    """The same of a timer."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = False

    @override
    def cancel(self) -> None:
        self._cancelled = True  # it is passed over when its time comes
        self._callback, self._args = _nothing, ()


class VirtualLoop(asyncio.BaseEventLoop):
    """`run(coroutine)` drives it; every other member is asyncio's."""

    def __init__(self) -> None:
        self._shut = False
        self._runs = False
        super().__init__()
        self.now = START_S
        self.events = 0
        """Callbacks that ran."""
        self.ended: BaseException | None = None
        """Raised after the callback that set it: the run ends."""
        self.failures: list[BaseException] = []
        """What callbacks raised and nobody caught."""
        self._due: deque[asyncio.Handle] = deque()
        self._alarms: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._sequence = itertools.count()
        self.numbers = itertools.count(1)
        """Of futures and tasks, by which they are hashed."""
        self._at_once = 0

    # ------------------------------------------------------------------------------------------------- driving

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run until the coroutine is done; raises what it raises, Starved, or Livelock."""
        task = self.create_task(main)
        asyncio._set_running_loop(self)
        self._runs = True
        try:
            self._drive(task)
        finally:
            self._runs = False
            asyncio._set_running_loop(None)
        return task.result()

    def _drive(self, task: asyncio.Task[Any]) -> None:
        due = self._due
        while not task.done():
            when: float | None = None
            handle: asyncio.Handle
            if due:
                handle = due.popleft()
                self._at_once += 1
                if self._at_once > HANDLES_AT_ONCE_MAX:
                    raise Livelock(f"{HANDLES_AT_ONCE_MAX} callbacks at {self.now:.6f}: {handle!r}")
            else:
                when, handle = self._next_alarm()
            if handle._cancelled:
                continue
            context: contextvars.Context = handle._context  # type: ignore[attr-defined]
            process = context.get(PROCESS)
            if process is None or not (process.dead or process.frozen):
                self._carry_out(handle, context)
            elif not process.dead:
                process.held.append((when, handle))

    def _next_alarm(self) -> tuple[float, asyncio.Handle]:
        """The clock moves on to it."""
        while self._alarms:
            when, _, handle = heapq.heappop(self._alarms)
            if not handle._cancelled:
                if when > self.now:
                    self.now, self._at_once = when, 0
                return when, handle
        raise Starved("nothing is ready and no timer is set")

    def _carry_out(self, handle: asyncio.Handle, context: contextvars.Context) -> None:
        self.events += 1
        try:
            context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as failure:  # noqa: BLE001  as asyncio does: said, and the others go on
            self.call_exception_handler({"message": "a callback failed", "exception": failure, "handle": handle})
        if self.ended is not None:
            raise self.ended

    # ------------------------------------------------------------------------------------------------- processes

    def kill(self, process: SimulatedProcess) -> None:
        """Nothing of it runs any more."""
        process.dead = True
        process.held.clear()

    def freeze(self, process: SimulatedProcess) -> None:
        """Its callbacks wait until `thaw`."""
        process.frozen = True

    def thaw(self, process: SimulatedProcess, *, suspended_s: float = 0.0) -> None:
        """Go on; `suspended_s`: its machine slept, so its monotonic clock and its timers stood still for so long."""
        process.frozen = False
        held, process.held = process.held, []
        if suspended_s > 0.0:
            process.suspended_s += suspended_s
            self._postpone(process, suspended_s)
        for when, handle in held:
            if when is not None and when + suspended_s > self.now:
                timer = cast("asyncio.TimerHandle", handle)
                heapq.heappush(self._alarms, (when + suspended_s, next(self._sequence), timer))
            else:
                self._due.append(handle)

    def _postpone(self, process: SimulatedProcess, by_s: float) -> None:
        timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        for when, number, handle in self._alarms:
            mine = handle._context.get(PROCESS) is process  # type: ignore[attr-defined]
            timers.append((when + by_s if mine else when, number, handle))
        heapq.heapify(timers)
        self._alarms = timers

    # ------------------------------------------------------------------------------------------------- time

    @override
    def time(self) -> float:
        process = PROCESS.get()
        return self.now if process is None else self.now - process.suspended_s

    @override
    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._due.append(handle)
        return handle

    @override
    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    @override
    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self._at(self.now + delay if delay > 0.0 else self.now, callback, args, context)

    @override
    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        process = PROCESS.get()
        moment = when if process is None else when + process.suspended_s
        return self._at(moment, callback, args, context)

    def _at(
        self,
        moment: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        context: contextvars.Context | None,
    ) -> asyncio.TimerHandle:
        process = PROCESS.get()
        shown = moment if process is None else moment - process.suspended_s
        handle = _Timer(shown, callback, args, self, context)
        heapq.heappush(self._alarms, (moment, next(self._sequence), handle))
        return handle

    # ------------------------------------------------------------------------------------------------- tasks

    @override
    def create_future(self) -> asyncio.Future[Any]:
        return VirtualFuture(loop=self)

    @override
    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        task: VirtualTask[T] = VirtualTask(coro, loop=self, name=name or "task", context=context)  # type: ignore[arg-type]
        owner = PROCESS.get() if context is None else context.get(PROCESS)
        if owner is not None:
            owner.tasks.append(task)
            if len(owner.tasks) > 10_000:
                owner.tasks = [each for each in owner.tasks if not each.done()]
        return task

    def begin(self, process: SimulatedProcess, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task of that process, whichever process creates it."""
        return self.create_task(coroutine, context=context_of(process))

    @override
    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as failure:  # noqa: BLE001  handed to whoever awaits it, as an executor does
            future.set_exception(failure)
        return future

    # ------------------------------------------------------------------------------------------------- the rest

    @override
    def is_running(self) -> bool:
        return self._runs

    @override
    def is_closed(self) -> bool:
        return self._shut

    @override
    def close(self) -> None:
        """Drop everything that still waits."""
        self._shut = True
        self._due.clear()
        self._alarms.clear()

    @override
    def get_debug(self) -> bool:
        return False

    @override
    def call_exception_handler(self, context: dict[str, Any]) -> None:
        failure = context.get("exception")
        if failure is not None:
            self.failures.append(failure)
        logger.error("%s: %r", context.get("message"), failure)

    @override
    async def shutdown_asyncgens(self) -> None:
        return None


__all__ = ["PROCESS", "Livelock", "SimulatedProcess", "Starved", "VirtualLoop", "context_of"]
