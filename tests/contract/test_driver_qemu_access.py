"""Where QEMU runs under a user of its own: who may search which directories."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from moorage.drivers.libvirt.qemu_access import QemuAccess, directories_of, qemu_user
from moorage.drivers.libvirt.records import GuestRecord
from moorage.main.private_data_dir import keep_private
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, VolumeDisk
from moorage.model.ids import ServerId

CAPABILITIES = """<capabilities><host>
  <secmodel><model>none</model><doi>0</doi></secmodel>
  <secmodel><model>dac</model><baselabel type='kvm'>{0}</baselabel><baselabel type='qemu'>{0}</baselabel></secmodel>
</host></capabilities>"""
SOMEBODY = (64_055, os.getgid())
"""The group is one that we may give to our files."""


@pytest.mark.parametrize(
    ("label", "user"), [("+64055:+108", (64_055, 108)), ("+0:+0", None), ("", None), ("libvirt-qemu:kvm", None)]
)
def test_libvirt_says_who_qemu_is(label: str, user: tuple[int, int] | None) -> None:
    assert qemu_user(ET.fromstring(CAPABILITIES.format(label)), "kvm") == user
    assert qemu_user(ET.fromstring("<capabilities><host/></capabilities>"), "kvm") is None


def mode(directory: Path) -> int:
    return stat.S_IMODE(directory.stat().st_mode)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """Of a role: whatever it makes is its own user's alone."""
    for each in (tmp_path, *tmp_path.parents[:-2]):
        each.chmod(mode(each) | 0o011)
    umask = os.umask(0o077)
    keep_private(tmp_path / "data")
    yield tmp_path / "data"
    os.umask(umask)


def of_host(data: Path, room: Path, instances_path: str = "") -> QemuAccess:
    room.mkdir(parents=True)
    access = QemuAccess(data / "hosts" / "host", room, instances_path)
    access.user = SOMEBODY
    return access


def test_its_group_may_search_our_directories_and_nobody_may_do_more(data: Path) -> None:
    access = of_host(data, data / "hosts" / "host")
    place, volumes = data / "hosts" / "host" / "guests" / "one" / "d1", data / "volumes"
    for each in (place, volumes):
        each.mkdir(parents=True)
    volume = VolumeDisk("v", {"driver_volume_type": "local", "data": {"device_path": str(volumes / "v")}})
    record = GuestRecord(GuestSpec(ServerId("one"), "web", 1, 512, 1, volumes=(volume,)))
    access.open_ways(directories_of(record, place, data / "hosts" / "host" / "images"))
    assert {mode(each) for each in (data, data / "hosts", data / "hosts" / "host", volumes)} == {0o710}
    assert mode(place) == 0o710
    keep_private(data)
    assert mode(data) == 0o710, "a role that begins closes it to no guest"
    data.chmod(0o750)
    keep_private(data)
    assert mode(data) == 0o700


def test_directories_of_others_stay_as_they_are(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    access = of_host(data, data / "hosts" / "host")
    with pytest.raises(HostFailed) as refused:
        access.open_ways([other])
    assert str(other) in refused.value.private
    assert mode(other) == 0o700
    chosen = other / "guests"
    elsewhere = of_host(data, chosen / "host", str(chosen))
    assert elsewhere.open_way(chosen / "host") == other
    other.chmod(0o711)
    assert elsewhere.open_way(chosen / "host") is None
    assert mode(chosen) == 0o710


def test_nothing_is_opened_to_root(data: Path) -> None:
    access = of_host(data, data / "hosts" / "host")
    access.user = None
    access.open_ways([data])
    assert mode(data) == 0o700
