"""The libvirt driver's connections: calls in threads, their time limits, and daemons that go or hang."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from moorage.drivers.libvirt import link as link_module
from moorage.drivers.libvirt.link import DaemonLink
from moorage.model.errors import HostFailed


class Failure(Exception):
    def __init__(self, code: int, domain: int = 0) -> None:
        super().__init__(f"failure {code}")
        self._code, self._domain = code, domain

    def get_error_code(self) -> int:
        return self._code

    def get_error_domain(self) -> int:
        return self._domain


class Connection:
    alive = True

    def isAlive(self) -> bool:  # noqa: N802 - libvirt's
        return self.alive

    def setKeepAlive(self, interval: int, count: int) -> None:  # noqa: N802 - libvirt's
        pass

    def close(self) -> None:
        self.alive = False


class Library:
    libvirtError = Failure  # noqa: N815 - libvirt's
    VIR_ERR_NO_DOMAIN, VIR_ERR_NO_CONNECT, VIR_ERR_AUTH_FAILED = 42, 5, 45
    VIR_FROM_RPC, VIR_FROM_REMOTE = 7, 13

    def __init__(self) -> None:
        self.opened: list[Connection] = []

    def open(self, uri: str) -> Connection:
        self.opened.append(Connection())
        return self.opened[-1]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(link_module, "library", lambda: made)
    return made


def fails(code: int, domain: int = 0) -> Callable[[Any], None]:
    def work(_: object) -> None:
        raise Failure(code, domain)

    return work


async def test_a_lost_connection_is_reopened(library: Library) -> None:
    link = DaemonLink("uri")
    for failing, code in (
        (fails(38, Library.VIR_FROM_RPC), "hypervisor_out"),
        (fails(Library.VIR_ERR_NO_DOMAIN), "guest_not_found"),
        (fails(1), "guest_failed"),
    ):
        with pytest.raises(HostFailed) as failed:
            await link.ask(failing)
        assert failed.value.code == code
    assert len(library.opened) == 2
    library.opened[-1].alive = False
    assert await link.ask(lambda connection: connection) is library.opened[2]
    link.close()


async def test_a_cancelled_call_waits_for_its_thread(library: Library) -> None:
    link, begun, go_on = DaemonLink("uri"), threading.Event(), threading.Event()
    done: list[str] = []

    def work(_: object) -> None:
        begun.set()
        go_on.wait(60)
        done.append("done")

    task = asyncio.create_task(link.ask(work))
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["done"]
    link.close()


async def test_a_slow_call_times_out(library: Library) -> None:
    link, go_on = DaemonLink("uri"), threading.Event()
    began = time.monotonic()
    with pytest.raises(HostFailed) as slow:
        await link.ask(lambda _: go_on.wait(60), limit_s=0.05)
    assert slow.value.code == "hypervisor_slow"
    assert time.monotonic() - began < 30
    go_on.set()
    link.close()


async def test_a_call_that_never_began_in_time_is_never_made(library: Library) -> None:
    """Its caller was told that it failed, and others may do something else with the guest by now."""
    link, go_on, made = DaemonLink("uri"), threading.Event(), list[str]()
    held = [asyncio.create_task(link.ask(lambda _: go_on.wait(60))) for _ in range(link_module.THREADS)]
    await asyncio.sleep(0)
    with pytest.raises(HostFailed) as slow:
        await link.ask(lambda _: made.append("late"), limit_s=0.05)
    assert slow.value.code == "hypervisor_slow"
    go_on.set()
    await asyncio.gather(*held)
    await link.ask(lambda _: made.append("now"))
    assert made == ["now"]
    link.close()


async def test_calls_that_hang_hold_no_read_of_states(library: Library) -> None:
    """Beats depend on these reads: a host with a few guests that hang is not silent."""
    link, go_on = DaemonLink("uri"), threading.Event()
    held = [asyncio.create_task(link.ask(lambda _: go_on.wait(60))) for _ in range(link_module.THREADS + 1)]
    await asyncio.sleep(0)
    assert await link.query(lambda _: "states") == "states"
    go_on.set()
    await asyncio.gather(*held)
    link.close()


async def test_a_call_that_loses_its_connection_costs_no_other_call(library: Library) -> None:
    link, go_on, begun = DaemonLink("uri"), threading.Event(), threading.Event()
    used: list[Connection] = []

    def work(connection: Connection) -> bool:
        used.append(connection)
        begun.set()
        go_on.wait(60)
        return connection.alive

    task = asyncio.create_task(link.ask(work))
    await asyncio.to_thread(begun.wait, 60)
    with pytest.raises(HostFailed):
        await link.ask(fails(38, Library.VIR_FROM_RPC))
    assert len(library.opened) == 2, "libvirt executes five calls of a connection at the most"
    go_on.set()
    assert await task
    assert await link.ask(lambda connection: connection) is used[0]
    link.close()


async def test_a_cancelled_call_that_takes_too_long_is_cancelled(library: Library) -> None:
    link, go_on, begun = DaemonLink("uri"), threading.Event(), threading.Event()

    def work(_: object) -> None:
        begun.set()
        go_on.wait(60)

    task = asyncio.create_task(link.ask(work, limit_s=0.5))
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    link.close()


async def test_what_a_call_does_that_was_given_up_is_waited_for(library: Library) -> None:
    """A device that is not there yet would count as detached, and come afterwards."""
    link, go_on = DaemonLink("uri"), threading.Event()
    with pytest.raises(HostFailed):
        await link.ask(lambda _: go_on.wait(60), limit_s=0.05, of="one")
    await link.until_over("another")
    for _ in range(2):
        with pytest.raises(HostFailed) as slow:
            await link.until_over("one", 0.2)
        assert slow.value.code == "hypervisor_slow"
    go_on.set()
    await link.until_over("one", 60)
    link.close()
