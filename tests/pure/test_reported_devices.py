"""What a host with real guests says of their devices: what libvirt shows, by the names that its records give it."""

from types import SimpleNamespace
from typing import Any

from moorage.drivers.libvirt.reported_devices import _seen, _shown
from moorage.model.guest import GuestSpec, VifData, VolumeDisk
from moorage.model.guest_devices import GuestInterface, GuestVolume, devices_of
from moorage.model.ids import NetworkId, PortId, ServerId

SPEC = GuestSpec(
    ServerId("11111111-0000-4000-8000-000000000000"),
    "a",
    1,
    64,
    vifs=(VifData(PortId("port-1"), NetworkId("n"), "fa:16:3e:00:00:01"),),
    volumes=(VolumeDisk("volume-1", {"data": {"device_path": "/vol/1"}}, attachment="attachment-1", bdm="bdm-1"),),
)


def domain(*disks: tuple[str, str], macs: tuple[str, ...] = ("FA:16:3E:00:00:01",), runs: bool = True) -> Any:
    """`disks`: (source, serial number); one without a serial number is the guest's own."""
    devices = "".join(
        f"<disk><source file='{source}'/>{f'<serial>{serial}</serial>' if serial else ''}</disk>"
        for source, serial in disks
    ) + "".join(f"<interface><mac address='{mac}'/></interface>" for mac in macs)
    xml = f"<domain><devices>{devices}</devices></domain>"
    return SimpleNamespace(isActive=lambda: runs, XMLDesc=lambda: xml)


def told(shown: Any) -> tuple[tuple[GuestVolume, ...], tuple[GuestInterface, ...]]:
    found = _shown(shown)
    assert found is not None
    devices = _seen(SPEC, devices_of(SPEC), found)
    return devices.volumes, devices.interfaces


def test_a_guest_with_what_its_record_has() -> None:
    volumes, interfaces = told(domain(("/root", ""), ("/vol/1", "volume-1")))
    assert volumes == (GuestVolume("volume-1", "attachment-1", "bdm-1"),)
    assert interfaces == (GuestInterface("port-1", "fa:16:3e:00:00:01"),)


def test_a_guest_that_is_off_is_as_its_record_says() -> None:
    assert _shown(domain(runs=False)) is None


def test_devices_that_somebody_took_out_or_left_in() -> None:
    assert told(domain(("/root", ""), macs=())) == ((), ())
    volumes, interfaces = told(domain(("/vol/9", "volume-9"), macs=("fa:16:3e:00:00:09",)))
    assert volumes == (GuestVolume("volume-9"),)
    assert interfaces == (GuestInterface("", "fa:16:3e:00:00:09"),)


def test_a_disk_is_known_by_its_source_and_not_by_its_serial_number() -> None:
    """The serial number stays when another volume is copied under the guest."""
    assert told(domain(("/vol/1", "volume-0")))[0] == (GuestVolume("volume-1", "attachment-1", "bdm-1"),)
    assert told(domain(("/vol/7", "volume-1")))[0] == (GuestVolume("/vol/7", bdm="bdm-1"),)
