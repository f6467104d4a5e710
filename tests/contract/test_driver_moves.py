"""Which disks a guest has after a move; no hypervisor is needed."""

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.helpers.told_domain import ONE, ToldDriver, told_driver

from moorage.drivers.libvirt import disks
from moorage.drivers.libvirt.host_facts import MachineFacts
from moorage.drivers.libvirt.records import GuestRecord
from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState

MIB = 1 << 20


@pytest.fixture
async def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ToldDriver]:
    """Its guest has an old disk here, and a new one has arrived from another host."""
    made = told_driver(tmp_path / "host", monkeypatch, root_gib=0)
    record = made._records.of(ONE)
    (made._records.place(record) / disks.ROOT).write_bytes(b"old")
    made.begin_arrival(ONE, "move")
    image("create", "-q", "-f", "qcow2", str(made.arriving_file(ONE, "move", disks.ROOT)), "1M")
    made.end_arrival(ONE, "move", record)
    yield made
    made._records.close()


def image(*words: str) -> None:
    subprocess.run(("qemu-img", *words), check=True)


def root_of(driver: ToldDriver) -> bytes:
    return (driver._records.place(driver._records.of(ONE)) / disks.ROOT).read_bytes()


async def test_what_arrived_is_not_mixed_up_with_an_earlier_guest(driver: ToldDriver) -> None:
    """It was resized from its old disk, and what had been sent was removed: all that was written elsewhere was lost."""
    spec = driver._records.of(ONE).spec
    with pytest.raises(HostFailed) as refused:
        await driver.take_guest(spec, "move")
    assert refused.value.code == "guest_in_the_way"
    assert root_of(driver) == b"old"
    assert driver.arriving_file(ONE, "move", disks.ROOT).exists()


async def test_what_a_guest_left_that_departed_makes_way(driver: ToldDriver) -> None:
    record = driver._records.of(ONE)
    driver._records.keep(msgspec.structs.replace(record, departed=True))
    driver.domain.power = PowerState.SHUTDOWN
    for _ in range(2):
        assert await driver.take_guest(record.spec, "move") is PowerState.SHUTDOWN
        assert root_of(driver).startswith(b"QFI")


async def test_a_guest_of_an_earlier_release_moves_with_what_it_never_had(driver: ToldDriver) -> None:
    driver._machine = MachineFacts("x86_64", "/usr/bin/qemu", "qemu", (), {}, 7_002_000)
    record, asks = driver._records.of(ONE), {"hw_sound_model": "virtio", "hw_not_known": "1"}
    running = msgspec.structs.replace(record.spec, image_properties=asks, existed=True)
    with pytest.raises(HostFailed, match="virtio"):
        await driver.rebuild_guest(running, preserve_ephemeral=False)
    assert (driver.domain.power, root_of(driver)) == (PowerState.RUNNING, b"old"), "another image is refused first"
    driver._records.keep(msgspec.structs.replace(record, spec=running))
    driver._drop_arriving(ONE)
    other = msgspec.structs.replace(running, extra_specs={"hw:pmu": "true"})
    with pytest.raises(HostFailed, match="virtio"):
        await driver.take_guest(other, "another flavor")
    assert await driver.take_guest(running, "same flavor") is PowerState.SHUTDOWN


async def test_a_disk_that_names_a_file_of_this_host_is_not_taken(driver: ToldDriver, tmp_path: Path) -> None:
    """Whoever has another host could read what is on this one, by a guest of his."""
    record = driver._records.of(ONE)
    driver._records.keep(msgspec.structs.replace(record, departed=True))
    secret = in_file(tmp_path / "secret", b"secret", MIB)
    arrived = str(driver.arriving_file(ONE, "move", disks.ROOT))
    image("create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(secret), arrived)
    with pytest.raises(HostFailed) as refused:
        await driver.take_guest(record.spec, "move")
    assert refused.value.code == "garbled"
    assert driver._records.find(ONE) is None


async def test_a_copy_has_the_holes_of_its_original(tmp_path: Path) -> None:
    """A guest gives back what it does not use: a resize would take it again, and a large disk as long as it is large."""
    disk = in_file(tmp_path / "disk", b"data", 64 * MIB)
    await disks.copy_file(disk, tmp_path / "copy")
    found = os.stat(tmp_path / "copy")
    assert (found.st_size, found.st_mode & 0o777) == (64 * MIB, 0o600)
    assert found.st_blocks * 512 < MIB
    assert content_of(tmp_path / "copy").startswith(b"data\0")
    with pytest.raises(HostFailed):
        await disks.copy_file(tmp_path / "missing", tmp_path / "copy")
    assert sorted(os.listdir(tmp_path)) == ["copy", "disk"]


def in_file(file: Path, data: bytes, size: int) -> Path:
    file.write_bytes(data)
    os.truncate(file, size)
    return file


def content_of(file: Path) -> bytes:
    return file.read_bytes()


def test_the_record_of_a_guest_is_its_owners(driver: ToldDriver) -> None:
    """It may have the key of the host to which the guest goes."""
    driver._records.keep(GuestRecord(driver._records.of(ONE).spec))
    assert os.stat(driver._records.directory(ONE) / "guest.json").st_mode & 0o777 == 0o600
