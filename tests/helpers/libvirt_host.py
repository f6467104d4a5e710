"""A real host for tests: the libvirt driver in a directory, with images that are files."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.drivers.libvirt.settings import Libvirt
from moorage.model.clock import SystemClock
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, VolumeDisk
from moorage.model.ids import ImageId, ServerId
from moorage.model.image import ImageFile
from moorage_testing.waiting import PATIENCE_S

KERNEL, RAMDISK, DISK = ImageId("kernel"), ImageId("ramdisk"), ImageId("disk")
AGENT_RAMDISK, UEFI_DISK = ImageId("agent-ramdisk"), ImageId("uefi-disk")
"""A ramdisk with QEMU's guest agent, and a disk that boots by UEFI, also with Secure Boot."""
COMMAND_LINE = "console=tty0 console=ttyS0 quiet no_timer_check panic=5 mitigations=off nokaslr cryptomgr.notests=1"
"""An emulated processor is spared what makes a real one safe, and what kernels test of themselves."""
RAM_MIB = 128
VARIABLE = "/sys/firmware/efi/efivars/Moorage-5ec4c0a7-3e2f-4f0a-9a3e-6d6f6f726167"
KEEP = f"printf '\\007\\000\\000\\000here' >{VARIABLE}; sync; echo ke$((0+1))pt"
READ = f"tail -c 4 {VARIABLE}; echo ' re'$((0+1))ad"
"""Lines for a guest that boots by UEFI: it keeps a variable in its firmware, and reads it."""


class ImageFiles:
    """An image service that is a directory."""

    def __init__(self, files: dict[str, ImageFile], kept: Path) -> None:
        self.files, self._kept = files, kept
        self.sent: dict[str, ImageFile] = {}
        self.fetched: list[str] = []

    async def fetch(self, image: ImageId) -> ImageFile:
        self.fetched.append(image)
        try:
            return self.files[image]
        except KeyError as absent:
            raise HostFailed("no such image", private=image, code="image_not_found") from absent

    async def send(self, image: ImageId, data: ImageFile) -> None:
        kept = self._kept / f"sent-{image}"
        os.link(data.path, kept)
        self.sent[image] = ImageFile(kept, data.disk_format, data.container_format)


def guest_files() -> dict[str, ImageFile]:
    where = os.environ.get("MOORAGE_TEST_GUEST")
    if not where:
        pytest.skip("real guests are for `make test-hypervisor`")
    made = Path(where)
    return {
        KERNEL: ImageFile(made / "vmlinuz", "aki", "aki"),
        RAMDISK: ImageFile(made / "initrd.img", "ari", "ari"),
        DISK: ImageFile(made / "guest.qcow2", "qcow2", "bare"),
        AGENT_RAMDISK: ImageFile(made / "initrd-agent.img", "ari", "ari"),
        UEFI_DISK: ImageFile(made / "guest-uefi.qcow2", "qcow2", "bare"),
    }


def a_spec(server: ServerId, **changes: object) -> GuestSpec:
    """Boots a kernel directly, which is quicker than through a disk's loader."""
    properties = {"os_command_line": COMMAND_LINE}
    made = GuestSpec(
        server, "web", 1, RAM_MIB, 1, image=DISK, kernel=KERNEL, ramdisk=RAMDISK, image_properties=properties
    )
    return msgspec.structs.replace(made, **changes)


def a_driver(room: Path, images: ImageFiles | None = None, **settings: object) -> LibvirtDriver:
    told = msgspec.structs.replace(Libvirt(soft_reboot_s=15.0), **settings)
    files = images or ImageFiles(guest_files(), room.parent)
    wires = ("physnet1",)
    return LibvirtDriver(room, told, SystemClock(), hostname=room.name, images=files, physical_networks=wires)


async def says(driver: LibvirtDriver, server: ServerId, words: str, times: int = 1) -> str:
    """Until the guest has said that on its console so often; all of it."""
    clock = SystemClock()
    ends = clock.monotonic() + PATIENCE_S
    while (said := await driver.console_output(server, None)).count(words) < times:
        assert clock.monotonic() < ends, said
        await clock.sleep(0.2)
    return said


async def types(driver: LibvirtDriver, server: ServerId, line: str, answer: str) -> str:
    """Into the guest's serial console, until it answers so; all that it answers until then."""
    serial = await driver.get_console(server, "serial")
    reader, writer = await asyncio.open_connection(serial.host, serial.port)
    writer.write(f"\n{line}\n".encode())
    said = b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while answer.encode() not in said:
                said += await reader.readexactly(1)
    except TimeoutError as silent:
        raise AssertionError(f"no {answer!r} after {line!r}: {said!r}") from silent
    finally:
        writer.close()
    return said.decode(errors="replace")


def a_volume(room: Path, name: str, mib: int = 20) -> VolumeDisk:
    file = room / f"volume-{name}"
    file.touch()
    os.truncate(file, mib << 20)
    return VolumeDisk(name, {"driver_volume_type": "local", "device_path": str(file), "format": "raw"})


Made = tuple[LibvirtDriver, GuestSpec, Callable[[str], VolumeDisk], Callable[[], Awaitable[None]]]


def libvirt_ground(tmp_path: Path, first: ServerId) -> Made:
    driver = a_driver(tmp_path / "host")

    async def boots() -> None:
        await says(driver, first, "GUEST: ready")

    return driver, a_spec(first), partial(a_volume, tmp_path), boots
