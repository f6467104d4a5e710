"""QEMU under a user of its own, as Debian's package has it; all other tests run it as root."""

import asyncio
import os
import signal
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.helpers.libvirt_host import ImageFiles, a_driver, a_spec, a_volume, guest_files, says, types
from tests.helpers.real_guests import ONE

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage.main.private_data_dir import keep_private
from moorage.model.guest import PowerState, Quiesce
from moorage.model.ids import ImageId
from moorage_testing.hypervisor.machine import USER, start_daemon

pytestmark = pytest.mark.hypervisor
CONF = Path("/etc/libvirt/qemu.conf")
DEBIAN = f"""
user = "{USER}"
group = "{USER}"
dynamic_ownership = 1
security_driver = "none"
namespaces = []
cgroup_controllers = []
"""


_daemons: list[subprocess.Popen[bytes]] = []
"""Whoever started the first one stops the last one too."""


def restart(conf: str) -> None:
    CONF.write_text(conf)
    os.kill(int(Path("/run/libvirt/libvirtd.pid").read_text()), signal.SIGKILL)
    _daemons.append(start_daemon())


@pytest.fixture
def kvm(tmp_path: Path) -> Iterator[None]:
    """`/dev/kvm`, where there is one, is everybody's, as it is its group's on Debian.

    Where root alone may open it libvirt contradicts itself about it: its probe succeeds, the check of what it has probed does not, and it
    probes again for each call, for four seconds.
    """
    device = Path("/dev/kvm")
    if not device.exists():
        yield
        return
    own = tmp_path / "kvm"
    os.mknod(own, stat.S_IFCHR, device.stat().st_rdev)
    own.chmod(0o666)  # whatever the umask is
    subprocess.run(["mount", "--bind", str(own), str(device)], check=True)  # nobody outside sees it
    yield
    subprocess.run(["umount", str(device)], check=True)


@pytest.fixture
def debian(kvm: None) -> Iterator[None]:
    """A daemon that is told nothing more than that it is in a container, and whoever writes consoles' logs."""
    log = subprocess.Popen(["/usr/sbin/virtlogd"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    umask = os.umask(0o077)  # a role's
    before = CONF.read_text()
    restart(DEBIAN)
    yield
    os.umask(umask)
    restart(before)
    log.terminate()
    log.wait()


@pytest.fixture
def data(debian: None, tmp_path: Path) -> Path:
    """Below directories in which everybody may search."""
    for each in (tmp_path, *tmp_path.parents[:-2]):
        each.chmod(0o711)
    return tmp_path / "data"


@pytest.fixture
async def driver(data: Path, tmp_path: Path) -> AsyncIterator[LibvirtDriver]:
    keep_private(data)
    made = a_driver(data / "hosts" / "host", ImageFiles(guest_files(), tmp_path))
    await made.start()
    yield made
    await made.destroy_guest(ONE)
    await made.clean()
    await made.close()


def is_closed(data: Path) -> bool:
    """Whether another user cannot search there."""
    words = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "ls", str(data / "hosts")]
    return b"Permission denied" in subprocess.run(words, check=False, capture_output=True).stderr


async def test_a_guest_of_a_private_data_directory(driver: LibvirtDriver, data: Path) -> None:
    """It is started, copied, saved, and has a volume: QEMU reaches its files, and nobody else does."""
    assert await driver.start_guest(a_spec(ONE)) is PowerState.RUNNING
    await says(driver, ONE, "GUEST: ready")
    await types(driver, ONE, "echo -n old | dd of=/dev/vda bs=512 seek=100 conv=fsync; echo don$((40+1))", "don41")
    await driver.take_snapshot(ONE, ImageId("image"), Quiesce.NO)
    volumes = data / "volumes"
    volumes.mkdir(mode=0o700)
    await driver.attach_volume(ONE, a_volume(volumes, "one"))
    await driver.detach_volume(ONE, "one")
    assert await driver.suspend(ONE) is PowerState.SUSPENDED
    keep_private(data)  # another role begins
    assert await driver.resume(ONE) is PowerState.RUNNING
    assert await driver.reboot(ONE, hard=True) is PowerState.RUNNING
    await says(driver, ONE, "GUEST: ready", times=2)
    assert await asyncio.to_thread(is_closed, data)
