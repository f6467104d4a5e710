"""Networks with a VLAN: the calls of `ip`, and the error where the kernel has no support. With frames: tests/hypervisor/test_guest_vlans.py."""

from pathlib import Path

import pytest

from moorage.drivers.libvirt import devices, vlans
from moorage.drivers.libvirt.described_ports import DescribedPorts
from moorage.drivers.libvirt.plumber import Plumber
from moorage.drivers.libvirt.settings import Libvirt
from moorage.drivers.libvirt.vlans import UNKNOWN, Vlans
from moorage.drivers.libvirt.wires import Wires
from moorage.model.errors import HostFailed
from moorage.model.guest import VifData
from moorage.model.ids import NetworkId, PortId

VIF = VifData(
    PortId("0123456789ab"), NetworkId("fedcba987654"), "fa:16:3e:00:00:01", "bridge", mtu=1496,
    physical_network="physnet1", segmentation_id=101,
)  # fmt: skip


class Recorded:
    """In the place of `ip`: one machine's devices, as far as their names go."""

    def __init__(self, *there: str, refusal: str = "") -> None:
        self.calls: list[str] = []
        self.devices = dict.fromkeys(there, "")
        self._refusal = refusal

    async def run(self, *words: str, **_: object) -> str:
        line = " ".join(words)
        if line == "ip -json link show":
            rows = (f'{{"ifname": "{name}", "ifalias": "{alias}"}}' for name, alias in self.devices.items())
            return f"[{', '.join(rows)}]"
        if self._refusal and "type vlan" in line:
            raise HostFailed("the host could not do it", private=self._refusal, code="vif_not_plugged")
        self.calls.append(line)
        if "add" in words:
            self.devices[words[words.index("name") + 1 if "name" in words else words.index("dev") + 1]] = ""
        if "alias" in words:
            self.devices[words[words.index("dev") + 1]] = words[words.index("alias") + 1]
        if "delete" in words:
            del self.devices[words[-1]]
        return ""


def wires_on(machine: Recorded, room: Path, monkeypatch: pytest.MonkeyPatch) -> Wires:
    for module in (devices, vlans):
        monkeypatch.setattr(module, "run", machine.run)
    told = Libvirt(bridges={"physnet1": "br-ex"}, port_filter=False)
    return Wires("owner", told, Plumber(room, told), DescribedPorts(room))


async def test_a_vlan_device_is_created_and_deleted_with_its_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Recorded("br-ex")
    made = wires_on(machine, tmp_path, monkeypatch)
    for _ in range(2):
        await made.plug([VIF])
        await made.serve([VIF])
    added = [each for each in machine.calls if " add " in each]
    assert added == [
        "ip link add name mrvfedcba98765 mtu 1496 type bridge stp_state 0 forward_delay 0",
        "ip link add link br-ex name mvlfedcba98765 mtu 1496 type vlan id 101",
        "ip tuntap add dev tap0123456789a mode tap vnet_hdr",
    ]
    assert "ip link set dev mvlfedcba98765 alias moorage owner master mrvfedcba98765 up" in machine.calls
    await made.unplug([VIF])
    await made.serve([])
    assert list(machine.devices) == ["br-ex"], "the operator's own stays"


@pytest.mark.parametrize("refusal", UNKNOWN)
async def test_a_kernel_without_vlans_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    made = wires_on(Recorded("br-ex", refusal=f"Error: {refusal}."), tmp_path, monkeypatch)
    with pytest.raises(HostFailed, match="this host cannot plug into VLANs") as cannot:
        await made.plug([VIF])
    assert "modprobe 8021q" in cannot.value.private


async def test_the_configured_bridge_must_exist() -> None:
    with pytest.raises(HostFailed, match="no such bridge"):
        await Vlans("us").join(VIF, "br-ex", "mrvfedcba98765", ())
