"""Two libvirt daemons of this machine, each with an agent's driver, between which guests move while they run."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.main.local_cluster.certificates import CertificateAuthority
from moorage.main.local_cluster.libvirt_daemon import Daemon, DaemonCertificates
from moorage.model.guest import GuestSpec, MoveTarget, PowerState
from moorage.model.live_migration import LiveNow, LiveState
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.waiting import PATIENCE_S
from tests.helpers.libvirt_host import ImageFiles, a_driver
from tests.helpers.real_guests import ONE

CLEAR, TLS = "qemu+tcp://{address}/system", "qemu+tls://{address}/system"


def certified(room: Path, daemons: Sequence[Daemon], names: Sequence[str]) -> CertificateAuthority:
    """Give each daemon a certificate for its name or address, and let it take only these; returns who signed them."""
    authority = CertificateAuthority(room)
    peers = [common_name(each) for each in daemons]
    for daemon, name in zip(daemons, names, strict=True):
        own = authority.issue(common_name(daemon), [name])
        daemon.certificates = DaemonCertificates(authority.file, own, peers)
    return authority


def common_name(daemon: Daemon) -> str:
    return f"host{daemon.number}"


@contextmanager
def running(daemons: list[Daemon]) -> Iterator[list[Daemon]]:
    with ThreadPoolExecutor() as starting:
        list(starting.map(Daemon.start, daemons))
    try:
        yield daemons
    finally:
        for each in daemons:
            each.stop()


def a_host(daemon: Daemon, room: Path, images: ImageFiles, **settings: object) -> LibvirtDriver:
    """The driver of the daemon's host, which is reached by TLS if the daemon has certificates."""
    by_tls = daemon.certificates is not None
    own = {"uri": daemon.uri, "address": daemon.address, "migration_address": daemon.address}
    own |= {"live_uri": TLS, "live_pki": str(daemon.pki)} if by_tls else {"live_uri": CLEAR}
    return a_driver(room, images, **(own | settings))


@asynccontextmanager
async def started(daemons: list[Daemon], hosts: Sequence[LibvirtDriver]) -> AsyncIterator[None]:
    """The drivers run; in the end nothing is left of their guests."""
    for each in hosts:
        await each.start()
    yield
    try:
        for each in hosts:
            for server in {*await each.guests(), *await each.arrivals()}:
                await each.destroy_guest(server)
            await each.clean()
        for each, daemon in zip(hosts, daemons, strict=True):
            assert leftovers(each.room, uri=daemon.uri, groups=daemon.groups_of_guests) == []
    finally:
        for each in hosts:
            await each.close()


async def sent(first: LibvirtDriver, second: LibvirtDriver, spec: GuestSpec, move: str) -> MoveTarget:
    """It begins."""
    target = await second.live_target(spec, await first.live_source(ONE), None)
    for _ in range(2):
        assert await second.prepare_live(spec, move) is PowerState.PAUSED
    for _ in range(2):
        await first.send_live(ONE, target, move)
    return target


async def when(driver: LibvirtDriver, move: str, good: Callable[[LiveNow], bool]) -> LiveNow:
    deadline = time.monotonic() + PATIENCE_S
    while not good(now := await driver.live_status(ONE, move)):
        assert time.monotonic() < deadline, now
        assert now.state is LiveState.RUNNING, now
        await asyncio.sleep(0.05)
    return now


async def ends(driver: LibvirtDriver, move: str, state: LiveState) -> LiveNow:
    deadline = time.monotonic() + PATIENCE_S
    while (now := await driver.live_status(ONE, move)).state is not state:
        assert now.state is LiveState.RUNNING, now
        assert time.monotonic() < deadline, now
        await asyncio.sleep(0.05)
    return now
