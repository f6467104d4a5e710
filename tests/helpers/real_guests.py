"""What the tests of real guests of the libvirt driver share."""

import asyncio
import subprocess
import time
from pathlib import Path

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.model.guest import VifAddress, VifData
from moorage.model.ids import NetworkId, PortId, ServerId, SubnetId
from moorage_testing.hypervisor.guests import bridge_to
from tests.helpers.libvirt_host import (
    PATIENCE_S,
)

ONE, TWO = ServerId("aaaaaaaa-0000-4000-8000-000000000001"), ServerId("aaaaaaaa-0000-4000-8000-000000000002")
NETWORK = NetworkId("bbbbbbbb-0000-4000-8000-000000000000")


def a_vif(last: int) -> VifData:
    address = VifAddress(f"10.77.5.{last}", SubnetId("s"), "10.77.5.0/24", "10.77.5.1")
    return VifData(
        PortId(f"{last:08x}-0000"), NETWORK, f"fa:16:3e:77:05:{last:02x}", "bridge", mtu=1450, addresses=(address,)
    )


async def answers(address: str) -> None:
    ends = time.monotonic() + PATIENCE_S
    while await ping(address):
        assert time.monotonic() < ends, f"no answer of {address}"


async def ping(address: str) -> int:
    words = ("ping", "-c1", "-W1", *bridge_to(address), address)
    return await (await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.DEVNULL)).wait()


def qemu_of(server: ServerId) -> int:
    return int(Path(f"/run/libvirt/qemu/guest-{server}.pid").read_text())


def call(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


async def types(driver: LibvirtDriver, line: str, answer: str) -> None:
    """Into the guest's serial console, until it answers so."""
    serial = await driver.get_console(ONE, "serial")
    reader, writer = await asyncio.open_connection(serial.host, serial.port)
    writer.write(f"\n{line}\n".encode())
    async with asyncio.timeout(PATIENCE_S):
        await reader.readuntil(answer.encode())
    writer.close()
