"""The libvirt driver with real guests. What every driver promises is in tests/contract/test_driver_guests.py."""

import asyncio
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.helpers.libvirt_host import (
    DISK,
    PATIENCE_S,
    RAM_MIB,
    ImageFiles,
    a_driver,
    a_spec,
    a_volume,
    guest_files,
    says,
)
from tests.helpers.real_guests import ONE, TWO, a_vif, answers, call, qemu_of, types

from moorage.drivers.libvirt import disks
from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.drivers.libvirt.snapshots import _write_above
from moorage.model.errors import HostFailed, Invalid
from moorage.model.guest import GuestSpec, PowerState, Quiesce, VolumeDisk
from moorage.model.ids import ImageId
from moorage.model.image import ImageFile
from moorage.model.instance_metadata import InstanceMetadata
from moorage.model.rescue import RescueSpec
from moorage_testing.hypervisor.leftovers import leftovers

pytestmark = pytest.mark.hypervisor


def generations(room: Path) -> list[str]:
    return sorted(each.name for each in (room / "guests" / ONE).glob("d*"))


def first_bytes(volume: VolumeDisk, count: int) -> bytes:
    return Path(volume.connection["device_path"]).read_bytes()[:count]


@pytest.mark.hypervisor_ci
async def test_a_guest_on_its_network(driver: LibvirtDriver, tmp_path: Path) -> None:
    """One guest, and all that may be plugged into it while it runs."""
    drive = InstanceMetadata(ONE, name="web", hostname="web.local")
    await driver.start_guest(a_spec(ONE, vifs=(a_vif(10),), drive=drive))
    await answers("10.77.5.10")
    said = await says(driver, ONE, "GUEST: ready")
    assert "GUEST: config-drive" in said
    assert "GUEST: ready web " in said

    for _ in range(2):
        await driver.attach_interface(ONE, a_vif(11))
    await answers("10.77.5.11")
    for _ in range(2):
        await driver.detach_interface(ONE, a_vif(11).port)

    volume = a_volume(tmp_path, "vol-1")
    for _ in range(2):
        await driver.attach_volume(ONE, volume)
    await says(driver, ONE, "GUEST: disk vdb 40960")
    await types(driver, "echo kept >/dev/vdb; sync; echo wro$((1+1))", "wro2")
    other = a_volume(tmp_path, "vol-2")
    for _ in range(2):
        await driver.swap_volume(ONE, "vol-1", other)
    assert first_bytes(other, 5) == b"kept\n"
    await types(driver, "head -c 4 /dev/vdb; echo; echo moved >/dev/vdb; sync; echo wro$((1+2))", "wro3")
    assert first_bytes(other, 6) == b"moved\n"
    assert first_bytes(volume, 5) == b"kept\n"
    volume = other
    await asyncio.to_thread(os.truncate, volume.connection["device_path"], 1 << 30)
    await driver.extend_volume(ONE, "vol-2", 1)
    for _ in range(2):
        await driver.detach_volume(ONE, "vol-2")
    await says(driver, ONE, "GUEST: disk vdb gone")

    counted = await driver.diagnostics(ONE)
    assert counted.state == "running"
    assert counted.nic_details[0].mac_address == a_vif(10).mac
    assert (counted.nic_details[0].tx_packets or 0) > 0
    assert (counted.cpu_details[0].time or 0) > 0
    assert counted.config_drive

    screen, serial = await driver.get_console(ONE, "novnc"), await driver.get_console(ONE, "serial")
    reader, writer = await asyncio.open_connection(screen.host, screen.port)
    assert (await reader.readexactly(4)) == b"RFB "
    writer.close()
    assert serial.port != screen.port
    await types(driver, "echo con$((40+2))", "con42")
    with pytest.raises(HostFailed, match="no such console"):
        await driver.get_console(ONE, "spice-direct")

    assert await driver.suspend(ONE) is PowerState.SUSPENDED
    assert await driver.guests() == {ONE: PowerState.SUSPENDED}
    assert await driver.resume(ONE) is PowerState.RUNNING
    await answers("10.77.5.10")
    assert (await driver.console_output(ONE, None)).count("GUEST: kernel") == 1, "it goes on, and does not boot"


async def test_a_guest_keeps_its_disk_and_shuts_down_gracefully(driver: LibvirtDriver) -> None:
    await driver.start_guest(a_spec(ONE))
    await says(driver, ONE, "GUEST: ready")
    assert await driver.power_off(ONE, PATIENCE_S) is PowerState.SHUTDOWN
    assert "GUEST: power button" in await driver.console_output(ONE, None)
    await driver.power_on(ONE)
    await says(driver, ONE, "GUEST: boot number 2")
    await says(driver, ONE, "GUEST: ready", 2)
    await driver.reboot(ONE, hard=False)
    await says(driver, ONE, "GUEST: boot number 3")
    assert (await driver.console_output(ONE, None)).count("GUEST: power button") == 2
    await driver.reboot(ONE, hard=True)
    await says(driver, ONE, "GUEST: boot number 4")


async def test_copies_of_its_disk(driver: LibvirtDriver, images: ImageFiles, room: Path) -> None:
    """Taken while it runs; a copy boots as an image; a cut in between costs nothing."""
    await driver.start_guest(a_spec(ONE))
    await says(driver, ONE, "GUEST: boot number 1")
    with pytest.raises(HostFailed) as cannot:
        await driver.take_snapshot(ONE, ImageId("copy"), Quiesce.MUST)
    assert cannot.value.code == "quiesce_failed"
    for _ in range(2):
        assert await driver.take_snapshot(ONE, ImageId("copy"), Quiesce.TRY) is PowerState.RUNNING
    above = room / "guests" / ONE / "d1" / disks.OVERLAY
    assert not above.exists()
    for _ in range(2):
        await driver.upload_snapshot(ONE, ImageId("copy"))
    sent = images.sent["copy"]
    assert "backing file" not in call("qemu-img", "info", "-f", "qcow2", str(sent.path))
    await driver.drop_snapshot(ONE, ImageId("copy"))

    # Whoever copied died while the guest writes above its disk: the next start of the agent brings it down.
    await driver._ask(ONE, _begin_a_copy(room))
    assert above.exists()
    await driver.close()
    await driver.start()
    assert not above.exists()
    assert await driver.guests() == {ONE: PowerState.RUNNING}
    # The same, and the guest is off when somebody looks.
    await driver._ask(ONE, _begin_a_copy(room))
    os.kill(qemu_of(ONE), signal.SIGKILL)
    await driver._when(ONE, {PowerState.SHUTDOWN, PowerState.CRASHED}, PATIENCE_S)
    assert await driver.power_on(ONE) is PowerState.RUNNING
    assert not above.exists()
    await driver.destroy_guest(ONE)

    images.files["copy"] = ImageFile(sent.path, "qcow2", "bare")
    await driver.start_guest(a_spec(TWO, image=ImageId("copy")))
    await says(driver, TWO, "GUEST: boot number 2")


def _begin_a_copy(room: Path) -> Callable[[Any], None]:
    place = room / "guests" / ONE / "d1"
    return partial(_write_above, disk=str(place / disks.ROOT), above=str(place / disks.OVERLAY))


async def test_rescue_and_rebuild(driver: LibvirtDriver) -> None:
    await driver.start_guest(a_spec(ONE))
    await says(driver, ONE, "GUEST: boot number 1")
    await says(driver, ONE, "GUEST: ready")
    drive = InstanceMetadata(ONE, name="web", hostname="rescued.local")
    for _ in range(2):
        assert await driver.rescue_guest(ONE, RescueSpec(DISK), drive) is PowerState.RUNNING
    said = await says(driver, ONE, "GUEST: ready rescued")
    assert said.count("GUEST: boot number 1") == 2, "the rescue disk is the first one, and new"
    await says(driver, ONE, "GUEST: disk vdb ")
    for _ in range(2):
        assert await driver.unrescue_guest(ONE, power_on=True) is PowerState.RUNNING
    await says(driver, ONE, "GUEST: boot number 2")
    assert await driver.rebuild_guest(a_spec(ONE), preserve_ephemeral=False) is PowerState.RUNNING
    said = await says(driver, ONE, "GUEST: boot number 1")
    assert said.count("GUEST: kernel") == 1, "its console begins anew too"


async def test_its_root_is_a_volume(driver: LibvirtDriver, tmp_path: Path) -> None:
    """It boots from that by itself, and has a second one from the start."""
    file = tmp_path / "root-volume"
    call("qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(guest_files()[DISK].path), str(file))
    root = VolumeDisk("root", {"driver_volume_type": "local", "device_path": str(file), "format": "raw"}, 0)
    both = (a_volume(tmp_path, "data"), root)
    await driver.start_guest(GuestSpec(ONE, "web", 1, RAM_MIB, ephemeral_gib=1, volumes=both))
    await says(driver, ONE, "GUEST: boot number 1")
    await says(driver, ONE, "GUEST: disk vdc 40960")
    assert "GUEST: disk vda 98304" in await says(driver, ONE, "GUEST: disk vda")
    assert oct((tmp_path / "host/guests" / ONE / "d1" / disks.EPHEMERALS[0]).stat().st_mode)[-2:] == "00"


async def test_another_size_and_back(driver: LibvirtDriver, room: Path) -> None:
    await driver.start_guest(a_spec(ONE))
    await says(driver, ONE, "GUEST: boot number 1")
    here = await driver.move_target()
    await driver.send_guest(ONE, here, "move", 0)
    larger = a_spec(ONE, root_gib=2)
    for _ in range(2):
        assert await driver.take_guest(larger, "move") is PowerState.SHUTDOWN
    await driver.power_on(ONE)
    await says(driver, ONE, f"GUEST: disk vda {2 << 21}")
    with pytest.raises(HostFailed, match="resize disk down"):
        await driver.take_guest(a_spec(ONE, root_gib=1), "other")
    for _ in range(2):
        assert await driver.return_guest(ONE, "move") is PowerState.SHUTDOWN
    assert generations(room) == ["d1"]
    await driver.take_guest(larger, "again")
    await driver.forget_left(ONE, "again")
    assert generations(room) == ["d2"]
    await driver.power_on(ONE)
    await says(driver, ONE, "GUEST: boot number 2")


async def test_to_another_host_of_this_machine(driver: LibvirtDriver, tmp_path: Path) -> None:
    other = a_driver(tmp_path / "other")
    await other.start()
    try:
        await driver.start_guest(a_spec(ONE))
        await says(driver, ONE, "GUEST: boot number 1")
        await driver.send_guest(ONE, await other.move_target(), "move", 0)
        assert await other.arrivals() == {ONE}
        await driver.destroy_guest(ONE)
        await other.take_guest(a_spec(ONE), "move")
        assert await other.arrivals() == frozenset()
        await other.power_on(ONE)
        await says(other, ONE, "GUEST: boot number 2")
        where = msgspec.structs.replace(await driver.move_target(), where="another-machine:/var")
        with pytest.raises(HostFailed) as far:
            await other.send_guest(ONE, where, "move", 0)
        assert far.value.code == "host_unreachable"
        await other.destroy_guest(ONE)
        assert leftovers(tmp_path / "other") == []
    finally:
        await other.close()


async def test_guests_of_others_are_left_alone(driver: LibvirtDriver, tmp_path: Path) -> None:
    """One that nobody marked, and one of another host with the same daemon."""
    xml = f"<domain type='qemu'><name>guest-{TWO}</name><uuid>{TWO}</uuid><memory>65536</memory><os><type>hvm</type></os></domain>"
    file = tmp_path / "foreign.xml"
    file.write_text(xml)
    call("virsh", "-q", "define", str(file))
    try:
        assert await driver.guests() == {}
        await driver.destroy_guest(TWO)
        with pytest.raises(HostFailed) as taken:
            await driver.start_guest(a_spec(TWO))
        assert taken.value.code == "guest_in_the_way"
        await driver.destroy_guest(TWO)
        assert TWO in call("virsh", "-q", "dominfo", TWO)
    finally:
        call("virsh", "-q", "undefine", TWO)


async def test_two_agents_of_one_directory(driver: LibvirtDriver, room: Path) -> None:
    with pytest.raises(Invalid, match="another agent runs"):
        await a_driver(room).start()
