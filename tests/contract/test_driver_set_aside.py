"""What the libvirt driver does while it cannot read a guest's record: nothing that could cost the guest's data."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.helpers.told_domain import ONE, ToldDriver, told_driver

from moorage.drivers.libvirt.records import GuestDirectory
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec
from moorage.model.ids import ServerId

TWO = ServerId("22222222-0000-4000-8000-000000000000")


@pytest.fixture
async def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ToldDriver]:
    """With a guest whose record cannot be read, and an image that its disk may be over."""
    disk = tmp_path / "host" / "guests" / TWO / "d1" / "disk"
    disk.parent.mkdir(parents=True)
    disk.write_bytes(b"data")
    (disk.parents[1] / "guest.json").write_text("{")
    image = tmp_path / "host" / "images" / "image.raw"
    image.parent.mkdir()
    image.touch()
    made = told_driver(tmp_path / "host", monkeypatch)
    made._images._unused_s = -1.0
    assert made._records.set_aside == (TWO,)
    yield made
    made._records.close()


async def test_a_guest_that_is_set_aside_is_neither_made_anew_nor_absent(driver: ToldDriver, tmp_path: Path) -> None:
    """A start would replace its disk; and what is absent may be given to others: its volumes, and its place."""
    spec = GuestSpec(TWO, "web", 1, 512, 1)
    for work in (
        driver.start_guest(spec),
        driver.rebuild_guest(spec, preserve_ephemeral=False),
        driver.take_guest(spec, "move"),
        driver.prepare_live(spec, "move"),
        driver.detach_volume(TWO, "volume"),
        driver.power_off(TWO, 0.0),
    ):
        with pytest.raises(HostFailed) as refused:
            await work
        assert refused.value.code == "record_unreadable"
    assert (tmp_path / "host" / "guests" / TWO / "d1" / "disk").read_bytes() == b"data"


async def test_no_image_goes_while_a_guest_is_set_aside(driver: ToldDriver, tmp_path: Path) -> None:
    await driver._prune_images()
    image = tmp_path / "host" / "images" / "image.raw"
    assert image.exists(), "a disk of which nobody knows may be over it"
    driver._records.forget(TWO)
    assert driver._records.set_aside == ()
    await driver._prune_images()
    assert not image.exists()


def test_disks_without_a_record_are_set_aside(tmp_path: Path) -> None:
    """A record is written before a disk is made, so somebody lost it; and what is no guest's is nobody's to remove."""
    (tmp_path / "guests" / TWO / "d1").mkdir(parents=True)
    (tmp_path / "guests" / ONE).mkdir()
    (tmp_path / "guests" / "a file").touch()
    records = GuestDirectory(tmp_path)
    records.open()
    assert records.set_aside == (TWO,)
    assert (tmp_path / "guests" / TWO / "d1").exists()
    assert not (tmp_path / "guests" / ONE).exists()
    records.close()
