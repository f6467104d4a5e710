"""Which devices the libvirt driver gives a running guest, and takes out of it; no hypervisor is needed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.helpers.told_domain import ONE, ToldDriver, told_driver

from moorage.model.errors import HostFailed
from moorage.model.guest import PowerState, VolumeDisk

SCSI = {"hw_disk_bus": "scsi", "hw_machine_type": "q35"}
"""Its config drive is a CD-ROM on SATA, whose names begin as SCSI's do."""


@pytest.fixture
async def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ToldDriver]:
    made = told_driver(tmp_path / "host", monkeypatch, image_properties=SCSI)
    made.domain.live = {"sda": "/disk", "sdb": "/disk.config"}
    yield made
    made._records.close()


@pytest.fixture
def volume(tmp_path: Path) -> VolumeDisk:
    (tmp_path / "volume").touch()
    return VolumeDisk("v", {"driver_volume_type": "local", "device_path": str(tmp_path / "volume"), "format": "raw"})


def attached(driver: ToldDriver) -> list[str]:
    return [each.volume for each in driver._records.of(ONE).spec.volumes]


async def test_a_volume_does_not_take_the_place_of_a_config_drive(driver: ToldDriver, volume: VolumeDisk) -> None:
    """It was taken for attached, since the guest had a disk of that name; and a detach took the config drive out."""
    await driver.attach_volume(ONE, volume)
    file = volume.connection["device_path"]
    assert driver.domain.live == {"sda": "/disk", "sdb": "/disk.config", "sdc": file}
    await driver.attach_volume(ONE, volume)
    assert driver.domain.asked == ["attach"]
    await driver.detach_volume(ONE, "v")
    assert driver.domain.live == {"sda": "/disk", "sdb": "/disk.config"}


async def test_a_disk_of_the_name_that_is_another_one_is_not_taken_for_it(
    driver: ToldDriver, volume: VolumeDisk
) -> None:
    await driver.attach_volume(ONE, volume)
    driver.domain.live["sdc"] = "/another"
    with pytest.raises(HostFailed, match="another disk of this name"):
        await driver.attach_volume(ONE, volume)


@pytest.mark.parametrize(
    ("code", "kept"), [("hypervisor_slow", ["v"]), ("hypervisor_out", ["v"]), ("guest_failed", [])]
)
async def test_a_volume_that_may_have_come_is_found_by_a_detach(
    driver: ToldDriver, volume: VolumeDisk, code: str, kept: list[str]
) -> None:
    """libvirt had attached it, and its answer was lost: what is not detached would be another guest's volume as well."""
    driver.domain.fails["attach"] = HostFailed("no answer", code=code)
    with pytest.raises(HostFailed):
        await driver.attach_volume(ONE, volume)
    assert attached(driver) == kept
    if kept:
        await driver.detach_volume(ONE, "v")
        assert attached(driver) == []
        assert driver.domain.live == {"sda": "/disk", "sdb": "/disk.config"}


async def test_a_saved_guest_keeps_its_volumes(driver: ToldDriver, volume: VolumeDisk) -> None:
    """It was saved with them, and goes on with them."""
    await driver.attach_volume(ONE, volume)
    driver.domain.power = PowerState.SUSPENDED
    for work in (driver.detach_volume(ONE, "v"), driver.attach_volume(ONE, volume)):
        with pytest.raises(HostFailed) as refused:
            await work
        assert refused.value.code == "guest_not_running"
    assert attached(driver) == ["v"]
    await driver.detach_volume(ONE, "not here")


async def test_a_detach_waits_for_an_attach_that_was_given_up(
    driver: ToldDriver, volume: VolumeDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await driver.attach_volume(ONE, volume)
    del driver.domain.live["sdc"]

    async def it_comes(server: str, limit_s: float = 0.0) -> None:
        driver.domain.live["sdc"] = volume.connection["device_path"]

    monkeypatch.setattr(driver._link, "until_over", it_comes)
    await driver.detach_volume(ONE, "v")
    assert driver.domain.asked == ["attach", "detach"]


@pytest.mark.parametrize("inside", [True, False])
async def test_an_encrypted_volume_is_no_plain_disk(driver: ToldDriver, volume: VolumeDisk, inside: bool) -> None:
    """The guest would write over the header of the encryption."""
    data = {**volume.connection, "encrypted": True}
    connection = {"driver_volume_type": "local", "data": data} if inside else data
    with pytest.raises(HostFailed, match="cannot decrypt") as refused:
        await driver.attach_volume(ONE, VolumeDisk("v", connection))
    assert refused.value.code == "volume_unreachable"
    assert "attach" not in driver.domain.asked
    assert attached(driver) == []
