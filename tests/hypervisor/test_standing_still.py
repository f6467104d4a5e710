"""Guests that are suspended or paused, and what is taken from them meanwhile."""

from pathlib import Path

import pytest
from tests.helpers.libvirt_host import a_spec, a_volume, says, types
from tests.helpers.real_guests import NETWORK, ONE, a_vif, answers, call

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.waiting import PATIENCE_S

pytestmark = pytest.mark.hypervisor
TAP = f"tap{a_vif(11).port[:11]}"
NOTICED = "while [ -e /run/nic.eth1 ]; do sleep 1; done; echo no$((0+1))ticed"
"""The guest looks every second which interfaces it has, and would take one that came back at once for the old one."""


async def cards_of(driver: LibvirtDriver) -> list[str]:
    xml = await driver._ask(ONE, lambda domain: str(domain.XMLDesc()))
    return [each for each in (a_vif(10).mac, a_vif(11).mac) if each in xml]


def devices() -> str:
    return call("ip", "-brief", "link")


async def test_a_suspended_guest_goes_on_without_an_interface_that_was_detached(driver: LibvirtDriver) -> None:
    """Its port was deleted at the network service; QEMU goes on with nothing less than it was saved with."""
    await driver.start_guest(a_spec(ONE, vifs=(a_vif(10), a_vif(11))))
    await answers("10.77.5.10")
    await answers("10.77.5.11")
    assert await driver.suspend(ONE) is PowerState.SUSPENDED
    for _ in range(2):
        assert await driver.detach_interface(ONE, a_vif(11).port) is PowerState.SUSPENDED
    assert TAP not in devices()

    assert await driver.resume(ONE) is PowerState.RUNNING
    await answers("10.77.5.10")
    assert await cards_of(driver) == [a_vif(10).mac]
    assert TAP not in devices()
    assert (await driver.console_output(ONE, None)).count("GUEST: kernel") == 1, "it goes on, and does not boot"
    await types(driver, ONE, NOTICED, "no1ticed")
    assert await driver.attach_interface(ONE, a_vif(11)) is PowerState.RUNNING
    await answers("10.77.5.11")


async def test_a_paused_guest_releases_an_interface_when_it_goes_on(driver: LibvirtDriver) -> None:
    await driver.start_guest(a_spec(ONE, vifs=(a_vif(10), a_vif(11))))
    await answers("10.77.5.10")
    await answers("10.77.5.11")
    await driver.pause(ONE)
    for _ in range(2):
        assert await driver.detach_interface(ONE, a_vif(11).port) is PowerState.PAUSED
    assert "mrg" not in call("ip", "-oneline", "link", "show", "dev", TAP), "it is on no network from then on"
    await driver._unplug_what_is_unused()
    assert await driver.unpause(ONE) is PowerState.RUNNING
    assert await cards_of(driver) == [a_vif(10).mac]
    assert TAP not in devices()
    await answers("10.77.5.10")


async def test_an_interface_that_a_paused_guest_gets_back(driver: LibvirtDriver) -> None:
    await driver.start_guest(a_spec(ONE, vifs=(a_vif(10), a_vif(11))))
    await answers("10.77.5.11")
    await driver.pause(ONE)
    await driver.detach_interface(ONE, a_vif(11).port)
    assert await driver.attach_interface(ONE, a_vif(11)) is PowerState.PAUSED
    assert await driver.unpause(ONE) is PowerState.RUNNING
    await answers("10.77.5.11")


async def test_a_suspended_guest_keeps_its_other_devices(driver: LibvirtDriver, tmp_path: Path) -> None:
    """It would go on without those that it got, and with those that it lost."""
    volume = a_volume(tmp_path, "vol-1")
    await driver.start_guest(a_spec(ONE, vifs=(a_vif(10),), volumes=(volume,)))
    await says(driver, ONE, "GUEST: ready")
    await driver.suspend(ONE)
    for refused in (
        driver.attach_interface(ONE, a_vif(11)),
        driver.attach_volume(ONE, a_volume(tmp_path, "vol-2")),
        driver.detach_volume(ONE, "vol-1"),
        driver.swap_volume(ONE, "vol-1", a_volume(tmp_path, "vol-3")),
    ):
        with pytest.raises(HostFailed) as still:
            await refused
        assert still.value.code == "guest_not_running"

    # The machine is started anew: what was in its memory alone is gone.
    await driver.close()
    for name in (f"tap{a_vif(10).port[:11]}", f"mrg{NETWORK[:11]}"):
        call("ip", "link", "delete", "dev", name)
    await driver.start()
    assert await driver.guests() == {ONE: PowerState.SUSPENDED}
    assert await driver.resume(ONE) is PowerState.RUNNING
    await answers("10.77.5.10")
    await types(driver, ONE, "cat /sys/block/vdb/size; echo con$((40+2))", "40960")
    await driver.destroy_guest(ONE)
    assert leftovers() == []


async def test_a_paused_guest_keeps_its_volumes(driver: LibvirtDriver, tmp_path: Path) -> None:
    """Asked to release one, it would do so when it goes on, long after that was given up: the volume would be shown as attached."""
    volume = a_volume(tmp_path, "vol-1")
    await driver.start_guest(a_spec(ONE, volumes=(volume,)))
    await says(driver, ONE, "GUEST: ready")
    await driver.pause(ONE)
    with pytest.raises(HostFailed) as kept:
        await driver.detach_volume(ONE, "vol-1")
    assert kept.value.code == "device_busy"
    await driver.unpause(ONE)
    await types(driver, ONE, "sleep 5; cat /sys/block/vdb/size; echo loo$((40+2))ked", "loo42ked")
    assert "GUEST: disk vdb gone" not in await driver.console_output(ONE, None)
    await driver.detach_volume(ONE, "vol-1")
    await says(driver, ONE, "GUEST: disk vdb gone")


async def test_a_guest_that_sleeps_by_itself_is_woken(driver: LibvirtDriver) -> None:
    """Its system went to sleep (ACPI S3); libvirt resumes no such guest."""
    await driver.start_guest(a_spec(ONE))
    await says(driver, ONE, "GUEST: ready")
    sleep = "(sleep 1; echo mem >/sys/power/state; echo wo$((1+1))ke) & echo go$((1+1))"
    for times, verbs in enumerate(((driver.pause, driver.unpause), (driver.suspend, driver.resume)), 1):
        await types(driver, ONE, sleep, "go2")
        assert await driver._when(ONE, {PowerState.PAUSED}, PATIENCE_S)
        for verb in verbs:
            await verb(ONE)
        assert await driver._when(ONE, {PowerState.RUNNING}, PATIENCE_S)
        await says(driver, ONE, "wo2ke", times)
