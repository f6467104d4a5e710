"""The real agent of QEMU in a real guest: passwords, and file systems that are still while they are copied, and never longer."""

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from tests.helpers.libvirt_host import (
    AGENT_RAMDISK,
    COMMAND_LINE,
    ImageFiles,
    a_driver,
    a_spec,
    says,
    types,
)

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.drivers.libvirt.records import GuestRecord
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, PowerState, Quiesce
from moorage.model.ids import ImageId, ServerId
from moorage_testing.waiting import PATIENCE_S

pytestmark = pytest.mark.hypervisor

ONE = ServerId("aaaaaaaa-0000-4000-8000-000000000001")
WITH_AGENT = {"os_command_line": COMMAND_LINE, "hw_qemu_guest_agent": "yes"}
REPOSITORY = Path(__file__).parents[2]
KILLED = """
import asyncio, sys
from pathlib import Path
from tests.helpers.libvirt_host import a_driver
from moorage.model.ids import ServerId

async def main():
    driver = a_driver(Path(sys.argv[1]), dhcp=True)
    await driver.start()
    await driver.freeze_guest(ServerId(sys.argv[2]), "killed", float(sys.argv[3]))
    print("still", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def with_agent(**properties: str) -> GuestSpec:
    return a_spec(ONE, ramdisk=AGENT_RAMDISK, image_properties=WITH_AGENT | properties)


async def until_agent(driver: LibvirtDriver) -> None:
    """Until the agent in the guest answers."""
    ends = time.monotonic() + PATIENCE_S
    while not await is_answered(driver):
        assert time.monotonic() < ends
        await asyncio.sleep(0.3)
    await says(driver, ONE, "GUEST: ready")


async def is_answered(driver: LibvirtDriver) -> bool:
    try:
        await driver.set_admin_password(ONE, "first")
    except HostFailed as failure:
        if failure.code != "no_guest_agent":
            raise
        return False
    return True


def a_write(number: int) -> str:
    """A line for the guest: it writes to its disk beside what it says."""
    return f"(echo x >/mnt/disk/x; sync; echo wro$((0+{number}))te) & echo beg$((0+{number}))un"


async def test_a_password(driver: LibvirtDriver) -> None:
    await driver.start_guest(with_agent(os_admin_user="root"))
    with pytest.raises(HostFailed) as early:
        await driver.set_admin_password(ONE, "early")
    assert early.value.code == "no_guest_agent"
    await until_agent(driver)
    await driver.set_admin_password(ONE, 'it\'s a "secret"')
    await types(driver, ONE, "tail -n 1 /etc/shadow", "root:" + hashlib.sha256(b'it\'s a "secret"').hexdigest())


async def test_nobody_is_asked_who_is_not_there(driver: LibvirtDriver) -> None:
    """No channel, or a channel and no agent behind it; a copy that need not be still is made."""
    await driver.start_guest(a_spec(ONE))
    for refused in (driver.set_admin_password(ONE, "x"), driver.freeze_guest(ONE, "why", 60)):
        with pytest.raises(HostFailed) as without:
            await refused
        assert without.value.code == "no_guest_agent"
    await driver.destroy_guest(ONE)
    await driver.start_guest(a_spec(ONE, image_properties=WITH_AGENT))
    await says(driver, ONE, "GUEST: ready")
    with pytest.raises(HostFailed) as silent:
        await driver.freeze_guest(ONE, "why", 60)
    assert silent.value.code == "quiesce_failed"
    with pytest.raises(HostFailed) as silent:
        await driver.take_snapshot(ONE, ImageId("copy"), Quiesce.MUST)
    assert silent.value.code == "quiesce_failed"
    assert await driver.take_snapshot(ONE, ImageId("copy"), Quiesce.TRY) is PowerState.RUNNING


@pytest.mark.hypervisor_ci
async def test_a_still_copy(driver: LibvirtDriver, images: ImageFiles) -> None:
    await driver.start_guest(with_agent())
    await until_agent(driver)
    for number, must in enumerate((Quiesce.MUST, Quiesce.TRY)):
        await driver.take_snapshot(ONE, ImageId(f"copy{number}"), must)
        await types(driver, ONE, a_write(100 + number), f"wro{100 + number}te")
    await driver.upload_snapshot(ONE, ImageId("copy1"))
    await driver.take_snapshot(ONE, ImageId("rough"), Quiesce.NO)
    await driver.upload_snapshot(ONE, ImageId("rough"))
    assert [await asyncio.to_thread(needs_recovery, images.sent[each].path) for each in ("copy1", "rough")] == [
        False,
        True,
    ]


def needs_recovery(copy: Path) -> bool:
    """Whether the journal of its ext4 has what is not in its place yet: a flag of the superblock, which a mounted one has unless it is still."""
    raw = copy.with_name(f"{copy.name}.raw")
    subprocess.run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", str(copy), str(raw)], check=True)
    with raw.open("rb") as disk:
        disk.seek(2048 * 512 + 1024 + 0x60)
        return bool(int.from_bytes(disk.read(4), "little") & 0x4)


async def test_still_until_it_is_let_go(driver: LibvirtDriver) -> None:
    await driver.start_guest(with_agent())
    await until_agent(driver)
    for _ in range(2):
        await driver.freeze_guest(ONE, "one", PATIENCE_S)
    assert "wro200te" not in await types(driver, ONE, a_write(200), "beg200un")
    with pytest.raises(HostFailed) as other:
        await driver.freeze_guest(ONE, "other", PATIENCE_S)
    assert other.value.code == "already_frozen"
    with pytest.raises(HostFailed) as other:
        await driver.thaw_guest(ONE, "other")
    assert other.value.code == "not_frozen"
    for _ in range(2):
        await driver.thaw_guest(ONE, "one")
    await says(driver, ONE, "wro200te")
    with pytest.raises(HostFailed) as late:
        await driver.freeze_guest(ONE, "one", PATIENCE_S)
    assert late.value.code == "not_frozen"
    await driver.freeze_guest(ONE, "short", 1)
    await types(driver, ONE, a_write(201), "wro201te")
    with pytest.raises(HostFailed) as over:
        await driver.thaw_guest(ONE, "short")
    assert over.value.code == "not_frozen"
    # Its time is over while it is saved, and nobody can thaw it then.
    await driver.freeze_guest(ONE, "saved", 1)
    await driver.suspend(ONE)
    await driver.resume(ONE)
    await types(driver, ONE, a_write(202), "wro202te")


@pytest.mark.parametrize("comes_back", [False, True])
async def test_it_writes_again_though_the_agent_of_its_host_was_killed(
    room: Path, images: ImageFiles, *, comes_back: bool
) -> None:
    """Without a new agent a process of its own sees to it, and where that was killed too, the next agent."""
    driver = a_driver(room, images, dhcp=True)
    await driver.start()
    await driver.start_guest(with_agent())
    await until_agent(driver)
    console = await driver.get_console(ONE, "serial")
    await driver.close()
    words = (sys.executable, "-c", KILLED, str(room), ONE, str(PATIENCE_S if comes_back else 8))
    agent = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE, cwd=REPOSITORY)
    assert agent.stdout is not None
    assert await agent.stdout.readline() == b"still\n"
    agent.send_signal(signal.SIGKILL)
    await agent.wait()
    reader, writer = await asyncio.open_connection(console.host, console.port)
    writer.write(f"\n{a_write(300)}\n".encode())
    async with asyncio.timeout(PATIENCE_S):
        assert b"wro300te" not in await reader.readuntil(b"beg300un")
        if comes_back:
            end_the_thawing(room)
            await driver.start()
        await reader.readuntil(b"wro300te")
    writer.close()
    if not comes_back:
        await driver.start()
    await driver.destroy_guest(ONE)
    await driver.clean()
    await driver.close()


def end_the_thawing(room: Path) -> None:
    """As if the machine's processes but the guest had been killed too, and the time were over when the agent is back."""
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        if b"moorage.drivers.libvirt.thawing" in (words := each.read_bytes().split(b"\0")) and ONE.encode() in words:
            os.kill(int(each.parent.name), signal.SIGKILL)
    file = room / "guests" / ONE / "guest.json"
    record = msgspec.json.decode(file.read_bytes(), type=GuestRecord)
    record.frozen_until = 0.0
    file.write_bytes(msgspec.json.encode(record))


async def test_a_guest_whose_agent_hangs_is_switched_off(driver: LibvirtDriver) -> None:
    """libvirt waits for a minute for its answer to the request to shut down."""
    await driver.start_guest(with_agent())
    await until_agent(driver)
    await types(driver, ONE, "kill -STOP $(pidof qemu-ga); echo sto$((0+1))ped", "sto1ped")
    assert await driver.power_off(ONE, 1.0) is PowerState.SHUTDOWN
