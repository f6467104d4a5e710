"""Shares and quotas of processors: what guests that want all of it really get, by the kernel's own count."""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.helpers.libvirt_host import ImageFiles, a_spec, says
from tests.helpers.live_pair import a_host, certified, ends, running, sent, started, when
from tests.helpers.real_guests import ONE, TWO, call, qemu_of, types

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.main.local_cluster.libvirt_daemon import Daemon
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, PowerState
from moorage.model.ids import ServerId
from moorage.model.instance_metadata import InstanceMetadata
from moorage.model.live_migration import LiveState
from moorage_testing.hypervisor.guests import user_data
from moorage_testing.hypervisor.machine import HIERARCHIES
from moorage_testing.waiting import PATIENCE_S

needs_groups = pytest.mark.skipif(
    not os.environ.get(HIERARCHIES), reason="this machine has no control groups of version 1 with the controller `cpu` that we may make"
)  # fmt: skip
pytestmark = pytest.mark.hypervisor

SPINS = "#!/bin/sh\n( while :; do :; done ) &\necho GUEST: spins >/dev/console\n"
SHARED_S, LIMITED_S = 5.0, 2.0
"""Of processor time: as much is counted."""
THROTTLED_MIN = 5
"""Of periods: so often at least the guest wanted more than its quota."""
PART = 0.25
"""How far a measure may be from what was asked: the kernel hands out slices."""


def spins(server: ServerId, **specs: str) -> GuestSpec:
    drive = InstanceMetadata(server, name="web", hostname="web.local", user_data=user_data(SPINS))
    return a_spec(server, drive=drive, extra_specs={name.replace("__", ":"): value for name, value in specs.items()})


def used_s(server: ServerId, of: str = "cpu.time", *daemon: str) -> float:
    """Processor time of the guest, or of one of its processors (`vcpu.0.time`)."""
    said = call("virsh", "-q", *daemon, "domstats", "--cpu-total", "--vcpu", f"guest-{server}")
    found = re.search(rf"{re.escape(of)}=(\d+)", said)
    assert found is not None, said
    return int(found[1]) / 1e9


def onto_one_processor(*servers: ServerId) -> None:
    """All threads of these guests."""
    one = {min(os.sched_getaffinity(0))}
    for server in servers:
        for thread in Path(f"/proc/{qemu_of(server)}/task").iterdir():
            os.sched_setaffinity(int(thread.name), one)


async def shared(*servers: ServerId) -> list[float]:
    """What each used, when together they have used `SHARED_S`."""
    before, deadline = [used_s(each) for each in servers], time.monotonic() + PATIENCE_S
    while sum(now := [used_s(each) - then for each, then in zip(servers, before, strict=True)]) < SHARED_S:
        assert time.monotonic() < deadline, now
        await asyncio.sleep(0.1)
    return now


async def part_of_a_processor(qemu: int, server: ServerId, *daemon: str) -> float:
    """What the guest's processor uses of one, measured until it has been held back several times."""
    held_before, before, began = held_back(qemu), used_s(server, "vcpu.0.time", *daemon), time.monotonic()
    deadline = began + PATIENCE_S
    while True:
        used, passed_s = used_s(server, "vcpu.0.time", *daemon) - before, time.monotonic() - began
        held = held_back(qemu) - held_before
        if used >= LIMITED_S and held >= THROTTLED_MIN:
            return used / passed_s
        assert time.monotonic() < deadline, (used, held)
        await asyncio.sleep(0.1)


def held_back(qemu: int) -> int:
    """How many periods the guest's first processor was kept from running, because its quota was used."""
    return int(dict(line.split() for line in (group_of(qemu) / "cpu.stat").read_text().splitlines())["nr_throttled"])


def group_of(qemu: int) -> Path:
    """The control group of the guest's first processor: a thread of the process is in it."""
    processors = {
        line.split(":", 2)[2]
        for thread in Path(f"/proc/{qemu}/task").iterdir()
        for line in (thread / "cgroup").read_text().splitlines()
        if "cpu" in line.split(":")[1].split(",") and line.endswith("/vcpu0")
    }
    assert len(processors) == 1, processors
    return next(iter(Path("/sys/fs/cgroup").glob("cpu"))) / processors.pop().lstrip("/")


@needs_groups
async def test_four_shares_to_one_on_the_same_processor(driver: LibvirtDriver) -> None:
    for server, shares in ((ONE, "2048"), (TWO, "512")):
        await driver.start_guest(spins(server, quota__cpu_shares=shares))
        await says(driver, server, "GUEST: spins")
    onto_one_processor(ONE, TWO)
    more, less = await shared(ONE, TWO)
    assert more / less == pytest.approx(4, rel=PART)


@needs_groups
async def test_a_quota_holds_and_changes_with_the_flavor(driver: LibvirtDriver) -> None:
    """A resize takes effect with the start that ends it; a guest that was saved has its quota again."""
    small = {"quota__cpu_quota": "20000", "quota__cpu_period": "100000"}
    large = {"quota__cpu_quota": "20000", "quota__cpu_period": "50000"}
    await driver.start_guest(spins(ONE, **large))
    await says(driver, ONE, "GUEST: spins")
    assert await part_of_a_processor(qemu_of(ONE), ONE) <= 0.4 * (1 + PART)
    await driver.power_off(ONE, 0)
    assert await driver.take_guest(spins(ONE, **small), "resize") is PowerState.SHUTDOWN
    await driver.power_on(ONE)
    assert await part_of_a_processor(qemu_of(ONE), ONE) <= 0.2 * (1 + PART), "it boots, which needs all it can get"
    await driver.suspend(ONE)
    await driver.resume(ONE)
    assert await part_of_a_processor(qemu_of(ONE), ONE) <= 0.2 * (1 + PART)
    await driver.power_off(ONE, 0)
    await driver.return_guest(ONE, "resize")
    await driver.power_on(ONE)
    assert (group_of(qemu_of(ONE)) / "cpu.cfs_period_us").read_text() == "50000\n", "the resize was reverted"


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Daemon]]:
    """The third one has no control groups."""
    room = tmp_path_factory.mktemp("daemons")
    made = [Daemon(room / str(each), each, f"127.0.0.{each}", limits_processors=each < 4) for each in (2, 3, 4)]
    certified(tmp_path_factory.mktemp("pki"), made, [each.address for each in made])
    with running(made):
        yield made


@pytest.fixture
async def hosts(
    daemons: list[Daemon], tmp_path: Path, images: ImageFiles
) -> AsyncIterator[tuple[LibvirtDriver, LibvirtDriver, LibvirtDriver]]:
    first, second, third = (a_host(each, tmp_path / f"host{each.number}", images) for each in daemons)
    async with started(daemons, (first, second, third)):
        yield first, second, third


@needs_groups
async def test_it_has_its_quota_where_it_goes_and_goes_nowhere_without(
    hosts: tuple[LibvirtDriver, LibvirtDriver, LibvirtDriver], daemons: list[Daemon]
) -> None:
    first, second, third = hosts
    spec = spins(ONE, quota__cpu_quota="40000", quota__cpu_period="100000", quota__cpu_shares="512")
    await first.start_guest(spec)
    await says(first, ONE, "GUEST: spins")
    await sent(first, third, spec, "one")
    await ends(first, "one", LiveState.FAILED)
    await third.drop_live(ONE, "one")
    assert (await first.guests(), await third.guests()) == ({ONE: PowerState.RUNNING}, {})
    await types(first, "echo he$((0+1))re", "he1re")
    await sent(first, second, spec, "two")
    await when(first, "two", lambda now: now.state is LiveState.SWITCHED)
    assert await second.land_live(spec, "two") is PowerState.RUNNING
    qemu = int((daemons[1].run / "qemu" / f"guest-{ONE}.pid").read_text())
    assert await part_of_a_processor(qemu, ONE, "-c", daemons[1].uri) <= 0.4 * (1 + PART)


@pytest.mark.parametrize("limit", ["shares", "quota", "period"])
async def test_limits_that_the_daemon_cannot_keep_are_refused(
    hosts: tuple[LibvirtDriver, LibvirtDriver, LibvirtDriver], limit: str
) -> None:
    """The scheduler's next choice is tried then; nothing is left of the guest here, and others start."""
    *_, third = hosts
    with pytest.raises(HostFailed, match="Requested CPU control policy not supported by host") as refused:
        await third.start_guest(a_spec(ONE, extra_specs={f"quota:cpu_{limit}": "20000"}))
    assert refused.value.code == "not_supported"
    await third.destroy_guest(ONE)
    assert await third.start_guest(a_spec(ONE)) is PowerState.RUNNING
