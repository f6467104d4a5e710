"""The connection to libvirt: blocking calls in a few threads, with time limits; a lost connection is opened again.

The driver reads libvirt's state each time and does not rely on events: changes during a lost connection are seen with the next read, which
the agent makes for every heartbeat.

A call that has begun cannot be cancelled.  So a verb that is cancelled waits for the end of its call, up to the call's limit: then no call
of it is under way when the next verb begins.
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

THREADS = 8
"""Limit of calls to one daemon at once; others wait, within their own limits."""
CALL_S = 30.0
KEEPALIVE_S, KEEPALIVE_LOST = 5, 3
"""A daemon that does not answer this many keepalives is lost, and waiting calls fail."""

_log = logging.getLogger(__name__)


class DaemonLink:
    """The connection to one daemon; it is opened by the first call."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="libvirt")
        self._opening = threading.Lock()
        self._connection: Any = None

    async def ask(self, work: Callable[[Any], T], *, limit_s: float = CALL_S) -> T:
        """Call `work(connection)` in a thread. Raises HostFailed: `hypervisor_out`, `hypervisor_slow`, `guest_not_found`, `guest_failed`."""
        begun = self._pool.submit(self._work, work)
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
            if cancelled is None:
                raise HostFailed(
                    "the hypervisor takes too long", private=f"no answer in {limit_s} s", code="hypervisor_slow"
                )
        if cancelled is not None:
            _let_lie(waiting)
            raise cancelled
        return waiting.result()

    def close(self) -> None:
        """Close the connection; guests keep running. May be called again."""
        with contextlib.suppress(RuntimeError):  # it was closed already
            self._pool.submit(self._drop)
        self._pool.shutdown(wait=False)

    def _work(self, work: Callable[[Any], T]) -> T:
        libvirt = library()
        try:
            return work(self._open(libvirt))
        except libvirt.libvirtError as failure:
            if self._is_lost(libvirt, failure):
                self._drop()
                raise HostFailed(
                    "the hypervisor of this host cannot be reached", private=str(failure), code="hypervisor_out"
                ) from failure
            if failure.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                raise HostFailed(
                    "the host has no such guest", private=str(failure), code="guest_not_found"
                ) from failure
            raise HostFailed("the hypervisor refused", private=str(failure), code="guest_failed") from failure

    def _open(self, libvirt: Any) -> Any:
        with self._opening:
            if self._connection is not None and not self._alive(libvirt):
                self._drop()
            if self._connection is None:
                self._connection = libvirt.open(self._uri)
                self._connection.setKeepAlive(KEEPALIVE_S, KEEPALIVE_LOST)
                _log.info("connected to %s", self._uri)
            return self._connection

    def _alive(self, libvirt: Any) -> bool:
        try:
            return bool(self._connection.isAlive())
        except libvirt.libvirtError:
            return False

    def _is_lost(self, libvirt: Any, failure: Any) -> bool:
        """Whether the connection failed, and not the call itself."""
        if failure.get_error_code() in {libvirt.VIR_ERR_NO_CONNECT, libvirt.VIR_ERR_AUTH_FAILED}:
            return True
        remote = {libvirt.VIR_FROM_RPC, libvirt.VIR_FROM_REMOTE}
        if failure.get_error_domain() in remote and failure.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            return True
        return self._connection is None or not self._alive(libvirt)

    def _drop(self) -> None:
        lost, self._connection = self._connection, None
        if lost is not None:
            try:
                lost.close()
            except library().libvirtError as failure:
                _log.debug("closing a lost connection: %s", failure)


def _let_lie(late: "asyncio.Future[Any] | Future[Any]") -> None:
    """Ignore the result of a call whose end was not awaited, without asyncio's warning."""
    if not late.cancelled() and (failure := late.exception()) is not None:
        _log.warning("a call failed after its caller was cancelled: %s", failure)
