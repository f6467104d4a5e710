"""Real guests: each test has a host of its own, and leaves nothing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.libvirt_host import ImageFiles, a_driver, guest_files
from xdist.scheduler import LoadScopeScheduling

from moorage.drivers.libvirt.driver import LibvirtDriver
from moorage_testing.hypervisor.leftovers import leftovers

LONG = (
    "neutron_ovs", "three_hosts", "up", "set", "killed", "live", "set_routes", "up_states", "firmware", "newcomer", "driver_real", "guest_cloud",
    "driver_failures", "driver_guests", "bandwidth",
)  # fmt: skip
"""Files with tests that take long, the longest first: a worker that has one of them at the end makes the others wait."""
TOGETHER = {
    "test_killed",
    "test_live",
    "test_live_states",
    "test_live_tls",
    "test_neutron_ovs",
    "test_processor_limits",
}
"""Files whose tests share what one worker has made for them. All others go, test by test, to the worker that is free."""
FIRST = {
    "bandwidth", "disks_real", "driver_failures", "driver_real", "filters", "guest_cloud", "guest_services", "host_input", "icmp_errors", "killed", "live",
    "neutron_ovs", "newcomer", "open_vswitch", "set", "three_hosts", "up",
}  # fmt: skip
"""Files of `make test-hypervisor`: what a driver must do, wires, and whole clouds. All others are in `make test-hypervisor-all`, too."""


def _scope(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return file if Path(file).stem in TOGETHER else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As `loadfile` for files of TOGETHER, and test by test for all others. pytest-xdist's own `loadgroup` knows no groups with pytest 9.2."""
    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = _scope
    return scheduler


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {f"test_{name}": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.stem, len(LONG)))
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.stem.removeprefix("test_") not in FIRST:
            item.add_marker("hypervisor_all")


@pytest.fixture(scope="session", autouse=True)
def searched(tmp_path_factory: pytest.TempPathFactory) -> None:
    """QEMU's user may search the directories above those of a trial set."""
    base = tmp_path_factory.getbasetemp()
    for each in (base, *base.parents[:-2]):
        each.chmod(0o711)


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
