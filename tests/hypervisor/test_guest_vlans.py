"""A guest on a network with a VLAN, where the kernel has 802.1Q: a namespace in the guest's place, and one on the wire."""

import subprocess
from pathlib import Path

import pytest

from moorage.drivers.libvirt.described_ports import DescribedPorts
from moorage.drivers.libvirt.plumber import Plumber
from moorage.drivers.libvirt.settings import Libvirt
from moorage.drivers.libvirt.wires import Wires
from moorage.model.errors import HostFailed
from moorage.model.guest import VifData
from moorage.model.ids import NetworkId, PortId
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.hypervisor.stations import Station, call

pytestmark = pytest.mark.hypervisor

VIF = VifData(
    PortId("0123456789ab"), NetworkId("fedcba987654"), "fa:16:3e:77:09:01", "bridge", mtu=1496,
    physical_network="physnet1", segmentation_id=101,
)  # fmt: skip


def has_vlans() -> bool:
    words = ("ip", "link", "add", "link", "lo", "name", "probe", "type", "vlan", "id", "1")
    if subprocess.run(words, capture_output=True, check=False).returncode:
        return False
    call("ip", "link", "delete", "probe")
    return True


async def test_frames_are_tagged_on_the_wire(tmp_path: Path) -> None:
    told = Libvirt(bridges={"physnet1": "wire"}, port_filter=False)
    wires = Wires("owner", told, Plumber(tmp_path, told), DescribedPorts(tmp_path))
    call("ip", "link", "add", "wire", "type", "bridge")
    call("ip", "link", "set", "wire", "up")
    guest, outside = Station("guest", "mrvfedcba98765", VIF.mac), Station("outside", "wire")
    started: list[Station] = []
    try:
        if not has_vlans():
            with pytest.raises(HostFailed, match="this host cannot plug into VLANs"):
                await wires.plug([VIF])
            pytest.skip("this kernel has no 802.1Q, which is what the host says; frames are not tried")
        await wires.plug([VIF])
        for each in (guest, outside):
            each.start()
            started.append(each)
        guest.call("ip", "address", "add", "192.0.2.1/24", "dev", "eth0")
        outside.call("ip", "link", "add", "link", "eth0", "name", "tagged", "type", "vlan", "id", "101")
        outside.call("ip", "address", "add", "192.0.2.2/24", "dev", "tagged")
        outside.call("ip", "link", "set", "tagged", "up")
        assert (await guest.run("ping", "-c3", "-W5", "192.0.2.2")).code == 0
    finally:
        for each in started:
            each.stop()
        await wires.serve([])
        call("ip", "link", "delete", "wire")
    assert leftovers(tmp_path, inside=("env",)) == []
