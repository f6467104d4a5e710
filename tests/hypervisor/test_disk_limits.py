"""What a flavor lets a guest read from its disks and write to them: rates of guests that want more, as QEMU counts them."""

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.helpers.libvirt_host import a_spec, a_volume, says
from tests.helpers.real_guests import ONE, call, types

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.model.guest import PowerState
from moorage_testing.waiting import PATIENCE_S

pytestmark = pytest.mark.hypervisor

READS_PER_S, BYTES_PER_S, ACCESSES_PER_S = 40, 256 << 10, 30
COUNTED_S = 4.0
"""As much is counted as the limit allows in this time."""
PART = 0.2
"""How far a rate may be from what was asked."""
MEASUREMENTS_MAX = 5
READS = "while :; do dd if=/dev/{disk} of=/dev/null bs=512 count=2000 iflag=direct 2>/dev/null; done"
WRITES = "while :; do dd if=/dev/zero of=/dev/{disk} bs={size} count=500 oflag=direct 2>/dev/null; done"


def counted(disk: str) -> dict[str, int]:
    """Requests and bytes (`rd.reqs`, `wr.bytes`) that the guest's disk has had."""
    said = call("virsh", "-q", "domstats", "--block", f"guest-{ONE}")
    numbers = {match[1]: int(match[2]) for match in re.finditer(r"block\.(\d+\.[a-z.]+)=(\d+)\n", said)}
    number = re.search(rf"block\.(\d+)\.name={disk}\n", said)
    assert number is not None, said
    return {name.partition(".")[2]: value for name, value in numbers.items() if name.startswith(f"{number[1]}.")}


async def rate(disk: str, names: tuple[str, ...], amount: float) -> float:
    """How much of these numbers comes in a second, measured over so much of it. Raises AssertionError when it does not come."""
    before, began = await asyncio.to_thread(counted, disk), time.monotonic()
    while True:
        now, passed_s = await asyncio.to_thread(counted, disk), time.monotonic() - began
        if (come := sum(now[each] - before[each] for each in names)) >= amount:
            return come / passed_s
        assert passed_s < PATIENCE_S, (disk, come)
        await asyncio.sleep(0.05)


async def held(disk: str, names: tuple[str, ...], holds: Callable[[float], bool], amount: float) -> float:
    """A rate that holds; else the last one. A machine that is busy may be too slow for the limit, so it is measured again."""
    for _ in range(MEASUREMENTS_MAX):
        if holds(measured := await rate(disk, names, amount)):
            break
    return measured


async def is_limited(disk: str, names: tuple[str, ...], per_s: int) -> None:
    wanted = pytest.approx(per_s, rel=PART)
    assert await held(disk, names, lambda got: got == wanted, per_s * COUNTED_S) == wanted


async def spins(driver: LibvirtDriver, number: int, *loops: str) -> None:
    """These loops run in the guest, and no earlier ones."""
    started = "; ".join(f"( {each} ) &" for each in loops).replace("&;", "&")
    await types(
        driver,
        f"kill $(jobs -p) 2>/dev/null; killall dd 2>/dev/null; {started} echo loo$((0+{number}))ps",
        f"loo{number}ps",
    )


async def test_rates_of_disks_are_limited_and_volumes_are_free(driver: LibvirtDriver, tmp_path: Path) -> None:
    limits = {"quota:disk_read_iops_sec": str(READS_PER_S), "quota:disk_write_bytes_sec": str(BYTES_PER_S)}
    await driver.start_guest(a_spec(ONE, ephemeral_gib=1, extra_specs=limits))
    await says(driver, ONE, "GUEST: ready")
    await driver.attach_volume(ONE, a_volume(tmp_path, "vol-1"))
    await says(driver, ONE, "GUEST: disk vdc ")
    await spins(driver, 1, READS.format(disk="vdb"))
    await is_limited("vdb", ("rd.reqs",), READS_PER_S)
    await spins(driver, 2, WRITES.format(disk="vdb", size=4096))
    await is_limited("vdb", ("wr.bytes",), BYTES_PER_S)
    await spins(driver, 3, READS.format(disk="vdc"))
    free = 3 * READS_PER_S
    assert await held("vdc", ("rd.reqs",), lambda got: got > free, free * COUNTED_S) > free

    # Another flavor limits both together, from the start that ends the resize.
    await driver.power_off(ONE, 0)
    limits = {"quota:disk_total_iops_sec": str(ACCESSES_PER_S)}
    assert await driver.take_guest(a_spec(ONE, ephemeral_gib=1, extra_specs=limits), "resize") is PowerState.SHUTDOWN
    await driver.power_on(ONE)
    await says(driver, ONE, "GUEST: ready", times=2)
    await spins(driver, 4, READS.format(disk="vdb"), WRITES.format(disk="vdb", size=512))
    await is_limited("vdb", ("rd.reqs", "wr.reqs"), ACCESSES_PER_S)
