"""The libvirt driver when something fails: images, starts that are cut off, and daemons that stop or hang."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest
from tests.helpers.libvirt_host import (
    DISK,
    PATIENCE_S,
    ImageFiles,
    a_spec,
    says,
)
from tests.helpers.libvirt_host import types as say
from tests.helpers.real_guests import NETWORK, ONE, TWO, a_vif, answers, call, ping, qemu_of

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState
from moorage.model.ids import ImageId
from moorage.model.image import ImageFile
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.hypervisor.machine import start_daemon

pytestmark = pytest.mark.hypervisor
BRIDGE = f"mrg{NETWORK[:11]}"


def daemon() -> int:
    return int(Path("/run/libvirt/libvirtd.pid").read_text())


async def until_it_fails(driver: LibvirtDriver) -> None:
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        await driver.guests()
        await asyncio.sleep(0.05)


async def test_images_of_another_format_are_refused(driver: LibvirtDriver, images: ImageFiles, tmp_path: Path) -> None:
    secret, trap = tmp_path / "secret", tmp_path / "trap.qcow2"
    secret.write_bytes(b"x" * 4096)
    call("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(secret), str(trap), "1M")
    images.files |= {
        "trap": ImageFile(trap, "qcow2", "bare"),
        "hidden": ImageFile(trap, "raw", "bare"),
        "text": ImageFile(secret, "qcow2", "bare"),
        "vmdk": ImageFile(secret, "vmdk", "bare"),
    }
    for name in ("trap", "hidden", "text", "vmdk"):
        with pytest.raises(HostFailed) as refused:
            await driver.start_guest(a_spec(ONE, image=ImageId(name)))
        assert refused.value.code == "image_unusable", name
        await driver.destroy_guest(ONE)


async def test_an_image_is_kept_while_a_disk_needs_it(driver: LibvirtDriver, images: ImageFiles, room: Path) -> None:
    await driver.start_guest(a_spec(ONE, power_on=False))
    await driver.start_guest(a_spec(TWO, power_on=False))
    assert images.fetched.count(DISK) == 1
    driver._images._unused_s = 0.0
    await driver.destroy_guest(TWO)
    assert list((room / "images").glob("*.qcow2"))
    await driver.destroy_guest(ONE)
    assert not list((room / "images").glob("*.qcow2"))


async def test_a_start_that_is_given_up_leaves_nothing(driver: LibvirtDriver) -> None:
    """However far it had come: the destroy that follows finds all of it."""
    for after_s in (0.0, 0.05, 0.2, 0.4, 0.8):
        task = asyncio.create_task(driver.start_guest(a_spec(ONE, vifs=(a_vif(10),))))
        await asyncio.wait([task], timeout=after_s)
        task.cancel()
        await asyncio.wait([task])
        await driver.destroy_guest(ONE)
        assert await driver.guests() == {}
        assert [each for each in leftovers() if not each.startswith("file")] == []


async def test_devices_that_were_cut_off_before_they_were_marked(driver: LibvirtDriver) -> None:
    """Made, and the agent was killed before they said whose they are: they are taken as ours by their names, or go."""
    tap = f"tap{a_vif(10).port[:11]}"
    for started in (False, True):
        await driver.start_guest(a_spec(ONE, vifs=(a_vif(10),), power_on=False))
        call("ip", "link", "add", "name", BRIDGE, "type", "bridge")
        call("ip", "tuntap", "add", "dev", tap, "mode", "tap", "vnet_hdr")
        if started:
            await driver.power_on(ONE)
        await driver.destroy_guest(ONE)
        assert leftovers() == []


async def test_the_agent_and_the_daemon_go_and_the_guest_stays(driver: LibvirtDriver) -> None:
    await driver.start_guest(a_spec(ONE, vifs=(a_vif(10),)))
    await answers("10.77.5.10")
    qemu = qemu_of(ONE)
    await driver.close()
    await driver.start()
    assert await driver.guests() == {ONE: PowerState.RUNNING}

    os.kill(daemon(), signal.SIGKILL)
    with pytest.raises(HostFailed) as out:
        await until_it_fails(driver)
    assert out.value.code == "hypervisor_out"
    assert await ping("10.77.5.10") == 0
    await asyncio.to_thread(_start_daemon)
    assert await driver.guests() == {ONE: PowerState.RUNNING}
    assert qemu_of(ONE) == qemu

    os.kill(qemu, signal.SIGKILL)
    ends = time.monotonic() + PATIENCE_S
    while (await driver.guests())[ONE] not in {PowerState.CRASHED, PowerState.SHUTDOWN}:
        assert time.monotonic() < ends
        await asyncio.sleep(0.1)
    assert await driver.power_on(ONE) is PowerState.RUNNING
    await answers("10.77.5.10")


_daemons: list[subprocess.Popen[bytes]] = []
"""Whoever started the first one stops the last one too."""


def _start_daemon() -> None:
    _daemons.append(start_daemon())


async def test_a_daemon_that_hangs_is_not_waited_for(driver: LibvirtDriver) -> None:
    await driver.start_guest(a_spec(ONE, power_on=False))
    os.kill(daemon(), signal.SIGSTOP)
    try:
        with pytest.raises(HostFailed) as silent:
            await driver.guests()
        assert silent.value.code in {"hypervisor_out", "hypervisor_slow"}
    finally:
        os.kill(daemon(), signal.SIGCONT)
    assert await driver.guests() == {ONE: PowerState.SHUTDOWN}


async def test_a_guest_that_hangs_holds_nothing_else(driver: LibvirtDriver) -> None:
    """Six calls wait for it; one connection would take five at once, and be lost soon, with all calls of other guests."""
    await driver.start_guest(a_spec(ONE))
    qemu = qemu_of(ONE)
    os.kill(qemu, signal.SIGSTOP)
    try:
        waiting = [asyncio.create_task(driver._ask(ONE, lambda domain: domain.injectNMI(0))) for _ in range(6)]
        await asyncio.sleep(0)
        for _ in range(3):
            async with asyncio.timeout(15):
                assert await driver.guests() == {ONE: PowerState.RUNNING}
        assert await driver.start_guest(a_spec(TWO, power_on=False)) is PowerState.SHUTDOWN
        await driver.power_off(ONE, 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(qemu, signal.SIGCONT)
    codes = {
        each.code for each in await asyncio.gather(*waiting, return_exceptions=True) if isinstance(each, HostFailed)
    }
    assert codes == {"guest_failed"}


async def test_a_guest_whose_kernel_has_crashed_is_rebooted_and_stopped(driver: LibvirtDriver) -> None:
    """It answers no power button: once its time is over it is switched off, and started where that was asked."""
    driver._settings = msgspec.structs.replace(driver._settings, soft_reboot_s=3.0)
    await driver.start_guest(a_spec(ONE))
    await says(driver, ONE, "GUEST: ready")
    for boots in (1, 2):
        await say(driver, ONE, "echo 0 >/proc/sys/kernel/panic; echo c >/proc/sysrq-trigger", "Kernel panic")
        assert await driver.guests() == {ONE: PowerState.RUNNING}
        if boots == 1:
            assert await driver.reboot(ONE, hard=False) is PowerState.RUNNING
            await says(driver, ONE, "GUEST: boot number 2")
            await says(driver, ONE, "GUEST: ready", 2)
    assert await driver.power_off(ONE, 1.0) is PowerState.SHUTDOWN
    assert "GUEST: power button" not in await driver.console_output(ONE, None)


async def test_a_crash_dump_is_triggered(driver: LibvirtDriver) -> None:
    await driver.start_guest(a_spec(ONE))
    await says(driver, ONE, "GUEST: ready")
    assert await driver.crash_dump(ONE) is PowerState.RUNNING
    assert (await driver.describe()).hypervisor_type == "QEMU"
