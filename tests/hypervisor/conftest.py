"""Real guests: each test has a host of its own, and leaves nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.helpers.libvirt_host import ImageFiles, a_driver, guest_files

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage_testing.hypervisor.leftovers import leftovers


@pytest.fixture
def images(tmp_path: Path) -> ImageFiles:
    return ImageFiles(guest_files(), tmp_path)


@pytest.fixture
def room(tmp_path: Path) -> Path:
    return tmp_path / "host"


@pytest.fixture
async def driver(room: Path, images: ImageFiles) -> AsyncIterator[LibvirtDriver]:
    made = a_driver(room, images, dhcp=True)
    await made.start()
    yield made
    for server in {*await made.guests(), *await made.arrivals()}:
        await made.destroy_guest(server)
    await made.clean()
    assert leftovers(room) == []
    await made.close()
