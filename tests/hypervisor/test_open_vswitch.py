"""The wire driver `ovs` on a real Open vSwitch in userspace: what is plugged, what is refused, and that nothing is left."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.drivers.libvirt.open_vswitch import OvsWire
from moorage.model.errors import HostFailed
from moorage.model.guest import VifData
from moorage.model.ids import NetworkId, PortId
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.real_services.open_vswitch import Switch, lacks_open_vswitch

pytestmark = [pytest.mark.hypervisor, pytest.mark.skipif(bool(lacks_open_vswitch()), reason=lacks_open_vswitch())]

PORT = PortId("12345678-0000-4000-8000-000000000000")
TAP, ENDS = "tap12345678-00", ("qbr12345678-00", "qvb12345678-00", "qvo12345678-00")
IN_USERSPACE = {"bridge_name": "br-int", "datapath_type": "netdev"}


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[Switch]:
    if not os.environ.get("MOORAGE_HYPERVISOR"):
        pytest.skip("devices are made in `make test-hypervisor`")
    made = Switch(tmp_path / "ovs")
    made.start()
    try:
        made.bridge("br-int")
        yield made
        assert [
            each for each in made.vsctl("--bare", "--columns=name", "list", "Interface").split() if each != "br-int"
        ] == []
    finally:
        made.stop()
    assert leftovers(tmp_path, inside=("env",)) == [], "the machine may run guests of others"


def a_vif(**details: object) -> VifData:
    return VifData(
        PORT, NetworkId("net"), "fa:16:3e:00:00:01", vif_type="ovs", vif_details=IN_USERSPACE | details, mtu=1450
    )


def link(name: str) -> str:
    return subprocess.run(["ip", "-d", "link", "show", name], capture_output=True, text=True, check=False).stdout


def delete(name: str) -> None:
    subprocess.run(["ip", "link", "delete", name], check=True)


def tables() -> str:
    return subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout


def port_of(switch: Switch, name: str) -> str:
    return switch.vsctl("get", "Interface", name, "external_ids")


async def test_a_tap_of_ours_is_a_port_of_the_integration_bridge(switch: Switch) -> None:
    wire, vif = OvsWire("one", switch.database), a_vif()
    await wire.plug(vif)
    plug = await wire.plug(vif)
    assert (plug.get("type"), plug.find("target").attrib) == ("ethernet", {"dev": TAP, "managed": "no"})  # type: ignore[union-attr]
    assert plug.find("driver/host").get("csum") == "off", "nobody finishes checksums in userspace"  # type: ignore[union-attr]
    assert switch.vsctl("port-to-br", TAP).strip() == "br-int"
    assert f'iface-id="{PORT}"' in port_of(switch, TAP)
    assert 'attached-mac="fa:16:3e:00:00:01"' in port_of(switch, TAP)
    assert "mtu 1450" in link(TAP)
    assert f'device "{TAP}"' in tables()
    await wire.keep([vif])
    assert switch.vsctl("port-to-br", TAP).strip() == "br-int"
    for _ in range(2):
        await wire.unplug(vif)
    assert link(TAP) == ""
    await wire.keep([])
    assert "moorage" not in tables()


async def test_a_new_port_is_isolated_until_neutrons_agent_wires_it(switch: Switch) -> None:
    """OVN's ports are bound as `ovs` as well, and it does not take such a tag away."""
    wire = OvsWire("one", switch.database)
    for driver, tag in (("openvswitch", "4095"), ("ovn", "[]")):
        vif = a_vif(bound_drivers={"0": driver})
        await wire.plug(vif)
        assert switch.vsctl("get", "Port", TAP, "tag").strip() == tag
        switch.vsctl("set", "Port", TAP, "tag=7")
        await wire.plug(vif)
        assert switch.vsctl("get", "Port", TAP, "tag").strip() == "7", "what is wired stays so"
        await wire.unplug(vif)
    await wire.keep([])


async def test_what_is_left_of_a_port_goes_and_what_is_anothers_stays(switch: Switch) -> None:
    """Also a record without its device, as after the machine started anew."""
    mine, other = OvsWire("one", switch.database), OvsWire("two", switch.database)
    await mine.plug(a_vif())
    with pytest.raises(HostFailed, match="another port of this name"):
        await other.plug(a_vif())
    for do in (other.unplug(a_vif()), other.keep([])):
        await do
    assert switch.vsctl("port-to-br", TAP).strip() == "br-int"
    assert TAP in link(TAP)
    delete(TAP)
    await mine.keep([])
    assert TAP not in switch.vsctl("list-ports", "br-int")


async def test_a_binding_that_asks_for_a_bridge_between_gets_one(switch: Switch) -> None:
    wire, vif = OvsWire("one", switch.database), a_vif(ovs_hybrid_plug=True)
    bridge, inner, outer = ENDS
    for _ in range(2):
        await wire.plug(vif)
    assert switch.vsctl("port-to-br", outer).strip() == "br-int"
    assert f'iface-id="{PORT}"' in port_of(switch, outer)
    assert TAP not in switch.vsctl("list-ports", "br-int")
    assert f'device "{outer}"' in tables()
    assert f'device "{TAP}"' not in tables(), "what the guest sends must reach the bridge"
    for each in (TAP, inner):
        assert f"master {bridge} " in link(each)
    await wire.keep([vif])
    assert f"master {bridge} " in link(TAP)
    for _ in range(2):
        await wire.unplug(vif)
    await wire.plug(vif)
    await wire.keep([])
    delete(TAP)  # taps are `Wires.serve`'s
    assert [each for each in ENDS if link(each)] == []


async def test_a_trunks_bridge_comes_and_goes_with_its_port(switch: Switch) -> None:
    wire, vif = OvsWire("one", switch.database), a_vif(bridge_name="tbr-12345678-0")
    await wire.plug(vif)
    assert switch.vsctl("port-to-br", TAP).strip() == "tbr-12345678-0"
    assert switch.vsctl("get", "bridge", "tbr-12345678-0", "datapath_type").strip() == "netdev"
    await wire.unplug(vif)
    assert switch.vsctl("list-br").split() == ["br-int"]
    await wire.keep([])


async def test_missing_programs_are_reported(switch: Switch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HostFailed, match="no bridge for this port") as absent:
        await OvsWire("one", switch.database).plug(a_vif(bridge_name="br-other"))
    assert "there is no br-other" in absent.value.private
    with pytest.raises(HostFailed, match="names no bridge"):
        await OvsWire("one", switch.database).plug(a_vif(bridge_name="br int"))
    with pytest.raises(HostFailed, match="does not answer") as out:
        await OvsWire("one", f"unix:{tmp_path / 'nothing'}").plug(a_vif())
    assert "[libvirt] ovs_db" in out.value.private
    await OvsWire("one", f"unix:{tmp_path / 'nothing'}").keep([])
    (tmp_path / "ip").symlink_to(str(shutil.which("ip")))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostFailed, match="a program is missing") as lacking:
        await OvsWire("one", switch.database).plug(a_vif())
    assert lacking.value.private.startswith("ovs-vsctl")
    monkeypatch.undo()
