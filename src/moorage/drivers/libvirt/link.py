"""The connections to libvirt: blocking calls in a few threads, with time limits; a lost connection is opened again.

The driver reads libvirt's state each time and does not rely on events: changes during a lost connection are seen with the next read, which
the agent makes for every heartbeat.

Each call that is under way has a connection of its own. libvirt's daemon executes five calls of a connection at once at the most, and reads
nothing from one that has so many, not even its keepalives: a few guests that hang would make the connection look dead, and all other calls
fail. For the same reason reads of states have threads of their own: they wait for no guest, and beats depend on them.

A call that has begun cannot be cancelled.  So a verb that is cancelled waits for the end of its call, up to the call's limit: then no call
of it is under way when the next verb begins.  A call that has not begun when its time is over is never made.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from moorage.drivers.libvirt.library import library
from moorage.model.errors import HostFailed

T = TypeVar("T")

THREADS, QUERY_THREADS = 16, 4
"""Limits of calls to one daemon at once, and of reads of states besides; others wait, within their own limits."""
CALL_S, LOOK_EVERY_S = 30.0, 0.1
KEEPALIVE_S, KEEPALIVE_LOST = 5, 3
"""A daemon that does not answer this many keepalives is lost, and waiting calls fail."""

_log = logging.getLogger(__name__)


class DaemonLink:
    """The connections to one daemon; they are opened by calls."""

    def __init__(self, uri: str) -> None:
        self._calls, self._queries = _Lane(uri, THREADS), _Lane(uri, QUERY_THREADS)
        self._late: dict[str, set[Future[Any]]] = {}
        """Guest → its calls that have begun and that nobody waits for any more."""

    async def ask(self, work: Callable[[Any], T], *, limit_s: float = CALL_S, of: str = "") -> T:
        """Call `work(connection)` in a thread. `of`: the guest with which it does something.

        Raises HostFailed: `hypervisor_out`, `hypervisor_slow`, `guest_not_found`, `guest_failed`.
        """
        begun = self._calls.begin(work)
        try:
            return await _within(begun, limit_s)
        finally:
            if of and not begun.done():
                self._late = {guest: calls for guest, calls in self._late.items() if calls}
                late = self._late.setdefault(of, set())
                late.add(begun)
                begun.add_done_callback(late.discard)

    async def until_over(self, of: str, limit_s: float = CALL_S) -> None:
        """Wait for calls of a guest that nobody waits for any more: what they do may not be done yet. Raises HostFailed (`hypervisor_slow`)."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + limit_s
        while not all(each.done() for each in tuple(self._late.get(of, ()))):
            if loop.time() >= ends:
                raise slow(limit_s)
            await asyncio.sleep(LOOK_EVERY_S)
        self._late.pop(of, None)

    async def query(self, work: Callable[[Any], T], *, limit_s: float = CALL_S) -> T:
        """The same for reads that libvirt answers without asking a guest; they do not wait for other calls."""
        return await _within(self._queries.begin(work), limit_s)

    def close(self) -> None:
        """Close the connections; guests keep running. May be called again."""
        self._calls.close()
        self._queries.close()


def slow(limit_s: float) -> HostFailed:
    return HostFailed("the hypervisor takes too long", private=f"no answer in {limit_s} s", code="hypervisor_slow")


async def _within(begun: "Future[T]", limit_s: float) -> T:
    waiting = asyncio.wrap_future(begun)
    loop = asyncio.get_running_loop()
    ends, cancelled = loop.time() + limit_s, None
    while not waiting.done():
        left_s = ends - loop.time()
        if left_s <= 0:
            break
        try:
            await asyncio.wait([waiting], timeout=left_s)
        except asyncio.CancelledError as cancellation:
            if begun.cancel():
                raise
            cancelled = cancellation
    if not waiting.done():
        waiting.add_done_callback(_let_lie)
        begun.cancel()  # if it waits for a thread: nobody expects it any more, and it would do it all the same
        if cancelled is None:
            raise slow(limit_s)
    elif cancelled is not None:
        _let_lie(waiting)
    if cancelled is not None:
        raise cancelled
    return waiting.result()


class _Lane:
    """Threads, and connections that no call uses now."""

    def __init__(self, uri: str, threads: int) -> None:
        self._uri = uri
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="libvirt")
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self._closed = False

    def begin(self, work: Callable[[Any], T]) -> "Future[T]":
        return self._pool.submit(self._work, work)

    def close(self) -> None:
        with self._lock:
            self._closed = True
        with contextlib.suppress(RuntimeError):  # it was closed already
            self._pool.submit(self._close_idle)
        self._pool.shutdown(wait=False)

    def _close_idle(self) -> None:
        """In a thread, for a daemon that hangs."""
        while (idle := self._any_idle()) is not None:
            _close(idle)

    def _work(self, work: Callable[[Any], T]) -> T:
        libvirt, connection = library(), None
        try:
            connection = self._take(libvirt)
            return work(connection)
        except libvirt.libvirtError as failure:
            if connection is None or _is_lost(libvirt, connection, failure):
                if connection is not None:
                    _close(connection)
                    connection = None
                raise HostFailed(
                    "the hypervisor of this host cannot be reached", private=str(failure), code="hypervisor_out"
                ) from failure
            if failure.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                raise HostFailed(
                    "the host has no such guest", private=str(failure), code="guest_not_found"
                ) from failure
            raise HostFailed("the hypervisor refused", private=str(failure), code="guest_failed") from failure
        finally:
            if connection is not None:
                self._give_back(connection)

    def _take(self, libvirt: Any) -> Any:
        while (idle := self._any_idle()) is not None:
            if _is_alive(libvirt, idle):
                return idle
            _close(idle)
        connection = libvirt.open(self._uri)
        connection.setKeepAlive(KEEPALIVE_S, KEEPALIVE_LOST)
        _log.info("connected to %s", self._uri)
        return connection

    def _any_idle(self) -> Any:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: Any) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                return
        _close(connection)


def _is_alive(libvirt: Any, connection: Any) -> bool:
    try:
        return bool(connection.isAlive())
    except libvirt.libvirtError:
        return False


def _is_lost(libvirt: Any, connection: Any, failure: Any) -> bool:
    """Whether the connection failed, and not the call itself."""
    if failure.get_error_code() in {libvirt.VIR_ERR_NO_CONNECT, libvirt.VIR_ERR_AUTH_FAILED}:
        return True
    remote = {libvirt.VIR_FROM_RPC, libvirt.VIR_FROM_REMOTE}
    if failure.get_error_domain() in remote and failure.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
        return True
    return not _is_alive(libvirt, connection)


def _close(connection: Any) -> None:
    try:
        connection.close()
    except library().libvirtError as failure:
        _log.debug("closing a lost connection: %s", failure)


def _let_lie(late: "asyncio.Future[Any] | Future[Any]") -> None:
    """Ignore the result of a call whose end was not awaited, without asyncio's warning."""
    if not late.cancelled() and (failure := late.exception()) is not None:
        _log.warning("a call failed after its caller was cancelled: %s", failure)
