"""What the libvirt driver does with copies of disks whose end it did not see; no hypervisor is needed."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.helpers.told_domain import ONE, ToldDriver, told_driver

from moorage.drivers.libvirt import disks
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState, Quiesce, VolumeDisk
from moorage.model.ids import ImageId

OLD, NEW = b"\x11" * 4096, b"\x22" * 4096


@pytest.fixture
async def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ToldDriver]:
    made = told_driver(tmp_path / "host", monkeypatch)
    yield made
    made._records.close()


def image(*words: str) -> str:
    return subprocess.run(("qemu-img", *words), check=True, capture_output=True, text=True).stdout


def write(file: Path, content: bytes, room: Path) -> None:
    """The whole of a disk of 4096 bytes."""
    raw = room / "raw"
    raw.write_bytes(content)
    image("convert", "-n", "-f", "raw", "-O", "qcow2", str(raw), str(file))


def read(file: Path, room: Path) -> bytes:
    image("convert", "-f", "qcow2", "-O", "raw", str(file), str(room / "read"))
    return (room / "read").read_bytes()


@pytest.fixture
def chain(driver: ToldDriver, tmp_path: Path) -> tuple[Path, Path]:
    """A disk with new data, and an overlay that still has old ones."""
    place = driver._records.place(driver._records.of(ONE))
    disk, above = place / disks.ROOT, place / disks.OVERLAY
    image("create", "-q", "-f", "qcow2", str(disk), "4096")
    image("create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", str(disk), str(above))
    write(above, OLD, tmp_path)
    write(disk, NEW, tmp_path)
    return disk, above


async def test_an_overlay_that_the_guest_has_left_is_not_merged_over_newer_data(
    driver: ToldDriver, chain: tuple[Path, Path], tmp_path: Path
) -> None:
    """The guest was switched back to its disk; then the agent was killed before it removed the overlay, and the guest ended."""
    disk, above = chain
    driver.domain.power, driver.domain.kept = PowerState.SHUTDOWN, {"vda": str(disk)}
    await driver._settle_overlay(driver._records.of(ONE))
    assert read(disk, tmp_path) == NEW
    assert not above.exists()


async def test_an_overlay_that_the_guest_wrote_to_last_is_merged(
    driver: ToldDriver, chain: tuple[Path, Path], tmp_path: Path
) -> None:
    disk, above = chain
    driver.domain.power, driver.domain.kept = PowerState.SHUTDOWN, {"vda": str(above)}
    await driver._settle_overlay(driver._records.of(ONE))
    assert read(disk, tmp_path) == OLD
    assert not above.exists()


async def test_a_saved_guest_keeps_its_overlay_which_is_copied(
    driver: ToldDriver, chain: tuple[Path, Path], tmp_path: Path
) -> None:
    above = chain[1]
    driver.domain.power, driver.domain.kept = PowerState.SUSPENDED, {"vda": str(above)}
    await driver.take_snapshot(ONE, ImageId("image"), Quiesce.NO)
    assert above.exists(), "its saved state names it"
    assert read(driver._copy_of(ONE), tmp_path) == OLD


async def test_a_guest_is_saved_without_an_overlay(driver: ToldDriver, chain: tuple[Path, Path]) -> None:
    driver.domain.live = {"vda": str(chain[1])}
    assert await driver.suspend(ONE) is PowerState.SUSPENDED
    assert driver.domain.asked == ["commit", "pivot", "save"]
    assert not chain[1].exists()


async def test_a_commit_that_fails_is_not_waited_for(
    driver: ToldDriver, chain: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job is gone, for instance since the host's disk is full; the guest goes on with both files."""
    driver.domain.live = {"vda": str(chain[1])}
    monkeypatch.setattr(driver.domain, "blockCommit", lambda *_: None)
    async with asyncio.timeout(60):
        with pytest.raises(HostFailed, match="copy of the guest's disk failed"):
            await driver._settle_overlay(driver._records.of(ONE))
    assert chain[1].exists()


def volume(room: Path, name: str, content: bytes) -> VolumeDisk:
    (room / name).write_bytes(content)
    return VolumeDisk(name, {"driver_volume_type": "local", "device_path": str(room / name), "format": "raw"})


@pytest.fixture
async def swapped(driver: ToldDriver, tmp_path: Path) -> VolumeDisk:
    """The volume that is to come in the place of `old`, which is attached."""
    await driver.attach_volume(ONE, volume(tmp_path, "old", OLD))
    driver.domain.asked.clear()
    return volume(tmp_path, "new", NEW)


async def test_a_volume_that_was_switched_before_a_kill_is_not_overwritten(
    driver: ToldDriver, swapped: VolumeDisk, tmp_path: Path
) -> None:
    """The guest had the new volume already, wrote to it, and ended before the command came again."""
    driver.domain.power, driver.domain.kept = PowerState.SHUTDOWN, {"vdb": str(tmp_path / "new")}
    await driver.swap_volume(ONE, "old", swapped)
    assert (tmp_path / "new").read_bytes() == NEW
    assert [each.volume for each in driver._records.of(ONE).spec.volumes] == ["new"]


async def test_a_volume_of_a_guest_that_is_off_is_copied(
    driver: ToldDriver, swapped: VolumeDisk, tmp_path: Path
) -> None:
    driver.domain.power, driver.domain.kept = PowerState.SHUTDOWN, {"vdb": str(tmp_path / "old")}
    await driver.swap_volume(ONE, "old", swapped)
    assert (tmp_path / "new").read_bytes() == OLD


async def test_a_swap_that_is_given_up_ends_its_copy(driver: ToldDriver, swapped: VolumeDisk) -> None:
    """Otherwise the guest's data would go on into a volume that is somebody else's by then."""
    begun = driver.domain.events["copy"]
    task = asyncio.create_task(driver.swap_volume(ONE, "old", swapped))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert driver.domain.asked == ["copy", "abort"]
    assert [each.volume for each in driver._records.of(ONE).spec.volumes] == ["old"]


async def test_a_swap_whose_copy_fails_is_over(
    driver: ToldDriver, swapped: VolumeDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver.domain, "blockCopy", lambda *_: None)
    async with asyncio.timeout(60):
        with pytest.raises(HostFailed, match="copy of the guest's disk failed"):
            await driver.swap_volume(ONE, "old", swapped)
