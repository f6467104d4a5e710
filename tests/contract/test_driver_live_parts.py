"""Parts of the libvirt driver's live migration and tunnels that need no hypervisor."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from moorage.drivers.libvirt import firewall as firewall_module
from moorage.drivers.libvirt.firewall import Firewall
from moorage.drivers.libvirt.records import GuestDirectory, GuestRecord
from moorage.drivers.libvirt.transfers import at_destination
from moorage.drivers.libvirt.tunnels import Tunnels, gateway_mac, routed_mac, tunnel_of
from moorage.model.errors import HostFailed
from moorage.model.guest import GuestSpec, VifAddress, VifData
from moorage.model.ids import NetworkId, PortId, ServerId, SubnetId

ONE = ServerId("11111111-0000-4000-8000-000000000000")
NETWORK = NetworkId("bbbbbbbb-0000-4000-8000-000000000000")
ADDRESS = VifAddress("10.20.0.5", SubnetId("s"), "10.20.0.0/16", "10.20.0.1")
VIF = VifData(PortId("p"), NETWORK, "fa:16:3e:00:00:01", "bridge", segmentation_id=7, addresses=(ADDRESS,))


def domain(owner: str, room: str, *, port: int, extra: str = "") -> str:
    return f"""
    <domain><metadata><guest owner='{owner}'/></metadata>
      <os><type>hvm</type><kernel>{room}/kernel</kernel></os>
      <devices>
        <disk type='file' device='disk'><source file='{room}/disk'/>{extra}<target dev='vda'/></disk>
        <interface type='ethernet'><mac address='fa:16:3e:00:00:01'/><target dev='tap-{owner}' managed='no'/></interface>
        <serial type='tcp'><source service='{port}'/><log file='{room}/console.log'/><target port='0'/></serial>
        <console type='tcp'><source service='{port}'/><log file='{room}/console.log'/></console>
        <graphics type='vnc' listen='{owner}'/>
      </devices>
    </domain>"""


def test_a_guest_is_described_with_the_destinations_values() -> None:
    source = domain("a", "/a", port=1, extra="<backingStore type='file'/><address slot='0x07'/>")
    made = ET.fromstring(at_destination(source, domain("b", "/b", port=2)))
    assert "/a/" not in ET.tostring(made, encoding="unicode")
    disk = made.find("devices/disk")
    assert disk is not None
    assert disk.find("address") is not None, "its place on the bus stays"
    assert disk.find("backingStore") is None
    assert made.findtext("os/kernel") == "/b/kernel"
    assert [each.get("service") for each in made.iterfind("devices/*/source[@service]")] == ["2", "2"]
    assert [each.get("listen") for each in made.iterfind("devices/graphics")] == ["b"]
    assert made.find("devices/interface/target").get("dev") == "tap-b"  # type: ignore[union-attr]


def test_a_device_that_the_destination_does_not_have_is_named() -> None:
    source = domain("a", "/a", port=1).replace("vda", "vdb")
    with pytest.raises(ValueError, match="no disk vdb"):
        at_destination(source, domain("b", "/b", port=2))


def test_arriving_and_departed_guests_are_not_listed(tmp_path: Path) -> None:
    records = GuestDirectory(tmp_path)
    records.open()
    for state in ({"incoming": True}, {"departed": True}):
        records.keep(msgspec.structs.replace(GuestRecord(GuestSpec(ONE, "a", 1, 64)), **state))
        with pytest.raises(HostFailed) as absent:
            records.of(ONE)
        assert absent.value.code == "guest_not_found"
        assert records.find(ONE) is not None
    records.close()


async def test_a_hosts_address_table_is_written_on_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    async def run(*words: str, given: str = "", **_: Any) -> str:
        written.append(given)
        return ""

    monkeypatch.setattr(firewall_module, "run", run)
    firewall = Firewall("12345678-owner")
    for _ in range(2):
        await firewall.keep([VIF])
    assert len(written) == 1
    assert written[0].startswith("table bridge moorage_12345678\ndelete table bridge moorage_12345678\n")
    tunnel = tunnel_of(NETWORK)
    assert f'oifname "{tunnel}" arp daddr ip 10.20.0.1 drop' in written[0]
    into = f'oifname "mvx*" meta mark & 0x10000000 != 0 ether saddr set {routed_mac("12345678-owner")} accept'
    assert into in written[0]
    out = "ether saddr & ff:ff:ff:00:00:00 == fa:16:40:00:00:00 ether saddr set"
    assert f'iifname "{tunnel}" {out} {gateway_mac(NETWORK)}' in written[0]
    await firewall.keep([])
    assert written[1] == "".join(
        f"table {family} moorage_12345678\ndelete table {family} moorage_12345678\n" for family in ("bridge", "inet")
    )


def test_networks_that_use_tunnels() -> None:
    assert Tunnels("10.0.0.1", "239.77.0.1", "us").has(VIF)
    assert not Tunnels("", "239.77.0.1", "us").has(VIF)
    assert not Tunnels("10.0.0.1", "239.77.0.1", "us").has(msgspec.structs.replace(VIF, physical_network="physnet1"))
    assert not Tunnels("10.0.0.1", "239.77.0.1", "us").has(msgspec.structs.replace(VIF, segmentation_id=None))
    assert gateway_mac(NETWORK) == gateway_mac(NETWORK) != gateway_mac("other")
